"""The worker process: builds the adapters, binds them to the activities, polls until SIGTERM, then drains.

The composition root: nothing else imports it, and nothing happens on import.
"""

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import UUID

from temporalio.client import Client
from temporalio.worker import Worker

from activities.batches import Batches
from activities.compactions import CompactionActivities
from activities.model_calls import ModelCallActivities
from activities.releases import Kit, Releases
from activities.requests import RequestActivities
from activities.runs import RunActivities
from activities.tool_calls import ToolCallActivities
from context.errors import AgentLoomError, UnavailableError
from context.policy import Release
from egress.client import build_client
from process_logs import configure_logs
from providers.chat import ChatClient
from providers.demo.server import serve as serve_demo
from providers.release_model import ReleaseModel
from settings import (
    PrivateAddresses,
    Settings,
    forget_temporal_secrets,
    load_temporal_options,
    settings_or_exit,
    use_app_dir,
)
from storage.episode_commits import EpisodeCommits
from storage.fitting_keys import UnfitKeysError, check_keys
from storage.for_release import ReleaseKeys, StoredResults
from storage.outbox import Relay
from storage.payloads import Keys
from storage.reconciling import Reconciler
from storage.run_commits import RunCommits
from storage.store import FaultPlan, Store
from tools.builtin import Backends
from tools.folders import remove_run_folder
from tools.mcp_access import McpAccess
from tools.registry import Adapters, ToolBoxes
from tools.release_tools import ReleaseTools
from workflows.connecting import connect
from workflows.dispatch import TemporalSender
from workflows.lost_runs import TemporalWatch
from workflows.registry import WORKFLOWS, sandbox

LOG = logging.getLogger("worker")  # the module is `__main__` when it is the process

# A worker that lost its cache, or died, gives its workflows up after this time instead of Temporal's ten seconds. Half
# of it lets the tasks of some twenty Runs at once time out, each an event of its history.
STICKY = timedelta(seconds=1)
# What runs when the process is told to stop may take this long; then it is handed to another worker.
DRAIN = timedelta(seconds=2)
# A local step can't be taken from the process that runs it: whatever else hangs is left behind, as in a crash.
LEAVING = timedelta(seconds=5)
HEARTBEATS = timedelta(milliseconds=500)
# Workflow tasks hold their local activities, and their clock runs from the moment they are taken: what can't be worked
# on at once waits at the server. (With the default of 100, two hundred Runs at once let each other's tasks time out;
# with 16, those of a dead worker, whose histories are all read at once.)
TASKS_AT_ONCE = 8
SHORTEST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0
COLLECT_AT = (20_000, 20, 50)  # new objects, and younger generations, before each generation is collected


@dataclass(frozen=True)
class Edges:
    """What the worker reaches beyond database and Temporal."""

    work_dir: Path
    demo_base_url: str
    chat: ChatClient
    demo_chat: ChatClient  # the demo model is on loopback, which other models may not be
    boxes: ToolBoxes


@asynccontextmanager
async def open_edges(store: Store, *, private_addresses: PrivateAddresses, work_dir: Path) -> AsyncIterator[Edges]:
    """Clients for models and tools, and the demo model, closed at the end."""
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(build_client(private_addresses=private_addresses))
        demo_http = await stack.enter_async_context(build_client(private_addresses="loopback"))
        server = await serve_demo()
        stack.push_async_callback(server.aclose)
        mcp = McpAccess(private_addresses=private_addresses)
        stack.push_async_callback(mcp.aclose)
        boxes = ToolBoxes(Adapters(http, mcp.servers, Backends(StoredResults(store))))
        yield Edges(work_dir, server.base_url, ChatClient(http), ChatClient(demo_http), boxes)


def build_activities(store: Store, edges: Edges) -> Sequence[Any]:
    """The activities, with their collaborators bound."""

    def chat_for(provider: str) -> ChatClient:
        return edges.demo_chat if provider == "demo" else edges.chat

    def build_kit(release_id: UUID, release: Release) -> Kit:
        keys = ReleaseKeys(store, release_id, release.definition.connections)
        model = ReleaseModel(
            release,
            chat_for=chat_for,
            resolve_key=keys.key,
            known_secrets=keys.known,
            demo_base_url=edges.demo_base_url,
        )
        box = edges.boxes.box(release_id, release, resolve_secret=keys.secret)
        results = release.definition.context.results
        tools = ReleaseTools(box, results, work_root=edges.work_dir, known_secrets=keys.known)
        return Kit(release, model, tools)

    commits = RunCommits(store)
    releases = Releases(commits, build_kit=build_kit)
    runs = RunActivities(commits, releases, remove_folder=partial(remove_run_folder, edges.work_dir))
    requests = RequestActivities(commits, releases)
    tools = ToolCallActivities(commits, releases)
    models = ModelCallActivities(commits, releases, Batches(commits, tools))
    compactions = CompactionActivities(EpisodeCommits(store), commits, releases)
    steps = [requests.prepare_request, requests.freeze_request, models.call_model, tools.call_tool]
    episode = [compactions.plan_episode, compactions.summarise_block, compactions.publish_snapshot]
    return [runs.open_run, *steps, *episode, compactions.fail_episode, runs.finish_run]


def build_worker(client: Client, store: Store, edges: Edges, *, task_queue: str, **options: Any) -> Worker:
    """The Temporal worker as it runs in production; `options` are for tests."""
    settings: dict[str, Any] = {
        # Both stand in every event.
        "identity": f"w{os.getpid()}",
        "build_id": version("agentloom"),
        "sticky_queue_schedule_to_start_timeout": STICKY,
        "graceful_shutdown_timeout": DRAIN,
        "max_heartbeat_throttle_interval": HEARTBEATS,
        "default_heartbeat_throttle_interval": HEARTBEATS,
        "workflow_failure_exception_types": [AgentLoomError],
        "max_concurrent_workflow_tasks": TASKS_AT_ONCE,
    }
    return Worker(
        client,
        task_queue=task_queue,
        workflows=WORKFLOWS,
        activities=build_activities(store, edges),
        workflow_runner=sandbox(),
        **(settings | options),
    )


async def keep_true(store: Store, client: Client, *, task_queue: str, work_dir: Path) -> None:
    """What goes on beside the work until it is cancelled: intents are sent, and Runs without a workflow are ended."""
    async with asyncio.TaskGroup() as group:
        group.create_task(Relay(store, TemporalSender(client, task_queue=task_queue)).run())
        forget = partial(remove_run_folder, work_dir)
        group.create_task(Reconciler(store, TemporalWatch(client), on_end=forget).run())


@asynccontextmanager
async def kept_true(
    store: Store, client: Client, *, task_queue: str, work_dir: Path
) -> AsyncIterator[asyncio.Task[None]]:
    """`keep_true` beside the block. It ends with the block, and has let go of the store by then."""
    keeping = asyncio.create_task(keep_true(store, client, task_queue=task_queue, work_dir=work_dir))
    try:
        yield keeping
    finally:
        while not keeping.done():  # what a lost database raises at that moment could stand in for one cancellation
            keeping.cancel()
            await asyncio.wait([keeping], timeout=1)
        if not keeping.cancelled():
            keeping.result()


def settle_memory() -> None:
    """Take what is loaded out of the garbage collector's walks: it lives as long as the process.

    With Python's defaults each full collection walks every imported module again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AT)


async def connected(stop: asyncio.Event) -> Client | None:
    """A client as soon as Temporal answers, however long after us it starts; None if told to stop before."""
    options = load_temporal_options()
    async for _ in asking(stop):
        try:
            return await connect(options)
        except RuntimeError:
            LOG.warning("Temporal does not answer at %s; asking again", options["target_host"])
    return None


async def opened(store: Store, stop: asyncio.Event, *, lost_keys: frozenset[str]) -> bool:
    """True as soon as the database answers and our keys open what it holds; False if told to stop before.

    Raises UnfitKeysError: with other keys each Run that this worker got would end (SPEC Y2).
    """
    async for _ in asking(stop):
        try:
            await check_keys(store, lost=lost_keys)
        except UnavailableError:
            LOG.warning("the database does not answer; asking again")
        else:
            return True
    return False


async def asking(stop: asyncio.Event) -> AsyncIterator[None]:
    """Each turn asks once. The pauses grow: what starts beside us is there in a moment. Ends when told to stop."""
    pause_s = SHORTEST_PAUSE_S
    while not stop.is_set():
        yield
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


async def leave_in_time(stop: asyncio.Event) -> None:
    """End this process some seconds after it was told to stop, if it has not ended by then."""
    await stop.wait()
    await asyncio.sleep(LEAVING.total_seconds())
    LOG.warning("a step hangs; the worker leaves it to the next one")
    logging.shutdown()
    os._exit(0)


async def run_worker(settings: Settings, faults: FaultPlan | None = None) -> None:
    """Poll until SIGTERM or SIGINT; then finish or hand over what runs."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    leaving = asyncio.create_task(leave_in_time(stop))
    keys = Keys(settings.keys_by_id, settings.index_key)
    store = Store.open(settings.database_url.get_secret_value(), keys, faults=faults)
    private = settings.allowed_private_addresses
    async with aclosing(store), open_edges(store, private_addresses=private, work_dir=settings.work_dir) as edges:
        client = await connected(stop)
        forget_temporal_secrets()
        if client is None or not await opened(store, stop, lost_keys=settings.lost_keys):
            return
        queue = settings.task_queue
        settle_memory()
        async with (
            kept_true(store, client, task_queue=queue, work_dir=settings.work_dir) as keeping,
            build_worker(client, store, edges, task_queue=queue),
        ):
            await asyncio.wait([asyncio.create_task(stop.wait()), keeping], return_when=asyncio.FIRST_COMPLETED)
    leaving.cancel()


def main() -> None:
    """Entry point of `python -m worker`; with `--stand-in` it waits, loaded, for a line or the end of its input."""
    import uvloop

    if "--stand-in" in sys.argv[1:] and not sys.stdin.buffer.readline():
        return
    settings = settings_or_exit()
    use_app_dir(settings.app_dir)
    configure_logs(settings.log_level)
    try:
        uvloop.run(run_worker(settings))
    except UnfitKeysError as error:
        LOG.critical("%s", error)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()

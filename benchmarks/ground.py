"""The ground of the benchmarks: real servers in a temporary folder, a worker in this process, a model in another."""

import asyncio
import secrets
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from temporalio.client import Client, WorkflowHandle

from context.policy import AgentDefinition, Release
from storage.commits.accept_input import AcceptInput, accept_input
from storage.commits.create_session import CreateSession, create_session
from storage.commits.create_space_user import CreateSpaceUser, create_space_user
from storage.commits.publish_release import PublishRelease, publish_release
from storage.outbox import dispatch
from storage.payloads import Keys
from storage.store import Store
from tests.support import servers
from tools.describing import description_of
from tools.python import freeze_python
from worker import Edges, build_worker, open_edges, settle_memory
from workflows.dispatch import TemporalSender
from workflows.registry import data_converter


@dataclass(frozen=True)
class Ground:
    """Everything a benchmark works with."""

    store: Store
    client: Client
    edges: Edges
    database_url: str
    model_url: str
    task_queue: str
    steps: int


@dataclass(frozen=True)
class Servers:
    """Where the servers are."""

    folder: Path
    database_url: str
    temporal_address: str


@contextmanager
def real_servers() -> Iterator[Servers]:
    """PostgreSQL as it runs in production (it waits for the disk) and Temporal; gone at the end."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        postgres = stack.enter_context(servers.running_postgres(folder / "postgres", durable=True))
        temporal = stack.enter_context(servers.running_temporal(folder / "temporal"))
        servers.run_now(servers.create_template(postgres))
        name = servers.run_now(servers.create_database(postgres, template=servers.TEMPLATE))
        yield Servers(folder, postgres.url(name), temporal.address)


@asynccontextmanager
async def ground(at: Servers, *, steps: int) -> AsyncIterator[Ground]:
    """A store, a client, and a waiting model."""
    url, folder = at.database_url, at.folder
    client = await Client.connect(at.temporal_address, data_converter=data_converter())
    store = Store.open(url, Keys({"k": secrets.token_bytes(32)}, secrets.token_bytes(32)))
    model = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.fast_model", str(steps), stdout=asyncio.subprocess.PIPE
    )
    assert model.stdout is not None
    port = int(await model.stdout.readline())
    try:
        async with open_edges(store, private_addresses="loopback", work_dir=folder / "work") as edges:
            queue = secrets.token_hex(4)
            settle_memory()
            yield Ground(store, client, edges, url, f"http://127.0.0.1:{port}/v1", queue, steps)
    finally:
        await store.aclose()
        model.kill()
        await model.wait()


def definition(model_url: str, steps: int) -> AgentDefinition:
    """The agent of the benchmarks: one short read-only Python tool."""
    return AgentDefinition.model_validate(
        {
            "name": "bench",
            "instructions": "Note numbers.",
            "model": {
                "provider": "openai_compatible",
                "model": "fast",
                "base_url": model_url,
                "context_window": 1_000_000,
            },
            "limits": {"max_loops": steps + 10},
            "tools": [
                {"kind": "python", "name": "note", "entry": "benchmarks.bench_tools:note", "effect": "read_only"}
            ],
        }
    )


def release(agent: AgentDefinition) -> Release:
    """The agent as published."""
    return Release(
        definition=agent,
        tools=tuple(freeze_python(tool, description_of(tool.entry or "")) for tool in agent.tools),
        context_window=agent.model.context_window or 0,
        window_source="manual",
        provider_output_limit=None,
        estimator_id="utf8-bytes/openai_compatible/v1",
        base_url=agent.model.base_url,
    )


async def new_session(on: Ground) -> tuple[UUID, UUID]:
    """A session of the benchmark agent: its id and its owner's."""
    who = await create_space_user(on.store, CreateSpaceUser(secrets.token_hex(4), "member"))
    await publish_release(on.store, PublishRelease(who.space_id, release(definition(on.model_url, on.steps))))
    session = await create_session(on.store, CreateSession(who.space_id, who.user_id, "bench"))
    return session.session_id, who.user_id


async def start_run(on: Ground, session_id: UUID, owner_id: UUID) -> WorkflowHandle[object, object]:
    """Ask a question and start its workflow."""
    accepted = await accept_input(on.store, AcceptInput(session_id, owner_id, "Note the numbers.", "question"))
    sender = TemporalSender(on.client, task_queue=on.task_queue)
    await dispatch(on.store, sender, accepted.outbox_id)
    return on.client.get_workflow_handle(f"run/{accepted.run_id}")


__all__ = ["Ground", "build_worker", "definition", "ground", "new_session", "release", "start_run"]

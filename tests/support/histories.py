"""Records the histories that `tests/replay` replays: `python -m tests.support.histories record`,
or only some of them by name.

Runs of every shape are played on real servers, and what Temporal recorded of each execution is written down as JSON.
To be done when a change of the workflows is meant to change what they record (CHANGELOG, "Running workflows").
"""

import asyncio
import contextlib
import json
import os
import socket
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from temporalio.client import WorkflowFailureError

from tests.support import replies, servers
from tests.support.model_server import Scripted
from tests.support.run_world import Json, RunWorld, Servers, python_tool, working_world

FOLDER = Path(__file__).parents[1] / "replay" / "histories"
MARK = "MARK-recorded"
"""In every question, argument, result and answer of the recorded Runs."""

Scenario = Callable[[RunWorld], Awaitable[str]]
"""Plays; returns the id of the Run, or the whole id of another workflow."""


async def model_call(world: RunWorld) -> str:
    """A question and its answer."""
    world.model.add(MARK)
    return str((await world.ask(MARK))["run_id"])


async def tool_batch(world: RunWorld) -> str:
    """Calls beside the workflow, calls with rows of their own, both together, one that is refused."""
    await world.publish(tools=["echo", python_tool("pause", "idempotent")])
    local, own = ("echo", {"text": MARK}), ("pause", {"seconds": 0, "text": MARK})
    world.model.add(replies.calls(local, local), replies.calls(own, own), replies.calls(local, own, ("echo", {})), MARK)
    return str((await world.ask(MARK))["run_id"])


async def retry_wait(world: RunWorld) -> str:
    """Two failures of the provider before its answer."""
    slow_down = replies.error(429, MARK, headers=(("retry-after", "0.2"),))
    world.model.add(slow_down, slow_down, MARK)
    return str((await world.ask(MARK))["run_id"])


async def stopping(world: RunWorld) -> str:
    """A stop in the middle of a batch."""
    await world.publish(tools=[python_tool("pause", "side_effect")])
    world.model.add(replies.calls(("pause", {"seconds": 30, "text": MARK})))
    run_id = await world.start(MARK)
    await world.until(run_id, "running_tools")
    await world.stop(run_id)
    await world.ended(run_id)
    return run_id


async def supplement(world: RunWorld) -> str:
    """Inputs that come during a call: one in time for the next request, one too late for any."""
    await world.publish(tools=["echo"], context={"late_input": "continue"})
    session = await world.open_session()
    world.model.add(replies.calls(("echo", {"text": MARK})).but(hold="first"), replies.text(MARK).but(hold="second"))
    world.model.add(MARK)
    run_id = await world.start(MARK, session)
    for number, gate in enumerate(("first", "second"), start=1):
        await world.model.wait_for_requests(number)
        await world.send(MARK, session, mode="supplement")
        world.model.release(gate)
    await world.ended(run_id)
    return run_id


async def resumed(world: RunWorld) -> str:
    """The second execution of a Run that failed after a batch."""
    await world.publish(tools=["echo"])
    world.model.add(replies.calls(("echo", {"text": MARK})), replies.error(401, MARK), MARK)
    run = await world.ask(MARK)
    await world.resume(run["run_id"], MARK)
    await world.ended(run["run_id"])
    return str(run["run_id"])


async def out_of_loops(world: RunWorld) -> str:
    """A Run at the end of its loops."""
    await world.publish(tools=["echo"], limits={"max_loops": 2})
    world.model.add(*[replies.calls(("echo", {"text": MARK}))] * 2)
    return str((await world.ask(MARK))["run_id"])


async def deadline(world: RunWorld) -> str:
    """A Run out of time in a model call."""
    await world.publish(limits={"deadline_s": 1})
    world.model.add(replies.text(MARK).but(hold="never"))
    return str((await world.ask(MARK))["run_id"])


async def running_call(world: RunWorld) -> str:
    """An execution that is still open, in a model call."""
    world.model.add(replies.text(MARK).but(hold="never"))
    run_id = await world.start(MARK)
    await world.model.wait_for_requests(1)
    return run_id


LONG = MARK + " word" * 300
SMALL: Json = {"model": {"context_window": 7_000, "max_output_tokens": 600}}


async def outgrown(world: RunWorld) -> str:
    """A session that the fourth question makes too long, so that its Run is compacted in two blocks; that Run."""
    await world.publish(**SMALL)
    world.model.add(*[MARK] * 12)
    session = await world.open_session()
    for _ in range(3):
        await world.ask(LONG, session)
    return str((await world.ask(LONG, session))["run_id"])


async def compacted_run(world: RunWorld) -> str:
    """A Run that waits for its compaction."""
    return await outgrown(world)


async def compaction(world: RunWorld) -> str:
    """The compaction that a Run waits for."""
    (one,) = await world.items(f"/runs/{await outgrown(world)}/compactions")
    return str(one["workflow_id"])


async def idle_compaction(world: RunWorld) -> str:
    """The compaction of an idle session, in two blocks."""
    session = await idle_session(world)
    one = await world.post(f"/sessions/{session}/compact", None, status=202)
    await world.get(f"/compactions/{one['episode_id']}", wait_s=20)
    return f"compaction/{one['episode_id']}"


async def stopped_idle_compaction(world: RunWorld) -> str:
    """One that is stopped in its first block."""
    session = await idle_session(world, replies.text(MARK).but(hold="never"))
    one = await world.post(f"/sessions/{session}/compact", None, status=202)
    await world.model.wait_for_requests(4)
    await world.post(f"/compactions/{one['episode_id']}/stop", None, status=202)
    await world.get(f"/compactions/{one['episode_id']}", wait_s=20)
    return f"compaction/{one['episode_id']}"


async def idle_session(world: RunWorld, *then: Scripted) -> str:
    """A session with three answered questions, all of which may be summarised; what the model says then."""
    await world.publish(**SMALL, context={"recent_runs": 0, "trigger_ratio": 1, "keep_recent_tokens": 0})
    world.model.add(MARK, MARK, MARK, *then, *[MARK] * 4)
    session = await world.open_session()
    for _ in range(3):
        await world.ask(LONG, session)
    return session


SCENARIOS: dict[str, Scenario] = {
    one.__name__: one
    for one in (
        model_call,
        tool_batch,
        retry_wait,
        stopping,
        supplement,
        resumed,
        out_of_loops,
        deadline,
        running_call,
        compacted_run,
        compaction,
        idle_compaction,
        stopped_idle_compaction,
    )
}


async def record(scenario: Scenario, place: Servers) -> str:
    """Play a scenario in a world of its own; the history of its workflow's newest execution as JSON."""
    async with working_world(place) as world:
        played = await scenario(world)
        handle = world.temporal.get_workflow_handle(played) if "/" in played else world.workflow(played)
        if scenario is not running_call:
            with contextlib.suppress(WorkflowFailureError):
                await handle.result()
        return (await handle.fetch_history()).to_json()


def without_machine(history: str) -> str:
    """The history without the name of the process and machine that made it."""
    return history.replace(f"{os.getpid()}@{socket.gethostname()}", "worker@recorded")


def record_all(folder: Path, names: Sequence[str]) -> None:
    """These scenarios into the folder, one file each."""
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        with servers.running_postgres(place) as postgres, servers.running_temporal(place) as temporal:
            servers.run_now(servers.create_template(postgres))
            for name in names:
                database = servers.run_now(servers.create_database(postgres, template=servers.TEMPLATE))
                world = Servers(postgres.url(database), temporal.address, f"record-{name}", place)
                history = json.loads(without_machine(asyncio.run(record(SCENARIOS[name], world))))
                text = json.dumps(history, indent=1, ensure_ascii=False, sort_keys=True)
                (folder / f"{name}.json").write_text(text + "\n")
                print(f"recorded {name}: {len(history['events'])} events")


if __name__ == "__main__":
    if sys.argv[1:2] != ["record"] or not set(sys.argv[2:]) <= set(SCENARIOS):
        sys.exit(f"usage: python -m tests.support.histories record [NAME …]\nnames: {' '.join(SCENARIOS)}")
    record_all(FOLDER, sys.argv[2:] or list(SCENARIOS))

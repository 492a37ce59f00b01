"""Records the histories that `tests/replay` replays: `python -m tests.support.histories record`.

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
from collections.abc import Awaitable, Callable
from pathlib import Path

from temporalio.client import WorkflowFailureError

from tests.support import replies, servers
from tests.support.run_world import RunWorld, Servers, python_tool, working_world

FOLDER = Path(__file__).parents[1] / "replay" / "histories"
MARK = "MARK-recorded"
"""In every question, argument, result and answer of the recorded Runs."""

Scenario = Callable[[RunWorld], Awaitable[str]]


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
    )
}


async def record(scenario: Scenario, place: Servers) -> str:
    """Play a scenario in a world of its own; the history of its Run's newest execution as JSON."""
    async with working_world(place) as world:
        run_id = await scenario(world)
        handle = world.workflow(run_id)
        if scenario is not running_call:
            with contextlib.suppress(WorkflowFailureError):
                await handle.result()
        return (await handle.fetch_history()).to_json()


def without_machine(history: str) -> str:
    """The history without the name of the process and machine that made it."""
    return history.replace(f"{os.getpid()}@{socket.gethostname()}", "worker@recorded")


def record_all(folder: Path) -> None:
    """Every scenario into the folder, one file each."""
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        with servers.running_postgres(place) as postgres, servers.running_temporal(place) as temporal:
            servers.run_now(servers.create_template(postgres))
            for name, scenario in SCENARIOS.items():
                database = servers.run_now(servers.create_database(postgres, template=servers.TEMPLATE))
                world = Servers(postgres.url(database), temporal.address, f"record-{name}", place)
                history = json.loads(without_machine(asyncio.run(record(scenario, world))))
                text = json.dumps(history, indent=1, ensure_ascii=False, sort_keys=True)
                (folder / f"{name}.json").write_text(text + "\n")
                print(f"recorded {name}: {len(history['events'])} events")


if __name__ == "__main__":
    if sys.argv[1:] != ["record"]:
        sys.exit("usage: python -m tests.support.histories record")
    record_all(FOLDER)

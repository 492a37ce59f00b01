"""A worker that is told to end is no stop of the Runs it works for (case C078)."""

import signal
from pathlib import Path

import pytest

from tests.crash.test_killed_compaction import BLOCKS, LONG, PART, SMALL, answered, is_block
from tests.crash.test_tools_and_kills import until_exists
from tests.support import replies
from tests.support.child_worker import WorkerNursery, place_of
from tests.support.faults import Fault
from tests.support.run_tools import traced
from tests.support.run_world import RunWorld, python_tool


async def test_a_shutdown_during_a_model_call_hands_the_same_request_on(
    world: RunWorld, nursery: WorkerNursery
) -> None:
    """SPEC R2, S8: the call is made again by the next worker, byte for byte, and the Run never shows a stop."""
    world.model.add(replies.text("never read").but(hold="for ever"), "answered")
    place = place_of(world)
    async with nursery.kept(place) as first:
        run_id = await world.start()
        await world.model.wait_for_requests(1)
        first.send(signal.SIGTERM)
        run = await world.ended(run_id)
    assert (run["status"], run["answer"], run["stop_requested"]) == ("succeeded", "answered", False)
    bodies = [request.body for request in world.model.requests]
    assert bodies[0] == bodies[1]
    assert len(bodies) == 2
    [call] = await world.operations(run_id)
    assert [attempt["state"] for attempt in call["attempts"]][-1] == "succeeded"


async def test_a_tool_that_answered_before_the_shutdown_is_not_called_again(
    world: RunWorld, nursery: WorkerNursery, tmp_path: Path
) -> None:
    """SPEC T4, R3: the worker records what it holds before it ends."""
    trace, reached, gate = tmp_path / "trace", tmp_path / "reached", tmp_path / "gate"
    await world.publish(tools=[python_tool("book", "side_effect")])
    world.model.add(replies.calls(("book", {"key": "a", "trace": str(trace)})), "done")
    place = place_of(world)
    held = Fault("call_tool.answered", str(reached), kind="wait", gate=str(gate))
    async with nursery.kept(place, held) as first:
        run_id = await world.start()
        await until_exists(reached)
        first.send(signal.SIGTERM)
        gate.touch()
        run = await world.ended(run_id)
    assert (run["status"], traced(trace)) == ("succeeded", ["a"])
    results = [message["content"] for message in world.sent[1] if message["role"] == "tool"]
    assert results == ["booked a"]


@pytest.mark.parametrize("point", ["summarise_block.answered", "publish_snapshot.before_commit"])
async def test_a_shutdown_during_a_compaction_hands_it_on(
    world: RunWorld, nursery: WorkerNursery, tmp_path: Path, point: str
) -> None:
    """SPEC K7, S8, R2: in a block's call or between its commits; neither the Run nor the episode shows a stop."""
    reached, gate = tmp_path / "reached", tmp_path / "gate"
    await world.publish(**SMALL)
    world.model.add(*[answered] * 12)
    session = await world.open_session()
    held = Fault(point, str(reached), kind="wait", gate=str(gate))
    async with nursery.kept(place_of(world), held) as first:
        for _ in range(3):
            await world.ask(LONG, session)
        run_id = await world.start(LONG, session)
        await until_exists(reached)
        first.send(signal.SIGTERM)
        gate.touch()
        run = await world.ended(run_id)
    assert (run["status"], run["answer"], run["stop_requested"]) == ("succeeded", "Noted.", False)
    [episode] = await world.items(f"/runs/{run_id}/compactions")
    assert (episode["status"], episode["outcome"], episode["failure"]) == ("succeeded", "activated", None)
    assert PART.findall(world.model.requests[-1].body.decode()) == [str(BLOCKS)]
    blocks = [request.body for request in world.model.requests if is_block(request)]
    assert len(set(blocks)) == BLOCKS


async def test_a_shutdown_during_a_local_step_is_no_stop(
    world: RunWorld, nursery: WorkerNursery, tmp_path: Path
) -> None:
    """SPEC S8, W5: the commit is made once, by whoever comes next."""
    reached, gate = tmp_path / "reached", tmp_path / "gate"
    world.model.add("answered")
    held = Fault("prepare_request.before_commit", str(reached), kind="wait", gate=str(gate))
    async with nursery.kept(place_of(world), held) as first:
        run_id = await world.start()
        await until_exists(reached)
        first.send(signal.SIGTERM)
        gate.touch()
        run = await world.ended(run_id)
    assert (run["status"], run["answer"], run["stop_requested"]) == ("succeeded", "answered", False)
    assert len(world.model.requests) == 1


async def test_a_local_step_that_hangs_does_not_hold_up_a_shutdown(
    world: RunWorld, nursery: WorkerNursery, tmp_path: Path
) -> None:
    """SPEC S8, R1: the worker leaves, and the step is the next one's, as after a crash."""
    reached = tmp_path / "reached"
    world.model.add("answered")
    hanging = Fault("prepare_request.before_commit", str(reached), kind="wait", gate=str(tmp_path / "never"))
    async with nursery.worker(place_of(world), hanging) as first:
        run_id = await world.start()
        await until_exists(reached)
        first.send(signal.SIGTERM)
        await first.gone()
        async with nursery.worker(place_of(world)):
            run = await world.ended(run_id)
    assert (run["status"], run["answer"], run["stop_requested"]) == ("succeeded", "answered", False)
    assert len(world.model.requests) == 1

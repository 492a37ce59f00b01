"""What becomes of a tool whose process dies between its effect and the record of it (SPEC T4; case C084)."""

import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support import replies
from tests.support.child_worker import WorkerNursery, place_of
from tests.support.dev_stack import is_alive
from tests.support.faults import Fault
from tests.support.run_tools import traced
from tests.support.run_world import Json, RunWorld, python_tool

PLAIN_SERVER = Path(__file__).resolve().parents[1] / "support" / "plain_mcp_server.py"


async def run_with_a_kill(world: RunWorld, nursery: WorkerNursery, trace: Path, tools: list[Json], nth: int) -> Json:
    """A batch of these tools, the worker killed after the `nth` result was known and before it was recorded."""
    await world.publish(tools=tools, limits={"max_parallel_tools": 1})
    asked = [(tool["name"], {"key": f"k{n}", "trace": str(trace)}) for n, tool in enumerate(tools)]
    world.model.add(replies.calls(*asked), "done")
    reached = trace.with_name("reached")
    async with nursery.kept(place_of(world), Fault("call_tool.answered", str(reached), nth=nth)):
        run = await world.ask()
    assert reached.exists()
    assert (run["status"], len(world.model.requests)) == ("succeeded", 2)
    return run


def results_sent(world: RunWorld) -> list[str]:
    return [str(message["content"]) for message in world.sent[1] if message["role"] == "tool"]


async def test_a_side_effect_that_was_not_recorded_is_unknown_and_not_repeated(
    world: RunWorld, nursery: WorkerNursery, tmp_path: Path
) -> None:
    """SPEC T4: what may have happened is said to be unknown; the saved results before it are reused."""
    trace = tmp_path / "trace"
    tools = [python_tool("look"), python_tool("pay", "idempotent"), python_tool("book", "side_effect")]
    run = await run_with_a_kill(world, nursery, trace, tools, nth=3)
    assert [line.split()[0] for line in traced(trace)] == ["k0", "k1", "k2"]
    assert results_sent(world)[:2] == ["found k0", "paid k1"]
    assert results_sent(world)[2].startswith("Unknown")
    calls = [one for one in await world.operations(run["run_id"]) if one["purpose"] == "tool"]
    assert [(one["name"], one["state"]) for one in calls] == [
        ("look", "accepted"), ("pay", "accepted"), ("book", "unknown"),
    ]  # fmt: skip
    assert calls[2]["attempts"][-1]["error"]["reason"] == "interrupted"


@pytest.mark.parametrize(
    "tool",
    [
        pytest.param(python_tool("look"), id="read_only"),
        pytest.param(python_tool("book", "side_effect", retry_unknown=True), id="side_effect_that_may_be_repeated"),
    ],
)
async def test_what_may_be_repeated_is_repeated(
    world: RunWorld, nursery: WorkerNursery, tmp_path: Path, tool: Json
) -> None:
    """SPEC T4: a second try, and its result counts."""
    trace = tmp_path / "trace"
    await run_with_a_kill(world, nursery, trace, [tool], nth=1)
    assert traced(trace) == ["k0", "k0"]
    assert results_sent(world) in (["found k0"], ["booked k0"])


async def test_an_idempotent_tool_is_repeated_under_the_same_key(
    world: RunWorld, nursery: WorkerNursery, tmp_path: Path
) -> None:
    """SPEC T4: the tool can recognise the repeat by its key, which is the id of the Operation."""
    trace = tmp_path / "trace"
    run = await run_with_a_kill(world, nursery, trace, [python_tool("pay", "idempotent")], nth=1)
    first, second = traced(trace)
    assert first == second
    [tool] = [one for one in await world.operations(run["run_id"]) if one["purpose"] == "tool"]
    assert first.split()[1] == tool["operation_id"]
    assert [attempt["attempt_no"] for attempt in tool["attempts"]] == [1, 2]


async def test_only_the_rest_of_a_batch_runs_after_a_kill_and_the_order_stays(
    world: RunWorld, nursery: WorkerNursery, tmp_path: Path
) -> None:
    """SPEC R3; case C005: what was saved is not called again, whichever call it was."""
    trace, gate, reached = tmp_path / "trace", tmp_path / "gate", tmp_path / "reached"
    await world.publish(tools=[python_tool("wait_for", "idempotent"), python_tool("look")])
    slow = ("wait_for", {"path": str(gate), "trace": str(tmp_path / "slow")})
    world.model.add(replies.calls(slow, ("look", {"key": "b", "trace": str(trace)}), slow), "done")
    fault = Fault("record_tool_result.after_commit", str(reached))
    async with nursery.kept(place_of(world), fault):
        run_id = await world.start()
        await until_exists(reached)
        gate.touch()
        run = await world.ended(run_id)
    assert run["status"] == "succeeded"
    assert traced(trace) == ["b"]
    assert results_sent(world) == ["it is there", "found b", "it is there"]


async def test_a_stdio_server_dies_with_its_worker_and_the_next_worker_starts_another(
    world: RunWorld, nursery: WorkerNursery, tmp_path: Path
) -> None:
    """SPEC T4, R5: kill -9 while the server hangs in the call, which may be repeated."""
    trace = tmp_path / "trace"
    command = [sys.executable, "-I", "-S", str(PLAIN_SERVER), str(trace)]
    server = {"kind": "mcp", "name": "plain", "command": command, "effect": "read_only", "allow": ["hangs_once"]}
    await world.publish(tools=[server])
    world.model.add(replies.calls(("hangs_once", {"path": str(tmp_path / "hung")})), "done")
    async with nursery.kept(place_of(world)) as first:
        run_id = await world.start()
        await until_exists(tmp_path / "hung")
        await first.killed()
        [hung] = [int(line.split()[1]) for line in traced(trace) if line.startswith("hangs ")]
        async with asyncio.timeout(15):
            while is_alive(hung):
                await asyncio.sleep(0.01)
        run = await world.ended(run_id)
    assert (run["status"], results_sent(world)) == ("succeeded", ["hangs_once"])


@pytest.mark.timeout(150)
@pytest.mark.parametrize(
    ("effect", "words"),
    [pytest.param("read_only", "WorkerDied", id="beside_the_model"), pytest.param("idempotent", "Unknown", id="alone")],
)
async def test_a_call_that_takes_its_worker_along_is_given_up(
    world: RunWorld, nursery: WorkerNursery, tmp_path: Path, full_matrix: bool, effect: str, words: str
) -> None:
    """SPEC T9, L2: after a few tries the model learns of it, and the calls beside it have their results."""
    if not full_matrix:
        pytest.skip("half a minute of dying workers: --full-matrix")
    trace, beside = tmp_path / "trace", tmp_path / "beside"
    await world.publish(tools=[python_tool("die", effect), python_tool("look")])
    before, after = (("look", {"key": key, "trace": str(beside)}) for key in ("b", "a"))
    world.model.add(replies.calls(before, ("die", {"key": "k", "trace": str(trace)}), after), "done")
    async with nursery.kept(place_of(world)):
        run = await world.over(await world.start())
    assert run["status"] == "succeeded"
    first, died, last = results_sent(world)
    assert (first, last) == ("found b", "found a")
    assert words in died
    assert len(traced(trace)) in (5, 6)


async def test_a_harmless_call_that_ends_its_worker_holds_up_no_workflow_task(
    world: RunWorld, nursery: WorkerNursery, tmp_path: Path
) -> None:
    """SPEC R6, T9: it is made beside the workflow once; Temporal waits longer for each further loss of one task."""
    await world.publish(tools=[python_tool("die"), python_tool("pay", "idempotent")])
    trace = str(tmp_path / "trace")
    world.model.add(replies.calls(("die", {"key": "d", "trace": trace}), ("pay", {"key": "p", "trace": trace})), "done")
    async with nursery.kept(place_of(world)):
        run_id = await world.start()
        run = await world.over(run_id)
    assert run["status"] == "succeeded"
    assert traced(tmp_path / "trace").count("d") == 5
    events = [event async for event in world.workflow(run_id).fetch_history_events()]
    assert max(event.workflow_task_scheduled_event_attributes.attempt for event in events) <= 3


async def test_a_worker_that_dies_again_and_again_serves_other_runs_and_ends_its_own_at_the_deadline(
    world: RunWorld, nursery: WorkerNursery, tmp_path: Path
) -> None:
    """SPEC R6, S2: at a start that took long, the deadly call and everything else wait for the worker at once."""
    trace = tmp_path / "trace"
    deadly = ("die", {"key": "k", "trace": str(trace)})
    limits = {"deadline_s": 14, "max_parallel_tools": 1}
    await world.publish("deadly", tools=[python_tool("die", "idempotent")], limits=limits)
    session, other = await world.open_session("deadly"), await world.open_session()
    world.model.add(replies.calls(deadly, deadly, deadly), "hello")
    async with nursery.kept(place_of(world), starting_s=3):
        run_id = await world.start(session=session)
        await until_noted(trace, 1)
        first_death = datetime.now(UTC)
        await until_noted(trace, 2)
        assert (await world.ask(session=other))["answer"] == "hello"
        assert len(traced(trace)) < 5
        assert (await world.get(f"/runs/{run_id}"))["ended_at"] is None
        run = await world.over(run_id)
    assert (run["status"], run["end_reason"]) == ("timed_out", "deadline")
    assert (datetime.fromisoformat(run["ended_at"]) - first_death).total_seconds() < 14 + 6


async def until_noted(trace: Path, lines: int) -> None:
    async with asyncio.timeout(30):
        while len(traced(trace)) < lines:
            await asyncio.sleep(0.01)


async def until_exists(path: Path) -> None:
    async with asyncio.timeout(20):
        while not path.exists():
            await asyncio.sleep(0.01)

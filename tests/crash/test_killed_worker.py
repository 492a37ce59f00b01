"""kill -9 of the worker at each boundary between doing and recording (SPEC R1-R3, R6, R7).

The Run has two model calls and a batch of two tools. The model outlives the worker; the tools leave a line per call.
"""

from collections import Counter
from pathlib import Path

import pytest

from tests.support import replies
from tests.support.child_worker import WorkerNursery, WorkerPlace
from tests.support.faults import Counts, Fault
from tests.support.run_tools import traced
from tests.support.run_world import RunWorld, python_tool

BATCHES = {
    "with_the_next_request": ["look"],
    "beside_the_workflow": ["look", "look"],
    "with_a_row_of_its_own": ["look", "pay"],
}
"""Harmless tools run with the model call, an only one's result is stored with the request that carries it; a batch with
another tool has a row in Temporal for each call."""

PAST = {"look": "found", "pay": "paid"}
ONLY_CALL_UNRECORDED = [("call_tool.answered", 1), ("prepare_request.before_commit", 2)]
"""Boundaries between the only call and the commit that holds its result."""

ONCE, TWICE = (1,), (1, 2)
COMMITS = {
    "open_run": ONCE,
    "prepare_request": TWICE,
    "take_up_request": TWICE,
    "record_first_output": ONCE,
    "accept_model": TWICE,
    "record_tool_result": TWICE,
    "finish_run": ONCE,
}
PASSED = {
    "with_the_next_request": {name: passes for name, passes in COMMITS.items() if name != "record_tool_result"},
    "beside_the_workflow": COMMITS,
    "with_a_row_of_its_own": COMMITS | {"begin_attempt": TWICE},
}
"""How often each commit of the Run is made, by batch."""

SAMPLE = [
    ("with_the_next_request", "call_tool.answered", 1),
    ("with_the_next_request", "prepare_request.before_commit", 2),
    ("with_the_next_request", "prepare_request.after_commit", 2),
    ("beside_the_workflow", "open_run.after_commit", 1),
    ("beside_the_workflow", "prepare_request.after_commit", 2),
    ("beside_the_workflow", "call_model.answered", 1),
    ("beside_the_workflow", "accept_model.after_commit", 1),
    ("beside_the_workflow", "record_tool_result.after_commit", 1),
    ("with_a_row_of_its_own", "prepare_request.before_commit", 1),
    ("with_a_row_of_its_own", "begin_attempt.after_commit", 2),
    ("with_a_row_of_its_own", "call_tool.answered", 1),
    ("with_a_row_of_its_own", "accept_model.before_commit", 2),
    ("with_a_row_of_its_own", "finish_run.before_commit", 1),
]
"""Batch, point and pass: one kill for each kind of boundary."""


def boundaries(batch: str) -> dict[str, tuple[int, ...]]:
    """Every point of the Run, with its passes."""
    sides = {f"{commit}.{side}_commit": n for commit, n in PASSED[batch].items() for side in ("before", "after")}
    return sides | {"call_model.answered": TWICE, "call_tool.answered": TWICE if len(BATCHES[batch]) > 1 else ONCE}


MATRIX = [(batch, point, n) for batch in BATCHES for point, passes in boundaries(batch).items() for n in passes]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every boundary with --full-matrix, a sample of each kind without."""
    if "point" in metafunc.fixturenames:
        full = metafunc.config.getoption("--full-matrix")
        metafunc.parametrize(("batch", "point", "nth"), MATRIX if full else SAMPLE)


async def script(world: RunWorld, batch: str, trace: Path) -> None:
    """Publish the agent and script its model by what a request holds, so that a repeat gets the same answer."""
    names = BATCHES[batch]
    await world.publish(tools=["look", python_tool("pay", "idempotent")])
    asked = [(name, {"key": key, "trace": str(trace)}) for name, key in zip(names, "ab", strict=False)]
    first, last = replies.calls(*asked), replies.text("done")
    world.model.add(*[lambda request: last if b'"tool"' in request.body else first] * 6)


async def test_a_worker_killed_at_any_boundary_loses_and_doubles_nothing(
    world: RunWorld, nursery: WorkerNursery, place: WorkerPlace, tmp_path: Path, batch: str, point: str, nth: int
) -> None:
    """SPEC R1-R3: the Run ends right, what was recorded is not called again, and nothing waits for the dead worker."""
    trace, reached = tmp_path / "trace", tmp_path / "reached"
    await script(world, batch, trace)
    async with nursery.kept(place, Fault(point, str(reached), nth=nth)):
        run = await world.ask()
    assert reached.exists(), f"{point} was never passed {nth} times"
    assert (run["status"], run["answer"], run["loops"]) == ("succeeded", "done", 2)
    assert_models_were_asked_again_only_where_nothing_was_recorded(world, point)
    assert_tools_were_called_again_only_where_nothing_was_recorded(traced(trace), batch, point, nth)
    await assert_the_record_is_whole(world, run["session_id"], run["run_id"], BATCHES[batch])
    assert await world.tasks_in_vain(f"run/{run['run_id']}") == []


@pytest.mark.parametrize("batch", BATCHES)
async def test_the_matrix_holds_every_boundary_of_the_run(world: RunWorld, tmp_path: Path, batch: str) -> None:
    """SPEC R7: a commit that is added to the Run must be added here."""
    await script(world, batch, tmp_path / "trace")
    counts = Counts()
    async with world.worker(counts):
        await world.ask()
    passed = {point: tuple(range(1, n + 1)) for point, n in counts.passed.items() if not point.startswith("claim_")}
    assert passed == boundaries(batch)


def assert_models_were_asked_again_only_where_nothing_was_recorded(world: RunWorld, point: str) -> None:
    unrecorded = point.startswith("record_first_output") or point in (
        "call_model.answered",
        "accept_model.before_commit",
    )
    bodies = [request.body for request in world.model.requests]
    assert len(bodies) == 2 + unrecorded
    assert len(set(bodies)) == 2, "an unfinished call is made again with the same request"


def assert_tools_were_called_again_only_where_nothing_was_recorded(
    trace: list[str], batch: str, point: str, nth: int
) -> None:
    calls = Counter(line[0] for line in trace)
    assert sorted(calls) == list("ab"[: len(BATCHES[batch])])
    if batch == "with_the_next_request":
        assert calls == {"a": 1 + ((point, nth) in ONLY_CALL_UNRECORDED)}
    elif point.startswith(("begin_attempt", "call_tool", "record_tool_result")):
        # The two run side by side, so before this point neither need be recorded. What was is not called again.
        recorded = nth if point == "record_tool_result.after_commit" else 0
        assert sum(n == 1 for n in calls.values()) >= recorded
        assert max(calls.values()) <= 2
    else:
        assert set(calls.values()) == {1}
    assert len({line for line in trace if line.startswith("b")}) <= 1, "an idempotent tool gets the same key"


async def assert_the_record_is_whole(world: RunWorld, session: str, run_id: str, tools: list[str]) -> None:
    messages = await world.messages(session)
    results = [f"{PAST[name]} {key}" for name, key in zip(tools, "ab", strict=False)]
    assert [m["message"]["role"] for m in messages] == ["user", "assistant", *["tool" for _ in tools], "assistant"]
    assert [m["message"]["content"] for m in messages[2:-1]] == results
    operations = await world.operations(run_id)
    assert [(one["purpose"], one["state"]) for one in operations] == [
        ("business", "accepted"),
        *[("tool", "accepted") for _ in tools],
        ("business", "accepted"),
    ]
    events = [event["type"] for event in await world.events(run_id)]
    once = ["run_started", "tools_started", "tools_finished", "run_ended"]
    assert [event for event in events if event in once] == once
    assert events.count("context_build") == 2

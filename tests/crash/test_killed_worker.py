"""kill -9 of the worker at each boundary between doing and recording (SPEC R1-R3, R6, R7).

The Run has two model calls and a batch of two tools. The model is in another process; the tools leave a line per call.
"""

from pathlib import Path

import pytest

from tests.support import replies
from tests.support.child_worker import WorkerNursery, WorkerPlace
from tests.support.faults import Fault
from tests.support.run_tools import traced
from tests.support.run_world import RunWorld, python_tool

SAMPLE = [
    ("open_run.after_commit", 1),
    ("prepare_request.before_commit", 1),
    ("begin_attempt.after_commit", 2),
    ("call_model.answered", 1),
    ("accept_model.before_commit", 2),
    ("accept_model.after_commit", 1),
    ("call_tool.answered", 1),
    ("record_tool_result.after_commit", 1),
    ("finish_run.before_commit", 1),
]
"""Point and pass: one kill for each kind of boundary."""

PASSES = {
    "open_run": (1,),
    "prepare_request": (1, 2),
    "begin_attempt": (1, 2, 3, 4),
    "accept_model": (1, 2),
    "record_tool_result": (1, 2),
    "finish_run": (1,),
}
MATRIX = [
    *(
        (f"{commit}.{side}", n)
        for commit, ns in PASSES.items()
        for n in ns
        for side in ("before_commit", "after_commit")
    ),
    *((point, n) for point in ("call_model.answered", "call_tool.answered") for n in (1, 2)),
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every boundary with --full-matrix, a sample of each kind without."""
    if "point" in metafunc.fixturenames:
        full = metafunc.config.getoption("--full-matrix")
        metafunc.parametrize(("point", "nth"), MATRIX if full else SAMPLE)


async def test_a_worker_killed_at_any_boundary_loses_and_doubles_nothing(
    world: RunWorld, nursery: WorkerNursery, place: WorkerPlace, tmp_path: Path, point: str, nth: int
) -> None:
    """SPEC R2, R3: the Run ends right, and what was recorded is not called again."""
    trace, reached = tmp_path / "trace", tmp_path / "reached"
    await world.publish(tools=["look", python_tool("pay", "idempotent")])
    asked = [("look", {"key": "a", "trace": str(trace)}), ("pay", {"key": "b", "trace": str(trace)})]
    answers = {0: replies.calls(*asked), 2: replies.text("done")}
    # The answer depends on the request alone, so that a repeated call gets the same answer.
    world.model.add(*[lambda request: answers[2 if b'"tool"' in request.body else 0]] * 6)
    async with nursery.kept(place, Fault(point, str(reached), nth=nth)):
        run = await world.ask()
    assert reached.exists(), f"{point} was never passed {nth} times"
    assert (run["status"], run["answer"], run["loops"]) == ("succeeded", "done", 2)
    assert_calls_were_repeated_only_where_nothing_was_recorded(world, traced(trace), point, nth)
    await assert_the_record_is_whole(world, run["session_id"], run["run_id"])


def assert_calls_were_repeated_only_where_nothing_was_recorded(
    world: RunWorld, trace: list[str], point: str, nth: int
) -> None:
    before_the_record = point in ("call_model.answered", "accept_model.before_commit")
    assert len(world.model.requests) == 2 + before_the_record
    bodies = [request.body for request in world.model.requests]
    assert len(set(bodies)) == 2, "an unfinished call is made again with the same request"
    unrecorded_tools = point in ("call_tool.answered", "record_tool_result.before_commit")
    # Both tools may have been called when the worker died, but neither more than twice.
    assert 2 <= len(trace) <= 2 + 2 * unrecorded_tools
    assert len({line for line in trace if line.startswith("b ")}) == 1, "an idempotent tool gets the same key"


async def assert_the_record_is_whole(world: RunWorld, session: str, run_id: str) -> None:
    messages = await world.messages(session)
    assert [m["message"]["role"] for m in messages] == ["user", "assistant", "tool", "tool", "assistant"]
    assert [m["message"]["content"] for m in messages[2:4]] == ["found a", "paid b"]
    operations = await world.operations(run_id)
    assert [(one["purpose"], one["state"]) for one in operations] == [
        ("business", "accepted"),
        ("tool", "accepted"),
        ("tool", "accepted"),
        ("business", "accepted"),
    ]
    events = [event["type"] for event in await world.events(run_id)]
    assert (
        events
        == [
            *("run_started", "context_build", "tools_started", "tools_finished", "context_build", "run_ended"),
        ]
        or "input_accepted" in events
    )

"""How earlier Runs appear in a later one."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context.history import (
    ENDS,
    Fact,
    Own,
    PastCall,
    PastInput,
    PastRecord,
    PastRun,
    Stored,
    end_marker,
    last_of,
    placeholder,
    project,
)
from tests.support.builders import uid

STATES = ["prepared", "calling", "cancelled", "unknown", "accepted"]


def payload(*path: str | int) -> bytes:
    return uid("payload", *path).bytes


def past_input(run_no: int, n: int, *, delivered: bool = True) -> PastInput:
    return PastInput(uid("input", run_no, n), payload("input", run_no, n), delivered)


def user_record(one: PastInput) -> PastRecord:
    return PastRecord(uid("record", str(one.input_id)), "user_ref", one.payload_id, input_id=one.input_id)


def past_run(run_no: int, status: str = "succeeded", *, records: tuple[PastRecord, ...] | None = None) -> PastRun:
    one = past_input(run_no, 0)
    answer = PastRecord(uid("answer", run_no), "assistant", payload("answer", run_no))
    own = (user_record(one), answer) if status == "succeeded" else (user_record(one),)
    said = (answer.record_id, answer.payload_id) if status == "succeeded" else None
    return PastRun(run_no, status, (one,), said, own if records is None else records)


def shown(facts: tuple[Fact, ...]) -> list[tuple[str, int]]:
    """Kind and Run of each fact."""
    return [(fact.kind, fact.run_no) for fact in facts]


def test_success_failure_and_stop_with_two_whole_runs() -> None:
    """SPEC P1: ended means ended: the older success is an outline, no failure is skipped for it."""
    runs = [past_run(1), past_run(2, "failed"), past_run(3, "stopped")]
    assert shown(project(runs, recent=2, shown_elsewhere=frozenset())) == [
        *[("input", 1), ("assistant", 1), ("marker", 1)],
        *[("input", 2), ("marker", 2)],
        *[("input", 3), ("marker", 3)],
    ]


def test_an_older_run_shows_inputs_and_result_and_nothing_between() -> None:
    """SPEC P1: tool calls and results of an older Run are left out."""
    calls = (PastCall(uid("op"), "c0", "t", "accepted", payload("result")),)
    asked = PastRecord(uid("asked"), "assistant", payload("asked"), calls=calls)
    run = past_run(1, records=(user_record(past_input(1, 0)), asked))
    assert shown(project([run], recent=0, shown_elsewhere=frozenset())) == [
        *[("input", 1), ("assistant", 1), ("marker", 1)]
    ]


@pytest.mark.parametrize("state", STATES)
def test_a_call_without_a_result_gets_a_placeholder_that_is_no_success(state: str) -> None:
    """SPEC A4."""
    call = PastCall(uid("op"), "c0", "t", state, None)
    message = placeholder(call, "failed")
    assert message.tool_call_id == "c0"
    assert message.status in ("not_executed", "stopped", "unknown")
    assert (message.content or "").startswith(("Not executed", "Stopped", "Unknown"))


@pytest.mark.parametrize(
    ("run_status", "says", "status"),
    [
        ("stopped", "Stopped: the run was stopped before this call had a result.", "stopped"),
        ("timed_out", "Stopped: the run ran out of time before this call had a result.", "stopped"),
        ("failed", "Stopped: the run failed before this call had a result.", "stopped"),
        ("exhausted", "Not executed: the run reached a limit before this call was made.", "not_executed"),
    ],
)
def test_a_call_without_a_result_says_why(run_status: str, says: str, status: str) -> None:
    """SPEC A4, case C010: a limit is no stop, and a harmless call that had begun is not said to be not executed."""
    message = placeholder(PastCall(uid("op"), "c0", "t", "cancelled", None), run_status)
    assert (message.content, message.status) == (says, status)


@pytest.mark.parametrize(
    ("run_status", "says"),
    [
        ("stopped", "Not executed: the run was stopped before this call was made."),
        ("timed_out", "Not executed: the run ran out of time before this call was made."),
        ("failed", "Not executed: the run failed before this call was made."),
        ("exhausted", "Not executed: the run reached a limit before this call was made."),
    ],
)
def test_a_call_that_could_do_harm_is_said_to_be_not_executed_where_that_is_known(run_status: str, says: str) -> None:
    """SPEC A4, T4: a try at it is written down first; begun before a resume, it may have had its effect."""
    harmful = PastCall(uid("op"), "c0", "t", "cancelled", None, effect="side_effect")
    message = placeholder(harmful, run_status)
    assert (message.content, message.status) == (says, "not_executed")
    assert placeholder(replace(harmful, begun=True), run_status).status == "unknown"


def test_a_result_that_no_request_carried_is_shown_as_it_is() -> None:
    """SPEC A4, P5: stored but never delivered, since the Run ended first."""
    calls = tuple(
        PastCall(uid("op", n), f"c{n}", "t", state, result)
        for n, (state, result) in enumerate([("accepted", payload("r")), ("prepared", None)])
    )
    asked = PastRecord(uid("asked"), "assistant", payload("asked"), calls=calls)
    facts = project([past_run(1, "stopped", records=(asked,))], recent=1, shown_elsewhere=frozenset())
    assert shown(facts)[:3] == [("assistant", 1), ("tool_result", 1), ("placeholder", 1)]


def test_an_incomplete_answer_is_no_message_of_the_history() -> None:
    """SPEC A5."""
    cut = PastRecord(uid("cut"), "fragment", payload("cut"))
    facts = project([past_run(1, "failed", records=(cut,))], recent=1, shown_elsewhere=frozenset())
    assert shown(facts) == [("input", 1), ("marker", 1)]


def test_an_input_of_the_current_run_stands_there_alone() -> None:
    """SPEC P3: a carried supplement is not shown where it was received."""
    carried = past_input(1, 1, delivered=False)
    run = PastRun(1, "failed", (past_input(1, 0), carried), None, ())
    for recent in (0, 1):
        facts = project([run], recent=recent, shown_elsewhere=frozenset({carried.input_id}))
        assert carried.input_id not in [fact.source_id for fact in facts]


def test_an_input_received_in_one_run_and_delivered_in_another_stands_where_it_was_delivered() -> None:
    """SPEC P3."""
    late = past_input(1, 1, delivered=False)
    again = PastInput(late.input_id, late.payload_id, True)
    first = PastRun(1, "failed", (past_input(1, 0), late), None, ())
    second = PastRun(2, "failed", (again, past_input(2, 0)), None, ())
    facts = project([first, second], recent=0, shown_elsewhere=frozenset())
    assert [fact.run_no for fact in facts if fact.source_id == late.input_id] == [2]


@pytest.mark.parametrize("status", list(ENDS))
def test_each_end_is_told_and_none_is_made_up(status: str) -> None:
    """SPEC P1: an explicit 'without a result'."""
    told = end_marker(past_run(4, status)).content or ""
    assert "4" in told
    assert ENDS[status] in told
    assert ("without a final result" in told) == (status != "succeeded")


@st.composite
def lives(draw: st.DrawFn) -> list[PastRun]:
    """Runs with inputs that may be received in one and delivered in a later one."""
    runs: list[PastRun] = []
    waiting: list[PastInput] = []
    for run_no in range(1, draw(st.integers(1, 6)) + 1):
        taken = [PastInput(one.input_id, one.payload_id, draw(st.booleans())) for one in waiting]
        own = [past_input(run_no, n, delivered=draw(st.booleans())) for n in range(draw(st.integers(1, 3)))]
        inputs = tuple(taken + own)
        recorded = tuple(user_record(one) for one in inputs if draw(st.booleans()) or one.delivered)
        runs.append(PastRun(run_no, draw(st.sampled_from(list(ENDS))), inputs, None, recorded))
        waiting = [one for one in inputs if not one.delivered]
    return runs


@given(lives(), st.integers(0, 7), st.data())
def test_each_input_of_the_session_appears_exactly_once(runs: list[PastRun], recent: int, data: st.DataObject) -> None:
    """SPEC P1, P3, S11: in all shapes of history, each fact once, Runs in order."""
    every = {one.input_id for run in runs for one in run.inputs}
    current = frozenset(data.draw(st.sets(st.sampled_from(sorted(every, key=str)))))
    facts = project(runs, recent=min(recent, len(runs)), shown_elsewhere=current)
    told = [fact.source_id for fact in facts if isinstance(fact, Stored) and fact.kind == "input"]
    assert sorted(told, key=str) == sorted(every - current, key=str)
    assert [fact.run_no for fact in facts] == sorted(fact.run_no for fact in facts)
    assert sum(isinstance(fact, Own) and fact.kind == "marker" for fact in facts) == len(runs)


@given(count=st.integers(0, 12), recent=st.integers(0, 20))
def test_the_last_runs_are_whole_and_all_while_there_are_no_more(count: int, recent: int) -> None:
    """SPEC P1: whatever N is and however many Runs have ended."""
    runs = list(range(1, count + 1))
    assert list(last_of(runs, recent)) == [run for run in runs if run > count - recent]

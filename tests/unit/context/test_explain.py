"""Why a piece was or was not in a request, and what two requests have in common."""

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context.explain import (
    DiffLine,
    ExplainedBlock,
    ExplainedRequest,
    Explanation,
    Included,
    LeftOutByRule,
    LeftOutForBudget,
    NotYetArrived,
    ReplacedBySummary,
    Subject,
    Withheld,
    common_prefix,
    diff,
    explain,
    explain_block,
)
from context.material import Material, piece_of
from context.snapshots import cover, summary_item
from context.views import ItemKind, ViewItem

CONTEXT, OTHER, SNAPSHOT = UUID(int=1), UUID(int=2), UUID(int=50)
SYSTEM = ViewItem("system", b"sys", 5)


def item(number: int, kind: ItemKind = "assistant", run_no: int | None = None) -> ViewItem:
    return ViewItem(kind, b"p%d" % number, 5, UUID(int=number), run_no)


def record(number: int, **fields: object) -> Subject:
    subject = Subject(f"record/{UUID(int=number)}", run_no=3, context_id=CONTEXT, context_seq=number)
    return replace(subject, **fields)  # type: ignore[arg-type]


def question(number: int, **fields: object) -> Subject:
    return replace(Subject(f"input/{UUID(int=number)}", run_no=3, input_seq=number), **fields)  # type: ignore[arg-type]


COVERED = cover([Material(item(11, run_no=3), b"d", 3)], {}).names
REQUEST = ExplainedRequest(
    items=[
        SYSTEM,
        summary_item(SNAPSHOT, b"s", 9),
        item(12, "input"),
        item(13),
        replace(item(14), transform="tool_result_pruned"),
    ],
    run_no=3,
    context_id=CONTEXT,
    cutoff=20,
    watermark=30,
    snapshots={SNAPSHOT: COVERED},
    omitted=frozenset({f"record/{UUID(int=15)}"}),
    recent_from=2,
)


@pytest.mark.parametrize(
    ("subject", "explanation"),
    [
        (record(13), Included(3, None)),
        (record(14), Included(4, "tool_result_pruned")),
        (question(12), Included(2, None)),
        (record(11), ReplacedBySummary(SNAPSHOT, 1)),
        (record(31), NotYetArrived(30)),
        (question(21), NotYetArrived(20)),
        (record(16, withheld_by="guard"), Withheld("guard")),
        (record(15), LeftOutForBudget()),
        (record(16, same_session=False), LeftOutByRule("other_session")),
        (record(16, context_id=OTHER, is_private=True), LeftOutByRule("private_to_executor")),
        (record(16, context_id=OTHER, run_no=4), LeftOutByRule("later_run")),
        (record(16, is_fragment=True), LeftOutByRule("incomplete_answer")),
        (record(16, context_id=OTHER, run_no=1), LeftOutByRule("older_run_outline")),
        (question(17), LeftOutByRule("shown_elsewhere")),
        (question(17, is_withdrawn=True), LeftOutByRule("withdrawn")),
        (record(16), LeftOutByRule("not_in_history")),
    ],
)
def test_every_piece_has_one_of_six_explanations(subject: Subject, explanation: Explanation) -> None:
    """SPEC A10."""
    assert explain(subject, REQUEST) == explanation


FOLDED, SO_FAR = UUID(int=60), UUID(int=61)
BLOCK = ExplainedBlock(
    shown={f"record/{UUID(int=13)}": True, f"record/{UUID(int=14)}": False},
    before={f"record/{UUID(int=12)}", f"record/{UUID(int=14)}"},
    later={f"record/{UUID(int=15)}", f"record/{UUID(int=14)}"},
    summary=SO_FAR,
    position=1,
    folds=FOLDED,
    folded={f"record/{UUID(int=11)}"},
)


@pytest.mark.parametrize(
    ("subject", "explanation"),
    [
        (record(13), Included(1, None)),
        (record(14), Included(1, "fragment")),
        (record(12), ReplacedBySummary(SO_FAR, 1)),
        (record(11), ReplacedBySummary(FOLDED, 1)),
        (record(15), LeftOutByRule("later_block")),
        (record(16), LeftOutByRule("not_summarised")),
        (question(17), LeftOutByRule("not_summarised")),
        (question(17, is_withdrawn=True), LeftOutByRule("withdrawn")),
        (record(16, same_session=False), LeftOutByRule("other_session")),
        (record(31), NotYetArrived(30)),
        (question(21), NotYetArrived(20)),
    ],
)
def test_every_piece_is_explained_in_a_call_of_a_compaction_too(subject: Subject, explanation: Explanation) -> None:
    """SPEC A10: by its block, not by the messages of the call, which are prompts and one message of data."""
    assert explain_block(subject, BLOCK, replace(REQUEST, items=())) == explanation


def test_what_the_first_block_does_not_carry_on_is_not_in_it() -> None:
    """SPEC A10, K5: an earlier summary that is material of a later block stands for nothing in this one."""
    assert explain_block(record(11), replace(BLOCK, folds=None), REQUEST) == LeftOutByRule("not_summarised")


def test_a_record_of_another_context_is_not_measured_by_this_ones_watermark() -> None:
    """SPEC A10: places of different contexts say nothing about each other."""
    assert explain(record(99, context_id=OTHER, run_no=2), REQUEST) == LeftOutByRule("not_in_history")


def test_what_is_in_the_request_is_said_first() -> None:
    """SPEC A10: the record of a denied result is shown with the denial."""
    assert explain(record(13, withheld_by="guard"), REQUEST) == Included(3, None)


# --- diff ------------------------------------------------------------------------------------------------------------


def test_the_next_request_of_a_run_only_adds() -> None:
    """SPEC A7, A10."""
    left, right = [SYSTEM, item(1, "input")], [SYSTEM, item(1, "input"), item(2)]
    assert [line.change for line in diff(left, right)] == ["same", "same", "added"]
    assert common_prefix(left, right) == 2


def test_after_a_compaction_what_is_gone_is_said_to_be_summarised() -> None:
    """SPEC A10."""
    left = [SYSTEM, item(11, run_no=3), item(17), item(12, "input")]
    right = [SYSTEM, summary_item(SNAPSHOT, b"s", 9), item(12, "input")]
    assert diff(left, right, snapshots={SNAPSHOT: COVERED}) == (
        DiffLine("system", "same", 0, 0),
        DiffLine(f"summary/{SNAPSHOT}", "added", None, 1),
        DiffLine(f"record/{UUID(int=11)}", "summarised", 1, None),
        DiffLine(f"record/{UUID(int=17)}", "removed", 2, None),
        DiffLine(f"input/{UUID(int=12)}", "same", 3, 2),
    )
    assert common_prefix(left, right) == 1


def test_another_version_of_a_piece_is_a_change_and_not_two() -> None:
    """SPEC A10."""
    pruned = replace(item(1, "tool_result"), payload_id=b"short", transform="tool_result_pruned")
    assert diff([item(1, "tool_result")], [pruned]) == (DiffLine(f"record/{UUID(int=1)}", "changed", 0, 0),)
    assert common_prefix([item(1)], [pruned]) == 0


def test_one_piece_that_moved_leaves_the_others_where_they_are() -> None:
    """SPEC A10."""
    a, b, c, d = item(1), item(2), item(3), item(4)
    assert [line.change for line in diff([a, b, c, d], [d, a, b, c])] == ["moved", "same", "same", "same"]


def test_a_piece_that_stands_twice_is_compared_with_its_own_kind() -> None:
    """SPEC A10: a broken request can be looked at too."""
    lines = diff([item(1)], [item(1), item(1)])
    assert [(line.change, line.piece.endswith("#2")) for line in lines] == [("same", False), ("added", True)]


requests = st.lists(st.integers(1, 12), unique=True, max_size=12).map(
    lambda numbers: [item(number) for number in numbers]
)


def test_what_a_resume_brought_to_an_earlier_run_had_not_arrived() -> None:
    """SPEC A10, S9: its place in the Session is behind all that the Run's history knew."""
    asked = replace(REQUEST, observed=40)
    late = record(60, run_no=2, context_id=OTHER, session_seq=41)
    assert explain(late, asked) == NotYetArrived(40)
    assert explain(replace(late, session_seq=40), asked) == LeftOutByRule("not_in_history")
    assert explain(replace(late, run_no=4), asked) == LeftOutByRule("later_run")


@given(requests, requests)
def test_a_diff_accounts_for_every_item_of_both(left: list[ViewItem], right: list[ViewItem]) -> None:
    """SPEC A10."""
    lines = diff(left, right)
    assert [line.right for line in lines if line.right is not None] == list(range(len(right)))
    assert sorted(line.left for line in lines if line.left is not None) == list(range(len(left)))
    assert all((line.left is None) == (line.change == "added") for line in lines)
    assert all((line.right is None) == (line.change in ("removed", "summarised")) for line in lines)


@given(requests)
def test_a_request_compared_with_itself_is_the_same_throughout(request: list[ViewItem]) -> None:
    """SPEC A10."""
    assert {line.change for line in diff(request, request)} <= {"same"}
    assert common_prefix(request, request) == len(request)


@given(requests, requests)
def test_every_piece_of_the_right_one_is_named(left: list[ViewItem], right: list[ViewItem]) -> None:
    """SPEC A10."""
    shown = [line.piece for line in diff(left, right) if line.right is not None]
    assert shown == [piece_of(one) for one in right]

"""What a summary covers, and when it may stand for that."""

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context.compaction import NotSmaller, Shrinks
from context.material import Material
from context.snapshots import (
    Applies,
    Candidate,
    Coverage,
    Outdated,
    Publish,
    SourceRange,
    StoreOnly,
    SummaryChains,
    Version,
    check,
    cover,
    doubled,
    extended,
    extent_of,
    publication,
    reusable,
    summary_item,
)
from context.views import ItemKind, ViewItem

HERE, THERE = UUID(int=100), UUID(int=200)
SMALLER = Shrinks(reaches_target=True, under_trigger=True)
kinds: st.SearchStrategy[ItemKind] = st.sampled_from(["assistant", "tool_result", "feedback", "placeholder"])


def record(number: int, *, context: UUID = HERE, run_no: int = 1, kind: ItemKind = "assistant") -> Material:
    item = ViewItem(kind, b"p%d" % number, 10, UUID(int=number), run_no=run_no)
    return Material(item, b"d%d" % number, run_no, context, number)


def versions(coverage: Coverage) -> dict[str, Version]:
    return {covered.piece: covered.version for covered in coverage.pieces}


def test_coverage_is_exact_and_leaves_out_what_stands_between() -> None:
    """SPEC K10: a protected input at 3 is in no range."""
    coverage = cover([record(number) for number in (1, 2, 4, 5, 9)], {HERE: 17, THERE: 3})
    assert coverage.ranges == (SourceRange(HERE, 1, 2), SourceRange(HERE, 4, 5), SourceRange(HERE, 9, 9))
    assert coverage.revisions == {HERE: 17}


def test_ranges_are_kept_per_context() -> None:
    """SPEC K10: one number says nothing without its context."""
    coverage = cover([record(1, context=THERE), record(2, context=HERE)], {HERE: 5, THERE: 6})
    assert coverage.ranges == (SourceRange(THERE, 1, 1), SourceRange(HERE, 2, 2))
    assert coverage.revisions == {HERE: 5, THERE: 6}


def test_replaced_inputs_and_ends_of_runs_are_covered_by_name() -> None:
    """SPEC K10: inputs replaced."""
    earlier = Material(ViewItem("input", b"q", 5, UUID(int=8), run_no=1), b"dq", 1)
    end = Material(ViewItem("marker", b"m", 5, run_no=1), b"dm", 1)
    coverage = cover([earlier, end], {})
    assert coverage.names == {f"input/{UUID(int=8)}", "end/1"}
    assert coverage.ranges == ()
    assert coverage.runs == {1}


@pytest.mark.parametrize(
    "item",
    [
        ViewItem("input", b"q", 5, UUID(int=8)),
        ViewItem("system", b"q", 5),
        ViewItem("summary", b"q", 5, UUID(int=8)),
        ViewItem("state", b"q", 5, UUID(int=8)),
    ],
)
def test_what_is_no_history_is_never_covered(item: ViewItem) -> None:
    """SPEC K5: never the current protected inputs."""
    with pytest.raises(ValueError, match="can't stand for"):
        cover([Material(item, b"d", 1)], {})


def test_nothing_is_covered_twice() -> None:
    """SPEC K10."""
    with pytest.raises(ValueError, match="twice"):
        cover([record(1), record(1)], {})


materials = st.lists(st.tuples(st.integers(1, 40), kinds), min_size=1, unique_by=lambda one: one[0]).map(
    lambda rows: [record(number, kind=kind) for number, kind in sorted(rows, key=lambda row: row[0])]
)


@given(materials)
def test_ranges_hold_exactly_the_covered_records(covered: list[Material]) -> None:
    """SPEC K10."""
    coverage = cover(covered, {HERE: 1})
    from_ranges = {seq for one in coverage.ranges for seq in range(one.from_seq, one.through_seq + 1)}
    assert from_ranges == {one.context_seq for one in covered}
    assert all(one.piece in coverage for one in covered)


@given(materials)
def test_an_untouched_snapshot_applies(covered: list[Material]) -> None:
    """SPEC K9: later records and other changes don't matter."""
    coverage = cover(covered, {HERE: 1})
    now = versions(coverage) | {"record/new": Version(b"new")}
    assert check(coverage, now) == Applies()


@given(materials, st.data())
def test_any_change_of_a_covered_piece_ends_the_snapshot_as_a_whole(
    covered: list[Material], data: st.DataObject
) -> None:
    """SPEC K10."""
    coverage = cover(covered, {HERE: 1})
    piece = data.draw(st.sampled_from([one.piece for one in covered]))
    version = versions(coverage)[piece]
    other = data.draw(st.sampled_from([replace(version, digest=b"other"), replace(version, mutations=(HERE,)), None]))
    now = {name: one for name, one in versions(coverage).items() if name != piece}
    now |= {piece: other} if other else {}
    assert check(coverage, now) == Outdated((piece,))


@given(materials, st.data())
def test_a_summary_of_a_summary_reaches_as_far_as_both(covered: list[Material], data: st.DataObject) -> None:
    """SPEC K10, K14, P6: the same as from all pieces, without the older ones."""
    cut = data.draw(st.integers(0, len(covered)))
    older, newer = cover(covered[:cut], {HERE: 3}), cover(covered[cut:], {HERE: 8})
    both = extended(extent_of(older), newer)
    of_all = extent_of(cover(covered, {}))
    assert (both.ranges, both.runs, both.pieces) == (of_all.ranges, of_all.runs, of_all.pieces)
    assert both.revisions == ({HERE: 8} if newer.pieces else {HERE: 3})


# --- publishing ------------------------------------------------------------------------------------------------------


def test_a_finished_summary_of_untouched_sources_is_published() -> None:
    """SPEC K9."""
    assert publication(SMALLER, Applies(), active=HERE, expected=HERE) == Publish()
    assert publication(SMALLER, Applies(), active=None, expected=None) == Publish()


def test_a_summary_of_changed_sources_is_stored_and_not_used() -> None:
    """SPEC K9."""
    verdict = publication(SMALLER, Outdated(("record/1",)), active=None, expected=None)
    assert verdict == StoreOnly("sources_changed")


def test_a_summary_that_does_not_shrink_is_stored_and_not_used() -> None:
    """SPEC K8, case 051."""
    assert publication(NotSmaller(), Applies(), active=None, expected=None) == StoreOnly("not_smaller")


def test_a_summary_never_replaces_a_snapshot_it_did_not_start_from() -> None:
    """SPEC K9: compare-and-set."""
    assert publication(SMALLER, Applies(), active=HERE, expected=None) == StoreOnly("another_snapshot")


# --- other Runs ------------------------------------------------------------------------------------------------------


def candidate(number: int, runs: set[int], pieces: int, *, applies: bool = True) -> Candidate:
    validity = Applies() if applies else Outdated(("record/1",))
    return Candidate(UUID(int=number), frozenset(runs), pieces, validity)


def test_a_snapshot_applies_to_another_run_only_if_it_lies_wholly_in_the_older_part() -> None:
    """SPEC P7: it never replaces the N recent Runs."""
    one = candidate(1, {1, 2}, 10)
    assert reusable([one], older_runs={1, 2, 3}) == one
    assert reusable([one], older_runs={1}) is None
    assert reusable([one], older_runs=frozenset()) is None


def test_the_snapshot_that_stands_for_most_is_taken_and_of_equals_the_later() -> None:
    """SPEC P2."""
    small, large, later = candidate(1, {1}, 5), candidate(2, {1}, 9), candidate(3, {1}, 9)
    assert reusable([small, large, later], older_runs={1}) == later
    assert reusable([large, small], older_runs={1}) == large


def test_an_outdated_snapshot_is_never_taken() -> None:
    """SPEC K10."""
    assert reusable([candidate(1, {1}, 10, applies=False)], older_runs={1}) is None


# --- once ------------------------------------------------------------------------------------------------------------


A, B, C, FIRST, SECOND, OTHER = "record/a", "record/b", "record/c", "summary/1", "summary/2", "summary/3"
CHAINS = SummaryChains({A: {FIRST, OTHER}, B: {SECOND}}, {FIRST: None, SECOND: FIRST, OTHER: None})
"""The second summary was made from the first one; another one covers the same piece as the first."""


@pytest.mark.parametrize(
    ("shown", "again"),
    [
        ([None, FIRST, B, C], []),
        ([None, FIRST, A, C], [(2, A)]),
        ([None, SECOND, A, B], [(2, A), (3, B)]),
        ([A, FIRST], [(1, A)]),
        ([A, A, A], [(1, A), (2, A)]),
        ([SECOND, OTHER], [(1, A)]),
        ([FIRST, SECOND], [(1, A)]),
        ([FIRST, FIRST], [(1, FIRST), (1, A)]),
        ([None, None], []),
    ],
)
def test_each_version_stands_once_as_itself_or_through_the_summary(
    shown: list[str | None], again: list[tuple[int, str]]
) -> None:
    """SPEC K10: what is shown again is told with the place from which on it is."""
    assert list(doubled(shown, CHAINS)) == again
    for length in range(len(shown)):
        assert list(doubled(shown[:length], CHAINS)) == [(at, piece) for at, piece in again if at < length]


def test_a_ring_of_summaries_ends_where_it_began() -> None:
    """SPEC M7: somebody may have bent the chain."""
    assert SummaryChains({}, {FIRST: SECOND, SECOND: FIRST}).behind(FIRST) == (FIRST, SECOND)


def test_a_summary_in_a_view_names_its_snapshot_and_says_what_it_is() -> None:
    """SPEC A8: transform history_compaction."""
    item = summary_item(HERE, b"p", 50)
    assert (item.kind, item.source_id, item.tokens, item.transform) == ("summary", HERE, 50, "history_compaction")
    assert not item.is_protected

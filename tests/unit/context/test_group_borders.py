"""Where a list of messages may be cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context.pairing import Breach, GroupBorders
from context.views import ItemKind

KINDS: list[ItemKind] = ["system", "input", "assistant", "tool_result", "tool_result", "assistant", "marker", "input"]


def legal_lists() -> st.SearchStrategy[list[ItemKind]]:
    plain: st.SearchStrategy[list[ItemKind]] = st.sampled_from([["input"], ["marker"], ["feedback"], ["assistant"]])
    result: st.SearchStrategy[ItemKind] = st.sampled_from(["tool_result", "placeholder"])
    turn = st.lists(result, min_size=1, max_size=4).map(_answered)
    return st.lists(plain | turn, max_size=12).map(lambda groups: [kind for group in groups for kind in group])


def _answered(results: list[ItemKind]) -> list[ItemKind]:
    return ["assistant", *results]


def test_a_call_and_its_results_are_one_group() -> None:
    """SPEC A4."""
    groups = GroupBorders(KINDS).groups()
    assert [list(group) for group in groups] == [[0], [1], [2, 3, 4], [5], [6], [7]]


def test_a_list_may_be_cut_before_everything_but_a_result() -> None:
    """SPEC A4."""
    assert GroupBorders(KINDS).cuts() == (0, 1, 2, 5, 6, 7, 8)
    assert GroupBorders([]).cuts() == (0,)
    assert GroupBorders([]).groups() == ()


@pytest.mark.parametrize("kept", [{2}, {3, 4}, {2, 3}])
def test_a_part_of_a_group_is_a_breach(kept: set[int]) -> None:
    """SPEC A4."""
    assert GroupBorders(KINDS).breaches(kept) == (Breach("group_cut", 2),)


def test_results_that_nothing_precedes_are_orphans() -> None:
    """SPEC A4."""
    assert GroupBorders(["tool_result", "input"]).breaches() == (Breach("results_orphaned", 0),)
    assert GroupBorders(["input", "tool_result"]).breaches() == (Breach("results_orphaned", 0),)


@given(legal_lists())
def test_a_legal_list_may_be_taken_apart_at_every_cut(kinds: list[ItemKind]) -> None:
    """SPEC A4."""
    borders = GroupBorders(kinds)
    for cut in borders.cuts():
        assert borders.breaches(set(range(cut))) == ()
        assert GroupBorders(kinds[:cut]).breaches() == ()
        assert GroupBorders(kinds[cut:]).breaches() == ()


@given(legal_lists())
def test_the_groups_are_the_list_without_gap_or_overlap(kinds: list[ItemKind]) -> None:
    """SPEC K5: no part is dropped."""
    assert [at for group in GroupBorders(kinds).groups() for at in group] == list(range(len(kinds)))

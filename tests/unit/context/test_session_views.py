"""Which part of a Session a view may stand for."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from context.history import PastInput, PastRecord, PastRun
from context.session_views import (
    Claim,
    NoClaim,
    SavedView,
    Seen,
    best_view,
    claim,
    following,
    inherited,
    not_shown,
    observed,
    piece_of_fact,
)
from context.views import ViewItem


def test_a_view_claims_the_prefix_it_observed_and_its_own_records() -> None:
    """SPEC P2."""
    assert claim(Seen(observed=40, last=55)) == Claim(55)
    assert claim(Seen(observed=40, last=0)) == Claim(40)


def test_records_of_another_run_in_between_make_no_claim() -> None:
    """SPEC P2, S9, S11: a resumed Run does not see those that came later."""
    assert claim(Seen(observed=40, last=90, foreign=[60])) == NoClaim("foreign_records")
    assert claim(Seen(observed=40, last=90, foreign=[40, 91])) == Claim(90)


def test_unsettled_tools_and_queued_inputs_make_no_claim() -> None:
    """SPEC P2."""
    assert claim(Seen(observed=40, last=50, unsettled=1)) == NoClaim("unsettled_tools")
    assert claim(Seen(observed=40, last=50, queued=1)) == NoClaim("queued_inputs")


def test_a_run_that_first_asks_after_later_ones_sees_only_what_was_before_them() -> None:
    """SPEC P2, S9."""
    assert observed(40, None) == 40
    assert observed(40, 31) == 30


def test_the_view_that_reaches_farthest_is_taken() -> None:
    """SPEC P2."""
    one, two = SavedView(1, 10, 5), SavedView(2, 20, 9)
    assert best_view([two, one], before_run=3) == two
    assert best_view([one, two], before_run=2) == one
    assert best_view([], before_run=2) is None


def test_a_view_of_something_that_has_another_version_is_of_no_use() -> None:
    """SPEC P2, P5."""
    one, two = SavedView(1, 10, 5), SavedView(2, 20, 9, outdated=True)
    assert best_view([one, two], before_run=3) == one
    assert best_view([two], before_run=3) is None


def test_a_later_run_inherits_all_but_the_system_message_and_protects_none_of_it() -> None:
    """SPEC P2, A2."""
    summary = ViewItem("summary", b"s", 5, UUID(int=1))
    older = ViewItem("input", b"o", 5, UUID(int=2), run_no=1)
    own = ViewItem("input", b"q", 5, UUID(int=3))
    items = inherited([ViewItem("system", b"sys", 9), summary, older, own], 4)
    assert items == (summary, older, ViewItem("input", b"q", 5, UUID(int=3), run_no=4))
    assert not any(item.is_protected for item in items)


def past_run(run_no: int, *records: PastRecord, execution_no: int = 1, inputs: tuple[PastInput, ...] = ()) -> PastRun:
    return PastRun(run_no, "stopped", inputs, None, records, execution_no)


def answer(number: int) -> PastRecord:
    return PastRecord(UUID(int=number), "assistant", b"a%d" % number)


def test_the_run_that_saved_the_view_goes_first_and_each_rest_has_its_end() -> None:
    """SPEC S11: what a resume brought to Run 1 follows the view of Run 3."""
    rest = following([past_run(1, answer(5), execution_no=2), past_run(3), past_run(4)], saved_by=3, hidden=frozenset())
    pieces = [piece_of_fact(fact) for fact in rest]
    assert pieces == ["end/3", f"record/{UUID(int=5)}", "end/1/2", "end/4"]


def test_what_the_view_shows_already_is_not_shown_again() -> None:
    """SPEC P3: inputs that a resumed Run had before, an end that the view knew."""
    asked = PastInput(UUID(int=9), b"q", delivered=True)
    facts = following([past_run(1, execution_no=2, inputs=(asked,)), past_run(3)], saved_by=3, hidden=frozenset())
    shown = {f"input/{UUID(int=9)}", "end/1/2"}
    assert [piece_of_fact(fact) for fact in not_shown(facts, shown)] == ["end/3"]


places = st.integers(1, 100)


@given(places, places, st.lists(places, max_size=5))
def test_a_claim_never_spans_a_foreign_record(before: int, last: int, foreign: list[int]) -> None:
    """SPEC P2."""
    verdict = claim(Seen(before, last, foreign))
    if isinstance(verdict, Claim):
        assert not any(before < place <= verdict.through_seq for place in foreign)

"""Which part of a Session a view may stand for."""

from hypothesis import given
from hypothesis import strategies as st

from context.session_views import Claim, NoClaim, SavedView, Seen, best_view, claim


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


def test_the_view_that_reaches_farthest_is_taken() -> None:
    """SPEC P2."""
    one, two = SavedView(1, 10, 5), SavedView(2, 20, 9)
    assert best_view([two, one], before_run=3, unseen=()) == two
    assert best_view([one, two], before_run=2, unseen=()) == one
    assert best_view([], before_run=2, unseen=()) is None


def test_a_view_is_of_no_use_beyond_records_it_did_not_know() -> None:
    """SPEC P2, P5."""
    one, two = SavedView(1, 10, 5), SavedView(2, 20, 9)
    assert best_view([one, two], before_run=3, unseen=[15]) == one
    assert best_view([one, two], before_run=3, unseen=[10]) is None


places = st.integers(1, 100)


@given(places, places, st.lists(places, max_size=5))
def test_a_claim_never_spans_a_foreign_record(observed: int, last: int, foreign: list[int]) -> None:
    """SPEC P2."""
    verdict = claim(Seen(observed, last, foreign))
    if isinstance(verdict, Claim):
        assert not any(observed < place <= verdict.through_seq for place in foreign)

"""What may never be missing from a request."""

from dataclasses import replace
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from context.protected import ProtectedBreach, ProtectedPresent
from context.views import ViewItem


def question(number: int, run_no: int | None = None) -> ViewItem:
    return ViewItem("input", b"p", 5, UUID(int=number), run_no)


def piece(number: int) -> str:
    return f"input/{UUID(int=number)}"


REQUIRED = ProtectedPresent([piece(1), piece(2)])
OTHER = ViewItem("assistant", b"a", 5, UUID(int=9))


def test_inputs_may_have_anything_between_them_but_stand_in_order() -> None:
    """SPEC A2."""
    assert REQUIRED.breaches([question(1), OTHER, question(2), OTHER]) == ()
    assert REQUIRED.breaches([question(2), question(1)]) == (ProtectedBreach("out_of_order", piece(2)),)


def test_a_missing_input_is_named() -> None:
    """SPEC A2."""
    assert REQUIRED.breaches([question(1)]) == (ProtectedBreach("missing", piece(2)),)


def test_an_input_stands_once() -> None:
    """SPEC P3."""
    assert REQUIRED.breaches([question(1), question(2), question(1)]) == (ProtectedBreach("twice", piece(1)),)


def test_a_shortened_or_historical_copy_is_not_the_input() -> None:
    """SPEC A2: verbatim and whole."""
    shortened = replace(question(1), transform="tool_result_pruned")
    assert REQUIRED.breaches([shortened, question(2)]) == (ProtectedBreach("missing", piece(1)),)
    assert REQUIRED.breaches([question(1, run_no=3), question(2)]) == (ProtectedBreach("missing", piece(1)),)


@given(st.permutations([1, 2, 3, 4]), st.sets(st.sampled_from([1, 2, 3, 4])))
def test_only_the_received_order_without_gaps_passes(order: list[int], left_out: set[int]) -> None:
    """SPEC A2."""
    required = ProtectedPresent([piece(number) for number in (1, 2, 3, 4)])
    shown = [question(number) for number in order if number not in left_out]
    complete = not left_out and order == [1, 2, 3, 4]
    assert (required.breaches(shown) == ()) == complete

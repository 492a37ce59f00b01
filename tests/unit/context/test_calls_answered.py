"""Calls and their answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context.pairing import Breach, CallsAnswered, Link

USER = Link("user")
ASKED = Link("assistant", calls=("a", "b"))
A, B = Link("tool", answers="a"), Link("tool", answers="b")


def test_each_call_is_answered_once_in_order() -> None:
    """SPEC A4."""
    assert CallsAnswered([USER, ASKED, A, B, Link("assistant")]).breaches() == ()
    assert CallsAnswered([]).breaches() == ()


@pytest.mark.parametrize(
    ("links", "breaches"),
    [
        ([ASKED, A, USER], [Breach("result_missing", 2)]),
        ([ASKED, A], [Breach("result_missing", 2)]),
        ([ASKED, B, A], [Breach("result_out_of_order", 1)]),
        ([USER, A], [Breach("result_without_call", 1)]),
        ([ASKED, A, B, B], [Breach("result_without_call", 3)]),
        ([ASKED, A, B, USER, A], [Breach("result_without_call", 4)]),
        ([ASKED, A, Link("tool")], [Breach("result_without_call", 2), Breach("result_missing", 3)]),
        ([Link("assistant", calls=("a", "a")), A, A], [Breach("call_id_repeated", 0)]),
        ([ASKED, A, B, ASKED, A, B], [Breach("call_id_repeated", 3)]),
    ],
)
def test_what_is_wrong_is_named_with_its_place(links: list[Link], breaches: list[Breach]) -> None:
    """SPEC A4."""
    assert CallsAnswered(links).breaches() == tuple(breaches)


turns = st.lists(st.integers(0, 4), min_size=1, max_size=8)


def conversation(sizes: list[int]) -> list[Link]:
    links = []
    for turn, size in enumerate(sizes):
        ids = tuple(f"{turn}.{call}" for call in range(size))
        links += [USER, Link("assistant", calls=ids), *(Link("tool", answers=one) for one in ids)]
    return links


@given(turns)
def test_a_conversation_by_the_rules_has_no_breach(sizes: list[int]) -> None:
    """SPEC A4."""
    assert CallsAnswered(conversation(sizes)).breaches() == ()


@given(turns.filter(any), st.data())
def test_a_missing_result_never_goes_unnoticed(sizes: list[int], data: st.DataObject) -> None:
    """SPEC A4."""
    links = conversation(sizes)
    results = [at for at, link in enumerate(links) if link.role == "tool"]
    del links[data.draw(st.sampled_from(results))]
    assert CallsAnswered(links).breaches() != ()


@given(turns.filter(any), st.data())
def test_a_missing_call_never_goes_unnoticed(sizes: list[int], data: st.DataObject) -> None:
    """SPEC A4."""
    links = conversation(sizes)
    makers = [at for at, link in enumerate(links) if link.calls]
    del links[data.draw(st.sampled_from(makers))]
    assert CallsAnswered(links).breaches() != ()

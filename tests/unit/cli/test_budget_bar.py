"""The budget bar: where a model's window goes (SPEC 17, B1)."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cli.budget_bar import Part, bar_line, cells, parts_of

Json = dict[str, Any]


def item(placement: str, tokens: int, kind: str = "assistant") -> Json:
    return {"kind": kind, "placement": placement, "tokens": tokens}


MANIFEST: Json = {
    "estimated_input_tokens": 1_000,
    "input_limit": 6_744,
    "budget": {"context_window": 8_000, "output_reserve": 1_000, "safety_margin": 256, "trigger": 5_395},
    "items": [
        item("system", 100, "system"),
        item("history", 200, "summary"),
        item("history", 300),
        item("protected", 150, "input"),
        item("reference", 50, "reference"),
    ],
}


def test_the_parts_are_the_whole_window_each_token_once() -> None:
    """17, B1: what the request uses, what is free, reserve and safety; what no message costs is tools and protocol."""
    parts = {part.name: part.tokens for part in parts_of(MANIFEST)}
    assert parts == {
        "system": 100,
        "tools and protocol": 200,
        "summary": 200,
        "history": 300,
        "inputs": 150,
        "state and reference": 50,
        "free": 5_744,
        "output reserve": 1_000,
        "safety margin": 256,
    }
    assert sum(parts.values()) == 8_000


def test_a_request_over_its_budget_leaves_nothing_free() -> None:
    """17: a refused request is shown as it is, without a negative part."""
    over = MANIFEST | {"estimated_input_tokens": 7_000}
    assert {part.name: part.tokens for part in parts_of(over)}["free"] == 0


@given(st.lists(st.integers(0, 200_000), min_size=1, max_size=9), st.integers(9, 120))
def test_a_bar_has_its_width_and_hides_no_part(tokens: list[int], width: int) -> None:
    """17: every part that has a token has a cell, nothing else has one, and the cells are the width."""
    given_cells = cells(tokens, width)
    assert sum(given_cells) == (width if any(tokens) else 0)
    assert [count > 0 for count in given_cells] == [count > 0 for count in tokens]


def test_a_bar_is_readable_without_colours() -> None:
    """17: NO_COLOR and pipes: each part has a letter of its own."""
    line = bar_line([Part("H", "history", 30), Part(".", "free", 50), Part("R", "output reserve", 20)], 10)
    assert line.plain == "[HHH.....RR]"

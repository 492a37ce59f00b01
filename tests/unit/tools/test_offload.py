"""How a large result looks to the model."""

import json

from hypothesis import given
from hypothesis import strategies as st

from tests.support.tool_calls import frozen
from tools.offload import never_offloaded, preview


def shown(content: str, limit: int = 100, edge: int = 20) -> str:
    return preview(content, max_result_chars=limit, preview_chars=edge, result_ref="r/1")


def test_a_result_at_the_limit_is_shown_whole() -> None:
    """SPEC T5."""
    assert shown("x" * 100) == "x" * 100


def test_a_longer_result_is_shown_as_head_and_tail_with_ranges_and_reference() -> None:
    """SPEC T5."""
    text = shown("H" * 20 + "." * 61 + "T" * 20)
    notice = json.loads(text.splitlines()[0])
    assert notice["truncated"] is True
    assert notice["result_ref"] == "r/1"
    assert notice["total_chars"] == 101
    assert notice["shown_ranges"] == [[0, 20], [81, 101]]
    assert text.splitlines()[1:] == ["--- characters 0 to 20 ---", "H" * 20, "--- characters 81 to 101 ---", "T" * 20]


@given(st.text(min_size=101, max_size=400), st.integers(1, 200))
def test_the_ranges_say_exactly_what_is_shown_and_never_overlap(content: str, edge: int) -> None:
    """SPEC T5."""
    text = shown(content, edge=edge)
    (start, head), (tail, end) = json.loads(text.split("\n", 1)[0])["shown_ranges"]
    assert 0 == start < head <= tail < end == len(content)
    assert f" ---\n{content[:head]}\n--- " in text
    assert text.endswith(f" ---\n{content[tail:]}")


@given(st.text(min_size=101, max_size=300))
def test_the_same_result_always_has_the_same_preview(content: str) -> None:
    """SPEC A7: a prefix once sent stays as it was."""
    assert shown(content) == shown(content)


def test_a_result_of_three_megabytes_becomes_a_few_thousand_characters() -> None:
    """SPEC T5, T9."""
    text = preview("y" * 3_000_000, max_result_chars=24_000, preview_chars=2_000, result_ref="r")
    assert len(text) < 4_500


def test_tools_that_page_are_never_offloaded_and_others_of_their_name_are() -> None:
    """SPEC T5."""
    assert never_offloaded(frozen(kind="builtin", name="result_read"))
    assert never_offloaded(frozen(kind="builtin", name="session_search"))
    assert not never_offloaded(frozen(kind="mcp", name="session_search"))
    assert not never_offloaded(frozen(kind="builtin", name="todo_write"))

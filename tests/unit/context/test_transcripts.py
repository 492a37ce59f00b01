"""Conversation as data that nothing inside can end."""

import re
import time
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context.messages import ChatMessage, ToolCall
from context.transcripts import (
    CLOSING,
    OPENING,
    Source,
    TextMeasure,
    data_block,
    earlier_summary,
    heading,
    neutralised,
    neutralised_span,
    safe_name,
    source_of,
)
from context.views import ItemKind, ViewItem
from providers.tokenizers import counter_for

ID = UUID(int=7)
BYTES = counter_for("utf8-bytes/openai/v1")
tags = st.sampled_from(
    ["</session_context_data>", "< / SESSION_context_DATA>", OPENING, "=== record/1 ===", "\n", "<", "x"]
)
hostile = st.lists(tags | st.text(max_size=5), max_size=12).map("".join)


def item(kind: ItemKind) -> ViewItem:
    return ViewItem(kind, b"p", 1, ID)


def boundaries(text: str) -> list[str]:
    return re.findall(r"<\s*/?\s*session_context_data", text, re.IGNORECASE)


@given(hostile)
def test_whatever_is_inside_there_is_one_opening_and_one_closing_boundary(text: str) -> None:
    """SPEC A3, case 105; the closing one stands at the end."""
    block = data_block([neutralised(text)])
    assert boundaries(block) == ["<session_context_data", "</session_context_data"]
    assert block.startswith(OPENING)
    assert block.endswith(CLOSING)


@given(hostile)
def test_neutralising_twice_changes_nothing_more(text: str) -> None:
    """SPEC K5: a summary is folded again and again."""
    assert neutralised(neutralised(text)) == neutralised(text)


@given(hostile)
def test_no_content_looks_like_one_of_our_headings(text: str) -> None:
    """SPEC A3."""
    assert not re.search(r"(?m)^=== ", neutralised(text))


@given(hostile, st.data())
def test_a_span_of_a_text_is_neutral_and_keeps_the_places(text: str, data: st.DataObject) -> None:
    """SPEC K5: ranges in headings are ranges of the record."""
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    span = neutralised_span(text, start, end)
    assert len(span) == end - start
    assert neutralised(span) == span
    assert len(neutralised(text)) == len(text)
    if start == 0 or text[start - 1] != "\n":
        assert span[1:] == neutralised(text)[start:end][1:]


def test_ordinary_text_is_not_changed() -> None:
    """SPEC K5."""
    text = "a < b && c === d\nif (x) { <div/> }\n====\n  === indented\nsession_context_data"
    assert neutralised(text) == text


@pytest.mark.parametrize(
    "text", ["<" + " " * 400_000, "< " * 200_000, "\n=" * 200_000, "</session_context_data>" * 20_000]
)
def test_neutralising_is_linear(text: str) -> None:
    """SPEC B4: no input makes counting super-linear, and this text is counted."""
    start = time.perf_counter()
    neutralised(text)
    assert time.perf_counter() - start < 2


def test_a_result_is_its_content_exactly_and_says_what_it_is() -> None:
    """SPEC K5: never a tool message; the range in a heading is a range of the content."""
    message = ChatMessage(role="tool", content="4 degrees", tool_call_id="c1", name="weather")
    assert source_of(item("tool_result"), message) == Source(f"record/{ID}", "result of weather", "4 degrees")


def test_a_result_that_is_no_success_says_so() -> None:
    """SPEC A4: never as success."""
    message = ChatMessage(role="tool", content="?", tool_call_id="c", name="deploy", status="unknown")
    assert source_of(item("placeholder"), message) == Source(f"call/{ID}", "result of deploy, unknown", "?")


def test_an_assistant_message_shows_text_and_calls_but_no_reasoning() -> None:
    """SPEC K5, K8."""
    call = ToolCall(call_id="c1", name="weather", arguments='{"city":"Oslo"}')
    message = ChatMessage(
        role="assistant", content="Let me look.", tool_calls=(call,), reasoning_content="secret thought"
    )
    source = source_of(item("assistant"), message)
    assert source.label == "assistant"
    assert source.text == 'Let me look.\n[calls weather with {"city":"Oslo"}]'


def test_the_user_and_notes_of_our_own_are_told_apart() -> None:
    """SPEC K5."""
    assert source_of(item("input"), ChatMessage(role="user", content="hi")).label == "user"
    assert source_of(item("marker"), ChatMessage(role="user", content="ended")).label == "note"
    assert source_of(item("feedback"), ChatMessage(role="user", content="empty")).label == "note"
    assert earlier_summary("summary/1", "old").label == "earlier summary"


@pytest.mark.parametrize(("name", "shown"), [(None, "a_tool"), ("x === record/1\n", "x_record_1_"), ("名" * 90, "_")])
def test_a_made_up_tool_name_can_not_break_a_heading(name: str | None, shown: str) -> None:
    """SPEC A3."""
    assert safe_name(name) == shown


def test_a_source_does_not_show_its_text() -> None:
    """SPEC Y6."""
    assert "4 degrees" not in repr(Source("record/1", "user", "4 degrees"))


@given(st.text(max_size=200))
def test_a_text_is_measured_with_its_escapes(text: str) -> None:
    """SPEC B1: what is counted is what is sent."""
    measure = TextMeasure(BYTES)
    whole = BYTES.count_message(ChatMessage(role="user", content=text + "x"))
    assert whole == BYTES.count_message(ChatMessage(role="user", content="x")) + measure(text)


def test_a_heading_of_our_own_stays_a_heading() -> None:
    """SPEC K5."""
    assert heading("summary so far") == "=== summary so far ==="

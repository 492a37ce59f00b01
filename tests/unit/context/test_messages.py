"""Messages in the platform's own form."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context.messages import (
    ChatMessage,
    ToolCall,
    arguments_object,
    canonical_json,
    message_bytes,
    message_from_bytes,
    without_lone_surrogates,
)

encodable = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
calls = st.builds(ToolCall, call_id=encodable, name=encodable, arguments=encodable)
messages = st.builds(
    ChatMessage,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    content=st.none() | encodable,
    tool_calls=st.lists(calls, max_size=3).map(tuple),
    tool_call_id=st.none() | encodable,
    name=st.none() | encodable,
    reasoning_content=st.none() | encodable,
    status=st.sampled_from([None, "ok", "error", "not_executed", "stopped", "unknown", "denied", "truncated"]),
)
texts = st.text(max_size=60) | st.text(alphabet="\ud83d\udd25\ud800\udfffa", max_size=12)


@given(messages)
def test_a_message_comes_back_as_it_was_stored(message: ChatMessage) -> None:
    """SPEC A9: bytes and message are two forms of one thing."""
    body = message_bytes(message)
    assert message_from_bytes(body) == message
    assert message_bytes(message_from_bytes(body)) == body


@given(messages)
def test_the_stored_form_is_canonical_and_leaves_out_what_is_not_there(message: ChatMessage) -> None:
    """SPEC A9: sorted keys, no spaces, no nulls, no empty lists."""
    body = message_bytes(message)
    value = json.loads(body)
    assert canonical_json(value) == body
    assert None not in value.values()
    assert value.get("tool_calls") != []
    assert value["role"] == message.role


def test_a_text_that_does_not_encode_is_an_error_here() -> None:
    """SPEC Y5: whoever stores a message made it encodable before."""
    with pytest.raises(UnicodeEncodeError):
        message_bytes(ChatMessage(role="user", content="\ud83d"))


@given(texts)
def test_lone_surrogates_are_replaced_and_nothing_else(text: str) -> None:
    """SPEC Y5: the result encodes; an encodable text stays; pairs become the character they stand for."""
    clean = without_lone_surrogates(text)
    clean.encode()
    assert without_lone_surrogates(clean) == clean
    try:
        text.encode()
    except UnicodeEncodeError:
        assert len(clean) <= len(text)
    else:
        assert clean == text


def test_halves_that_belong_together_are_joined() -> None:
    """SPEC Y5: JSON escapes can hold a pair as two characters."""
    assert without_lone_surrogates("\ud83d\udd25") == "🔥"
    assert without_lone_surrogates("a\ud83db") == "a�b"


@given(st.dictionaries(encodable, st.none() | st.booleans() | st.integers() | encodable, max_size=4))
def test_an_object_is_read_as_it_was_written(value: dict[str, object]) -> None:
    """SPEC A11."""
    assert arguments_object(json.dumps(value)) == value


@pytest.mark.parametrize("text", ["", " ", "\n", "{}", " {} "])
def test_no_text_means_no_arguments(text: str) -> None:
    """SPEC A11; case C013."""
    assert arguments_object(text) == {}


@pytest.mark.parametrize(
    "text",
    ['{"a": 1', "[]", "null", "1", '"{}"', '{"a": NaN}', '{"a": Infinity}', '{"a": -1E400}', "{}{}", "[" * 100_000],
)
def test_anything_but_an_object_is_none(text: str) -> None:
    """SPEC T3, A11: nothing is guessed, whatever the depth."""
    assert arguments_object(text) is None


@given(st.text(max_size=200))
def test_no_text_makes_reading_raise(text: str) -> None:
    """SPEC T3."""
    value = arguments_object(text)
    assert value is None or isinstance(value, dict)

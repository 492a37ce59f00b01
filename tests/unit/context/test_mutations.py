"""What a change of a record may touch (SPEC H8, A4, A5)."""

import pytest

from context.messages import ChatMessage, ToolCall
from context.mutations import check_change
from tests.support.builders import asks

RESULT = ChatMessage(role="tool", content="sunny", tool_call_id="c1")


def test_words_arguments_and_reasoning_may_change() -> None:
    """H2."""
    check_change("tool_result", RESULT, RESULT.model_copy(update={"content": "rainy", "status": "error"}))
    called = asks("weather")
    other = called.tool_calls[0].model_copy(update={"arguments": '{"city": "Paris"}'})
    check_change("assistant", called, called.model_copy(update={"tool_calls": (other,), "content": "Well."}))


@pytest.mark.parametrize("kind", ["user_ref", "fragment"])
def test_original_inputs_and_fragments_never_change(kind: str) -> None:
    """H8, A5."""
    said = ChatMessage(role="user", content="What is it?")
    with pytest.raises(ValueError, match="can't be changed"):
        check_change(kind, said, said.model_copy(update={"content": "What was it?"}))


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        ("tool_result", RESULT, RESULT.model_copy(update={"tool_call_id": "c2"})),
        ("assistant", asks("weather"), asks("weather", "time")),
        ("assistant", asks("weather"), ChatMessage(role="assistant", content="It is sunny.")),
        (
            "assistant",
            asks("weather"),
            ChatMessage(role="assistant", tool_calls=(ToolCall(call_id="c0", name="time", arguments="{}"),)),
        ),
        ("feedback", ChatMessage(role="user", content="x"), ChatMessage(role="system", content="x")),
    ],
)
def test_a_change_breaks_no_pair_and_gives_no_other_role(kind: str, before: ChatMessage, after: ChatMessage) -> None:
    """A4, A3."""
    with pytest.raises(ValueError, match="may not touch"):
        check_change(kind, before, after)

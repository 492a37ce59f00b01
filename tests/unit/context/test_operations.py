"""What a model's answer means."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context.messages import message_bytes
from context.operations import (
    Answer,
    CallTools,
    CutInsideCall,
    Decision,
    EmptyAnswer,
    UnreadableCall,
    Unusable,
    assistant_message,
    call_id_for,
    decide,
    not_executed,
)
from context.replies import ModelReply, ReplyCall
from tests.support.builders import asks, reply, uid

CALL = ReplyCall(provider_id="c1", name="t", arguments="{}")


@pytest.mark.parametrize(
    ("answer", "decision"),
    [
        (reply("text"), Answer()),
        (reply("text", finish_reason="tool_calls"), Answer()),
        (reply("text", CALL), CallTools()),
        (reply(None, CALL, finish_reason="stop"), CallTools()),
        (reply(None, CALL, finish_reason="tool_calls"), CallTools()),
        (reply(None), EmptyAnswer()),
        (reply(" \n"), EmptyAnswer()),
        (reply(None, finish_reason="tool_calls"), EmptyAnswer()),
        (reply("<think>What did they ask?</think>\n"), EmptyAnswer()),
        (reply("<think>What did they"), EmptyAnswer()),
        (reply("What did they ask?\n</think>\n"), EmptyAnswer()),
        (reply("<think>They ask.</think>text"), Answer()),
        (reply("Write <think> before it."), Answer()),
        (reply("<think>I look.</think>", CALL), CallTools()),
        (reply("cut", finish_reason="length"), Unusable("output_cut")),
        (reply(None, finish_reason="length"), Unusable("output_cut")),
        (reply("text", CALL, finish_reason="length"), CutInsideCall()),
        (reply("half", finish_reason="content_filter"), Unusable("content_filtered")),
        (reply(None, CALL, finish_reason="content_filter"), Unusable("content_filtered")),
        (reply("Let me", finish_reason="malformed_call"), UnreadableCall()),
        (reply(None, CALL, finish_reason="malformed_call"), UnreadableCall()),
    ],
)
def test_calls_and_text_decide_before_the_reason_for_stopping(answer: ModelReply, decision: Decision) -> None:
    """SPEC L1; cases C023, C025, C026."""
    assert decide(answer) == decision


provider_ids = (
    st.none() | st.sampled_from(["", "x", "call_0", "has space", "é", "a" * 41, "\ud83d"]) | st.text(max_size=50)
)
reply_calls = st.builds(ReplyCall, provider_id=provider_ids, name=st.text(max_size=10), arguments=st.text(max_size=20))


@given(st.lists(reply_calls, max_size=6), st.sets(st.sampled_from(["x", "call_0", "y"])))
def test_every_call_of_a_session_has_an_id_of_its_own(calls: list[ReplyCall], taken: set[str]) -> None:
    """SPEC A4: whatever ids the provider gives, or gives again."""
    message = assistant_message(reply("t", *calls), uid("operation"), taken)
    ids = [call.call_id for call in message.tool_calls]
    assert len(set(ids)) == len(ids) == len(calls)
    assert not set(ids) & taken
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,40}", one) for one in ids)
    assert message == assistant_message(reply("t", *calls), uid("operation"), taken), "a repeat gives the same ids"


def test_an_ordinary_new_id_stays_the_providers() -> None:
    """SPEC A4: raw and effective are easy to compare."""
    assert call_id_for(CALL, 0, uid("operation"), set()) == "c1"
    assert call_id_for(CALL, 0, uid("operation"), {"c1"}) != "c1"
    assert call_id_for(CALL, 0, uid("one"), {"c1"}) != call_id_for(CALL, 0, uid("two"), {"c1"})


@given(st.text(max_size=30), st.text(max_size=30), st.lists(reply_calls, max_size=3))
def test_the_record_of_any_answer_can_be_stored(content: str, reasoning: str, calls: list[ReplyCall]) -> None:
    """SPEC Y5, A6; case C061: halves of surrogate pairs replaced, reasoning kept, arguments as they came otherwise."""
    message = assistant_message(reply(content, *calls, reasoning_content=reasoning), uid("operation"), set())
    stored = json.loads(message_bytes(message))
    assert stored["role"] == "assistant"
    assert bool(message.reasoning_content) == bool(reasoning)
    for call, written in zip(calls, message.tool_calls, strict=True):
        clean = call.arguments.isascii()
        assert not clean or written.arguments == call.arguments


def test_a_call_that_is_not_made_says_so() -> None:
    """SPEC A4: never as success."""
    [call] = asks("t").tool_calls
    message = not_executed(call, "Not executed: no.", "not_executed")
    assert (message.role, message.tool_call_id, message.status) == ("tool", "c0", "not_executed")

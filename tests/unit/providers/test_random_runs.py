"""A strict server accepts every request that follows whatever a model has answered before."""

import pytest

from context.errors import ModelCallError
from context.messages import ChatMessage, ToolCall
from context.policy import FrozenTool
from context.replies import ModelReply
from providers.profiles import profile_for
from providers.reading import AnswerReader
from tests.support.bodies import build_body
from tests.support.random_replies import random_replies
from tests.support.replies import Reply
from tests.support.strict_chat import Dialect, violations

TOOL = FrozenTool(name="look", description="", parameters={}, kind="python", entry_name="look")


def read(reply: Reply) -> ModelReply:
    reader = AnswerReader()
    for piece in reply.pieces:
        reader.feed(piece)
    return reader.finish()


def follow(messages: list[ChatMessage], reply: ModelReply, step: int) -> None:
    """What a loop adds to the history: the assistant's message under platform ids, and a result per call."""
    asked = tuple(
        ToolCall(call_id=f"call-{step}-{place}", name=call.name, arguments=call.arguments)
        for place, call in enumerate(reply.calls)
    )
    messages.append(
        ChatMessage(
            role="assistant",
            content=reply.content,
            tool_calls=asked,
            reasoning_content=reply.reasoning_content,
        )
    )
    results = ["found", "", "\r\n", None]
    messages += [
        ChatMessage(role="tool", tool_call_id=call.call_id, name=call.name, content=results[place % len(results)])
        for place, call in enumerate(asked)
    ]
    if step % 3 == 0:
        messages += [ChatMessage(role="user", content=f"supplement {step}"), ChatMessage(role="user", content="more")]


@pytest.mark.parametrize(("provider", "dialect"), [("openai", "plain"), ("deepseek", "deepseek_thinking")])
def test_every_request_of_five_hundred_random_runs_is_legal(provider: str, dialect: Dialect) -> None:
    """SPEC A4, A11: calls at once, broken arguments, empty results, repeated ids, reasoning, adjacent user messages."""
    for seed in range(500):
        messages = [ChatMessage(role="user", content="question")]
        for step, reply in enumerate(random_replies(seed, tools=["look"])):
            body = build_body(
                profile=profile_for(provider),
                model="m",
                messages=messages,
                tools=[TOOL],
                max_output_tokens=9,
                parameters={},
            )
            assert violations(body, dialect=dialect) == [], f"seed {seed}"
            follow(messages, read(reply), step)


def test_the_random_replies_can_all_be_read() -> None:
    """The script itself: nothing in it is a broken stream."""
    for seed in range(500):
        for reply in random_replies(seed, tools=["look"]):
            try:
                read(reply)
            except ModelCallError as failure:
                raise AssertionError(f"seed {seed}") from failure

"""What a model's complete answer means for the Run: calls, an answer, or one of the ways to fall short (SPEC L1)."""

import base64
import re
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from context.ids import derived
from context.messages import ChatMessage, ToolCall, without_lone_surrogates
from context.replies import ModelReply, ReplyCall
from context.thoughts import behind_thoughts

OperationState = Literal[
    "prepared", "frozen", "calling", "raw_stored", "accepted", "failed", "unknown", "cancelled", "denied"
]
ORDINARY_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")

EMPTY_ANSWER = (
    "[AgentLoom] Your last answer had neither text nor a tool call, reasoning aside. Answer the user, or call a tool."
)
UNREADABLE_CALL = (
    "[AgentLoom] Not executed: the provider could not read the tool call in your last answer. Make the call again, with"
    " a JSON object as its arguments."
)
CUT_CALL = "Not executed: your answer was cut at the output limit, so this call may be incomplete. Ask again, shorter."


@dataclass(frozen=True)
class CallTools:
    """The model asked for tools; the reason it gave for stopping does not matter."""


@dataclass(frozen=True)
class Answer:
    """The model answered; the Run can end."""


@dataclass(frozen=True)
class EmptyAnswer:
    """Neither text nor calls, or nothing but reasoning: the model is told, and the next loop tries again."""


@dataclass(frozen=True)
class CutInsideCall:
    """The output limit was reached after a call had begun: none of the calls is executed, the model is told."""


@dataclass(frozen=True)
class UnreadableCall:
    """The provider says that a call could not be read: nothing of the answer is executed, the model is told."""


@dataclass(frozen=True)
class Unusable:
    """No answer can come of this; the Run fails with this `end_reason`, the text kept as a marked fragment."""

    end_reason: Literal["output_cut", "content_filtered"]


Decision = CallTools | Answer | EmptyAnswer | CutInsideCall | UnreadableCall | Unusable


def decide(reply: ModelReply) -> Decision:
    """What follows from a complete answer. Unless the provider says that it fell short, calls decide (SPEC L1)."""
    if reply.finish_reason == "content_filter":
        return Unusable("content_filtered")
    if reply.finish_reason == "length":
        return CutInsideCall() if reply.calls else Unusable("output_cut")
    if reply.finish_reason == "malformed_call":
        return UnreadableCall()
    if reply.calls:
        return CallTools()
    return Answer() if behind_thoughts(reply.content or "").strip() else EmptyAnswer()


def call_id_for(call: ReplyCall, ordinal: int, operation_id: UUID, taken: AbstractSet[str]) -> str:
    """The platform's id of a call: the provider's where it is ordinary and new in the Session, else a derived one.

    `taken` holds the ids used before, in this Session and in this message (SPEC A4).
    """
    own = call.provider_id
    if own and ORDINARY_ID.fullmatch(own) and own not in taken:
        return own
    digest = base64.b32encode(derived(operation_id, "call", ordinal).bytes).decode().rstrip("=").lower()
    return f"call_{digest}"


def assistant_message(reply: ModelReply, operation_id: UUID, taken: AbstractSet[str]) -> ChatMessage:
    """The record of an answer, in the platform's form: provider ids replaced where they repeat, text made encodable."""
    used = set(taken)
    calls = []
    for ordinal, call in enumerate(reply.calls):
        call_id = call_id_for(call, ordinal, operation_id, used)
        used.add(call_id)
        calls.append(ToolCall(call_id=call_id, name=_clean(call.name), arguments=_clean(call.arguments)))
    return ChatMessage(
        role="assistant",
        content=_clean(reply.content) if reply.content is not None else None,
        tool_calls=tuple(calls),
        reasoning_content=_clean(reply.reasoning_content) if reply.reasoning_content else None,
    )


def not_executed(call: ToolCall, text: str, status: Literal["not_executed", "stopped", "unknown"]) -> ChatMessage:
    """The result that stands for a call that gave none: it says so, and is never success (SPEC A4)."""
    return ChatMessage(role="tool", content=text, tool_call_id=call.call_id, name=call.name, status=status)


def _clean(text: str) -> str:
    return without_lone_surrogates(text)

"""What a model gave back for one request, in the platform's form, before anything was decided about it."""

from collections.abc import Callable
from typing import Literal

from pydantic import BaseModel, ConfigDict

FinishReason = Literal["stop", "tool_calls", "length", "content_filter", "malformed_call", "other"]
"""How an answer ended; `malformed_call`: the provider could not read the call that the model wrote."""


class Usage(BaseModel):
    """Tokens as the provider reported them. None means it did not say, which is not zero (SPEC L5).

    `estimated`: what it did not say was counted here instead (`context.usage`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    estimated: bool = False


class ReplyCall(BaseModel):
    """One call as the provider sent it; its id may be missing or repeated, its arguments may be broken."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    provider_id: str | None
    name: str
    arguments: str


class ModelReply(BaseModel):
    """A complete answer. An incomplete stream is never one: it is a failed Attempt with a fragment (SPEC A5)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    content: str | None = None
    reasoning_content: str | None = None
    refused: bool = False
    """The provider marked the text, or a part of it, as the model's refusal."""
    calls: tuple[ReplyCall, ...] = ()
    finish_reason: FinishReason
    provider_finish_reason: str | None = None
    usage: Usage = Usage()
    provider_model: str | None = None
    provider_request_id: str | None = None

    @property
    def has_output(self) -> bool:
        """Whether there is text, reasoning or a call: evidence that the model has begun on the request (SPEC S6)."""
        return bool(self.content or self.reasoning_content or self.calls)


SoFar = Callable[[], ModelReply | None]
"""Tells what has come of an answer while it is being read; None if nothing has."""

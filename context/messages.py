"""Messages in the platform's own form, and the rules that keep a list of them legal for a provider.

This is the only protocol between the context and the dialects: `providers/` turns it into wire JSON and back. A
message is stored as its canonical JSON, and everything that is hashed is hashed over that.
"""

import json
import math
import re
from collections.abc import Iterable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from context.errors import UnknownContentError

Role = Literal["system", "user", "assistant", "tool"]
ResultStatus = Literal["ok", "error", "not_executed", "stopped", "unknown", "denied", "truncated"]


class ToolCall(BaseModel):
    """One call asked for by the model; `arguments` is the text exactly as it came (it may be broken JSON)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    call_id: str
    name: str
    arguments: str


class ChatMessage(BaseModel):
    """One message fact. `status` is set on tool results only, and only where they are not plain success."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    role: Role
    content: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    reasoning_content: str | None = None
    status: ResultStatus | None = None


def canonical_json(value: Any) -> bytes:
    """The one byte form of a JSON value: sorted keys, no spaces, UTF-8. Lone surrogates are an error."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def message_bytes(message: ChatMessage) -> bytes:
    """What is stored and hashed for a message: its canonical JSON without absent fields."""
    return canonical_json(
        message.model_dump(mode="json", exclude_none=True, exclude_defaults=True) | {"role": message.role}
    )


def message_from_bytes(body: bytes) -> ChatMessage:
    """The inverse of `message_bytes`. Raises UnknownContentError for what another version wrote."""
    try:
        return ChatMessage.model_validate_json(body)
    except ValidationError:  # its text quotes the message
        raise UnknownContentError from None


DEEPEST_ARGUMENTS = 64
"""Levels of call arguments that are read; many servers refuse requests whose arguments have more than about 128."""


def arguments_object(text: str) -> dict[str, Any] | None:
    """The arguments of a call as an object, or None if they are not one. Empty text means no arguments (SPEC A11)."""
    if not text.strip():
        return {}
    try:
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)


def _finite(text: str) -> float:
    """A number too large for any reader is none: strict servers refuse each request that repeats it."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError
    return value


def depth_of(value: Any) -> int:
    """How many levels a JSON value has; a plain one has one."""
    level, layer = 0, [value]
    while layer:
        level += 1
        layer = [child for node in layer for child in _children(node)]
    return level


def _children(node: Any) -> Iterable[Any]:
    if isinstance(node, dict):
        return node.values()
    return node if isinstance(node, list) else ()


_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME = 64


def safe_name(name: str) -> str:
    """A name every server accepts and every column holds; a model can ask for a tool by an impossible one, and the
    record keeps that.
    """
    return _NOT_IN_A_NAME.sub("_", name)[:_LONGEST_NAME] or "unnamed"


SURROGATES_REPLACED = "lone_surrogates_replaced"
UNDECODABLE_REPLACED = "undecodable_bytes_replaced"
CREDENTIAL_REMOVED = "credential_removed"
"""The names of what may have been changed between a raw result and what goes on; an Operation says which were."""


def without_lone_surrogates(text: str) -> str:
    """The text with each lone surrogate replaced by U+FFFD, so that it encodes as UTF-8 (SPEC Y5)."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

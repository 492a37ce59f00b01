"""Turns a legal message list into the bytes of a chat-completions request (SPEC A6, A11), the same bytes every time.

`messages` comes first in the body, so that request n+1 begins with the bytes of request n (A7). Each message becomes
its bytes on its own, so a caller can keep them and only join. It never repairs the pairing of calls and results: that
is done before, in `context`.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from context.messages import (
    DEEPEST_ARGUMENTS,
    ChatMessage,
    ToolCall,
    arguments_object,
    canonical_json,
    depth_of,
    safe_name,
    without_lone_surrogates,
)
from context.policy import FrozenTool
from providers.profiles import Profile

NO_OUTPUT = "(no output)"
"""Stands for a tool result that is empty or blank; the record keeps what the tool really returned."""

NO_USER_MESSAGE = "(no user message)"
"""The user message of a request that has none; servers refuse a request without one."""

MESSAGE_SEPARATOR = "\n\n[next message]\n\n"
"""Stands between user messages that are joined. Joining only appends, so the bytes before it stay the same."""

_USER_START = b'{"role":"user"'


@dataclass(frozen=True, slots=True)
class WireUnit:
    """What becomes one message on the wire: one message, or adjacent user messages that are joined."""

    messages: tuple[ChatMessage, ...]
    in_tool_turn: bool
    """Whether a tool answered since the last user message; decides about reasoning (`Profile.reasoning`)."""


def in_tool_turn_after(message: ChatMessage, before: bool) -> bool:
    """Whether a tool answered since the last user message, once this message has come."""
    return message.role == "tool" or (before and message.role != "user")


def wire_units(
    messages: Iterable[ChatMessage],
    *,
    profile: Profile,
    merge_user_messages: bool | None = None,
    in_tool_turn: bool = False,
) -> list[WireUnit]:
    """The list in units that can be turned into bytes one by one. Cheap: nothing is serialised here.

    `in_tool_turn` is what holds before the first message, if these are not the first of the request.
    """
    merge = profile.merge_user_messages if merge_user_messages is None else merge_user_messages
    units: list[WireUnit] = []
    for message in messages:
        in_tool_turn = in_tool_turn_after(message, in_tool_turn)
        if not _says_something(message):
            continue
        if merge and message.role == "user" and units and units[-1].messages[0].role == "user":
            units[-1] = WireUnit((*units[-1].messages, message), in_tool_turn)
        else:
            units.append(WireUnit((message,), in_tool_turn))
    return units


def unit_bytes(unit: WireUnit, *, profile: Profile) -> bytes:
    """The bytes of one unit."""
    if len(unit.messages) == 1:
        return wire_message_bytes(unit.messages[0], profile, in_tool_turn=unit.in_tool_turn)
    joined = MESSAGE_SEPARATOR.join(message.content or "" for message in unit.messages)
    return _json_bytes({"role": "user", "content": joined})


def wire_message_bytes(message: ChatMessage, profile: Profile, *, in_tool_turn: bool = False) -> bytes:
    """One message as the dialect wants it; empty bytes for one that says nothing and is left out.

    `in_tool_turn` tells whether a tool answered since the last user message (see `wire_units`).
    """
    if not _says_something(message):
        return b""
    if message.role == "assistant":
        return _json_bytes(_assistant_form(message, profile, in_tool_turn=in_tool_turn))
    if message.role == "tool":
        content = message.content if _has_text(message.content) else NO_OUTPUT
        return _json_bytes({"role": "tool", "tool_call_id": message.tool_call_id or "", "content": content})
    named = {"name": safe_name(message.name)} if message.name else {}
    return _json_bytes({"role": message.role, **named, "content": message.content})


def request_fields(
    *,
    profile: Profile,
    model: str,
    tools: Sequence[FrozenTool],
    max_output_tokens: int,
    parameters: Mapping[str, Any],
) -> bytes:
    """Everything of the request but its messages: canonical JSON of an object, the same for each call of a release."""
    fields: dict[str, Any] = {**parameters, "model": model, "stream": True}
    fields[profile.output_limit_field] = max_output_tokens
    if "stream_options" in parameters:  # null, by the definition: for servers that refuse the field
        del fields["stream_options"]
    elif profile.include_usage:
        fields["stream_options"] = {"include_usage": True}
    if tools:
        fields["tools"] = [_tool_form(tool) for tool in tools]
    return canonical_json(fields)


def tools_json(tools: Sequence[FrozenTool]) -> str:
    """The tool list as it is sent, for counting; empty text for none."""
    return canonical_json([_tool_form(tool) for tool in tools]).decode() if tools else ""


def parameters_json(parameters: Mapping[str, Any]) -> str:
    """The parameters that a model reads as it reads tools, such as the schema of an answer; empty text for none."""
    read = {name: value for name, value in parameters.items() if isinstance(value, dict | list)}
    return canonical_json(read).decode() if read else ""


def assemble(parts: Iterable[bytes], *, fields: bytes) -> bytes:
    """The request body from messages' bytes (in order; empty ones are left out) and `request_fields`.

    A list without a user message gets one behind its leading system messages, where later messages don't move it.
    """
    present = [part for part in parts if part]
    if not any(part.startswith(_USER_START) for part in present):
        place = next((i for i, part in enumerate(present) if not part.startswith(b'{"role":"system"')), len(present))
        present.insert(place, _json_bytes({"role": "user", "content": NO_USER_MESSAGE}))
    return b'{"messages":[' + b",".join(present) + b"]," + fields[1:]


def _assistant_form(message: ChatMessage, profile: Profile, *, in_tool_turn: bool) -> dict[str, Any]:
    form: dict[str, Any] = {"role": "assistant", "content": message.content}
    if not _has_text(message.content):
        form["content"] = None if profile.null_content_with_calls else ""
    reasoning = _reasoning(message, profile, in_tool_turn=in_tool_turn)
    if reasoning is not None:
        form["reasoning_content"] = reasoning
    if message.tool_calls:
        form["tool_calls"] = [_call_form(call) for call in message.tool_calls]
    return form


def _reasoning(message: ChatMessage, profile: Profile, *, in_tool_turn: bool) -> str | None:
    if profile.reasoning == "never" or not (message.tool_calls or in_tool_turn):
        return None
    return message.reasoning_content if message.reasoning_content is not None else profile.missing_reasoning


def _call_form(call: ToolCall) -> dict[str, Any]:
    function = {"name": safe_name(call.name), "arguments": wire_arguments(call.arguments)}
    return {"id": call.call_id, "type": "function", "function": function}


def wire_arguments(text: str) -> str:
    """Call arguments as the text of a JSON object: unchanged if they are one, `{}` if they are broken, empty or too
    deep for any tool.
    """
    value = arguments_object(text)
    if not value or (_may_be_deep(text) and depth_of(value) > DEEPEST_ARGUMENTS):
        return "{}"
    return json.dumps(_encodable(value), ensure_ascii=False) if _may_hold_surrogates(text) else text


def _may_be_deep(text: str) -> bool:
    return text.count("{") + text.count("[") > DEEPEST_ARGUMENTS


def _may_hold_surrogates(text: str) -> bool:
    return "\\ud" in text.lower() or any("\ud800" <= character <= "\udfff" for character in text)


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return without_lone_surrogates(value)
    if isinstance(value, dict):
        return {without_lone_surrogates(key): _encodable(item) for key, item in value.items()}
    return [_encodable(item) for item in value] if isinstance(value, list) else value


def _tool_form(tool: FrozenTool) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {}, **tool.parameters}
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": parameters},
    }


def _says_something(message: ChatMessage) -> bool:
    return message.role == "tool" or bool(message.tool_calls) or _has_text(message.content)


def _has_text(content: str | None) -> bool:
    return content is not None and content != "" and not content.isspace()


def _json_bytes(form: Mapping[str, Any]) -> bytes:
    """Compact UTF-8 JSON with the keys in the order given; a surrogate that slipped through can't stop a request."""
    text = json.dumps(form, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return without_lone_surrogates(text).encode()

"""A server's strictest reading of a chat-completions request: every slip of the protocol, in words.

`violations` is used by the scripted model server in strict mode, which answers 400 with the first of them, and by tests
directly. The dialects differ in what they demand beyond the common rules.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Literal

Dialect = Literal["plain", "deepseek_thinking", "alternating"]

_NAME = re.compile(r"^[A-Za-z0-9_-]{1,64}$")
_FIELDS = {
    "system": {"role", "content", "name"},
    "user": {"role", "content", "name"},
    "assistant": {"role", "content", "name", "tool_calls", "reasoning_content"},
    "tool": {"role", "content", "tool_call_id"},
}


def violations(body: bytes, *, dialect: Dialect = "plain") -> list[str]:
    """Everything a strict server would refuse in this request body, in order; empty for a legal one."""
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        return ["the body is not JSON"]
    if not isinstance(request, dict):
        return ["the body is not an object"]
    found = list(_top_level(request)) + list(_surrogates(request))
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
        return [*found, "messages is not a list of objects"]
    found += list(_each_message(messages)) + list(_pairing(messages))
    if not any(message.get("role") == "user" for message in messages):
        found.append("there is no user message")
    return found + list(_dialect_rules(messages, dialect))


def _top_level(request: dict[str, Any]) -> Iterator[str]:
    if not isinstance(request.get("model"), str) or not request["model"]:
        yield "model is missing"
    limits = [key for key in ("max_tokens", "max_completion_tokens") if key in request]
    if len(limits) > 1 or not all(isinstance(request[key], int) and request[key] > 0 for key in limits):
        yield "the output limit is not one positive number"
    if "stream_options" in request and request.get("stream") is not True:
        yield "stream_options without stream"
    if "tools" in request:
        yield from _tools(request["tools"])
    elif "tool_choice" in request:
        yield "tool_choice without tools"


def _tools(tools: object) -> Iterator[str]:
    if not isinstance(tools, list) or not tools:
        yield "tools is an empty list"
        return
    names = [tool.get("function", {}).get("name") for tool in tools]
    if len(set(names)) != len(names):
        yield "a tool name repeats"
    for tool in tools:
        function = tool.get("function", {})
        if tool.get("type") != "function" or not _NAME.match(str(function.get("name"))):
            yield "a tool is no function with a legal name"
        if function.get("parameters", {}).get("type") != "object":
            yield "a tool's parameters are no object schema"


def _each_message(messages: list[dict[str, Any]]) -> Iterator[str]:
    for place, message in enumerate(messages):
        role = message.get("role")
        if role not in _FIELDS:
            yield f"message {place} has an unknown role"
            continue
        if unknown := message.keys() - _FIELDS[role]:
            yield f"message {place} ({role}) has unknown fields {sorted(unknown)}"
        if "name" in message and not _NAME.match(str(message["name"])):
            yield f"message {place} has an illegal name"
        yield from _content(place, message)
        if role == "assistant" and "tool_calls" in message:
            yield from _calls(place, message["tool_calls"])


def _content(place: int, message: dict[str, Any]) -> Iterator[str]:
    content = message.get("content")
    if content is None:
        if "content" not in message:
            yield f"message {place} has no content key"
        if not message.get("tool_calls"):
            yield f"message {place} has content null without tool_calls"
    elif not isinstance(content, str) or not content.strip():
        yield f"message {place} ({message.get('role')}) has empty content"


def _calls(place: int, calls: object) -> Iterator[str]:
    if not isinstance(calls, list) or not calls:
        yield f"message {place} has an empty tool_calls list"
        return
    for call in calls:
        function = call.get("function", {})
        if call.get("type") != "function" or not isinstance(call.get("id"), str) or not call["id"]:
            yield f"message {place} has a call without type or id"
        if not _NAME.match(str(function.get("name"))):
            yield f"message {place} has a call with an illegal name"
        if not _is_object_text(function.get("arguments")):
            yield f"message {place} has arguments that are no JSON object in text form"


def _is_object_text(text: object) -> bool:
    try:
        return isinstance(text, str) and isinstance(json.loads(text, parse_constant=_refuse), dict)
    except (ValueError, RecursionError):
        return False


def _refuse(name: str) -> Any:
    raise ValueError(name)


def _pairing(messages: list[dict[str, Any]]) -> Iterator[str]:
    seen: set[str] = set()
    awaited: list[str] = []
    for place, message in enumerate(messages):
        if message.get("role") == "tool":
            if not awaited or message.get("tool_call_id") != awaited.pop(0):
                yield f"message {place} is a result that answers no call, or out of order"
            continue
        if awaited:
            yield f"message {place} comes before all calls have results"
        awaited = [str(call.get("id")) for call in message.get("tool_calls") or []]
        if len(set(awaited)) != len(awaited) or seen & set(awaited):
            yield f"message {place} repeats a call id"
        seen |= set(awaited)
    if awaited:
        yield "the last calls have no results"


def _dialect_rules(messages: list[dict[str, Any]], dialect: Dialect) -> Iterator[str]:
    for place, message in enumerate(messages):
        reasoning = message.get("reasoning_content")
        if dialect == "deepseek_thinking":
            if message.get("tool_calls") and not isinstance(reasoning, str):
                yield f"message {place} calls tools without its reasoning_content"
        elif "reasoning_content" in message:
            yield f"message {place} has reasoning_content, which is refused"
        if dialect == "alternating" and place and message.get("role") == messages[place - 1].get("role") != "tool":
            yield f"message {place} has the role of the one before"


def _surrogates(value: object) -> Iterator[str]:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        yield "a text holds a lone surrogate"

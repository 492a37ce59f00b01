"""Reads a request as the demo model sees it: the question, the tools, and what the calls since the question brought."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_LONGEST_QUESTION = 4_000
_NOTE = "[AgentLoom]"  # how what the platform says in a user's place begins


@dataclass(frozen=True, slots=True)
class Offered:
    """One tool of the request."""

    name: str
    description: str
    properties: Mapping[str, Any]
    required: tuple[str, ...]

    def parameter(self, *hints: str) -> str | None:
        """The first text parameter with one of these hints in its name, else the only required one."""
        texts = [name for name, schema in self.properties.items() if schema.get("type", "string") == "string"]
        hinted = [name for name in texts if any(hint in name.lower() for hint in hints)]
        only = list(self.required) if len(self.required) == 1 and self.required[0] in texts else []
        return next(iter(hinted + only), None)


@dataclass(frozen=True, slots=True)
class Made:
    """One call of this turn and its result."""

    name: str
    arguments: Mapping[str, Any]
    result: str


@dataclass(frozen=True, slots=True)
class Conversation:
    """A request, read."""

    system: str
    question: str
    """The user's texts since the last final answer, without the platform's notes and, if others remain, long ones."""
    tools: tuple[Offered, ...]
    made: tuple[Made, ...]
    material: str
    """All texts of the user, for a summary."""
    max_tokens: int | None

    def tool(self, *hints: str) -> Offered | None:
        """The first tool that has one of these words in its name, in the order of the hints."""
        named = (tool for hint in hints for tool in self.tools if hint in tool.name.lower())
        return next(named, None)

    def calls_of(self, tool: Offered | None) -> list[Made]:
        return [call for call in self.made if tool is not None and call.name == tool.name]


def read_request(request: Mapping[str, Any]) -> Conversation:
    """Raises KeyError, TypeError, AttributeError or ValueError for something that is no chat-completions request."""
    messages = list(request["messages"])
    turn = messages[_turn_start(messages) :]
    limit = request.get("max_tokens") or request.get("max_completion_tokens")
    return Conversation(
        system="\n".join(_texts(messages, "system")),
        question=_question(list(_texts(turn, "user")) or list(_texts(messages, "user"))),
        tools=tuple(_offered(tool["function"]) for tool in request.get("tools", [])),
        made=tuple(_made(turn)),
        material="\n\n".join(_texts(messages, "user")),
        max_tokens=int(limit) if limit else None,
    )


def _turn_start(messages: Sequence[Mapping[str, Any]]) -> int:
    """Behind the last assistant message that called nothing: a final answer, or a marked fragment."""
    finals = [i for i, m in enumerate(messages) if m.get("role") == "assistant" and not m.get("tool_calls")]
    return finals[-1] + 1 if finals else 0


def _question(texts: list[str]) -> str:
    texts = [text for text in texts if not text.startswith(_NOTE)] or texts
    short = [text for text in texts if len(text) <= _LONGEST_QUESTION]
    return "\n".join(short or [text[-_LONGEST_QUESTION:] for text in texts[-1:]])


def _texts(messages: Sequence[Mapping[str, Any]], role: str) -> Iterator[str]:
    return (str(m["content"]) for m in messages if m.get("role") == role and m.get("content"))


def _offered(function: Mapping[str, Any]) -> Offered:
    schema = function.get("parameters") or {}
    return Offered(
        name=function["name"],
        description=function.get("description") or "",
        properties=schema.get("properties") or {},
        required=tuple(schema.get("required") or ()),
    )


def _made(turn: Sequence[Mapping[str, Any]]) -> Iterator[Made]:
    results = {m.get("tool_call_id"): str(m.get("content") or "") for m in turn if m.get("role") == "tool"}
    for message in turn:
        for call in message.get("tool_calls") or []:
            function = call["function"]
            yield Made(function["name"], json.loads(function["arguments"] or "{}"), results.get(call["id"], ""))

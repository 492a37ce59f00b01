"""Tools that AgentLoom brings itself: each a schema, an effect of its own, and a backend given by whoever wires.

A new one is an entry in `BUILTINS` and a field in `Backends`.
"""

import json
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from context.errors import ConfigurationInvalidError
from context.policy import Effect, FrozenTool, ToolEntry
from tools.outcomes import error_outcome, exact_json, text_outcome
from tools.port import ToolInvocation, ToolOutcome

PAGE_CHARS = 20_000
"""Longest page of `result_read`, in characters."""
LEAST_PAGE_BYTES = 400
"""A page may always have so much, whatever the window."""


class ReadResult(Protocol):
    """The whole stored content that a result_ref of this session names, or None if there is none."""

    async def __call__(self, result_ref: str, session_id: UUID) -> str | None: ...


@dataclass(frozen=True)
class Backends:
    """What the built-in tools reach."""

    read_result: ReadResult


@dataclass(frozen=True)
class Builtin:
    """One built-in tool before it is frozen."""

    description: str
    parameters: dict[str, Any]
    effect: Effect
    answer: Callable[["BuiltinTool", ToolInvocation], Awaitable[ToolOutcome]]


class BuiltinTool:
    """A built-in tool of a release. `page_bytes`: how much of the input budget a page may take, as UTF-8 in JSON."""

    def __init__(self, frozen: FrozenTool, backends: Backends, *, page_bytes: int) -> None:
        self.frozen = frozen
        self.backends = backends
        self.page_bytes = max(LEAST_PAGE_BYTES, page_bytes)
        self._answer = BUILTINS[frozen.name].answer

    async def run(self, call: ToolInvocation, *, on_progress: Callable[[], None]) -> ToolOutcome:
        return await self._answer(self, call)


def freeze_builtin(entry: ToolEntry) -> FrozenTool:
    """The tool as frozen into a release. Raises ConfigurationInvalidError for a name that is not built in."""
    found = BUILTINS.get(entry.name)
    if found is None:
        known = ", ".join(BUILTINS)
        raise ConfigurationInvalidError(f"There is no built-in tool '{entry.name}'; there is: {known}.")
    return FrozenTool(
        name=entry.name,
        description=entry.description or found.description,
        parameters=found.parameters,
        kind="builtin",
        entry_name=entry.name,
        effect=found.effect,
        timeout_s=entry.timeout_s,
    )


def has_backend(frozen: FrozenTool) -> bool:
    """Whether this version still has the built-in tool that a release froze."""
    return frozen.name in BUILTINS


async def _result_read(tool: BuiltinTool, call: ToolInvocation) -> ToolOutcome:
    """One page of a stored result, as a plain new result (SPEC T5); it ends where the window would have no room."""
    reference = call.arguments["result_ref"]
    offset, limit = int(call.arguments.get("offset", 0)), int(call.arguments.get("limit", PAGE_CHARS))
    text = await tool.backends.read_result(reference, call.session_id)
    if text is None:
        return error_outcome("NotFound", "There is no result with this result_ref in this session.")
    if offset > len(text):
        return error_outcome("OutOfRange", "offset is past the end of the result.", total_chars=len(text))
    page = _page(reference, text, offset, fitting(text[offset : offset + limit], tool.page_bytes))
    return text_outcome(page, exact_json(page))


def fitting(text: str, most_bytes: int) -> int:
    """How many of the first characters take at most so many bytes as JSON; at least one, if there is one."""
    ends = range(1, len(text) + 1)
    return bisect_right(ends, most_bytes, key=lambda end: len(json.dumps(text[:end], ensure_ascii=False).encode())) or 1


def _page(reference: str, text: str, offset: int, limit: int) -> str:
    end = min(offset + limit, len(text))
    place: dict[str, Any] = {"result_ref": reference, "range": [offset, end], "total_chars": len(text)}
    if end < len(text):
        place["next_offset"] = end
    return f"{json.dumps(place, ensure_ascii=False)}\n{text[offset:end]}"


def _whole_number(minimum: int, default: int, description: str) -> dict[str, Any]:
    return {"type": "integer", "minimum": minimum, "default": default, "description": description}


BUILTINS: Mapping[str, Builtin] = {
    "result_read": Builtin(
        description=(
            "Read a part of an earlier tool result that was shown shortened or summarised. Returns the characters "
            "from offset on, with their range and the total; go on at next_offset for more."
        ),
        parameters={
            "type": "object",
            "properties": {
                "result_ref": {
                    "type": "string",
                    "description": "The result_ref given with the shortened result or with the summary.",
                },
                "offset": _whole_number(0, 0, "First character to read."),
                "limit": _whole_number(1, PAGE_CHARS, "Characters to read.") | {"maximum": PAGE_CHARS},
            },
            "required": ["result_ref"],
            "additionalProperties": False,
        },
        effect="read_only",
        answer=_result_read,
    ),
}
"""Every built-in tool by name (SPEC T6)."""

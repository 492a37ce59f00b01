"""Decides whether the arguments of a call fit the frozen schema; nothing is guessed (SPEC T3).

Messages are for the model: they name the place and the rule, and repeat no value.
"""

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from jsonschema.exceptions import ValidationError

from context.messages import DEEPEST_ARGUMENTS, arguments_object, depth_of
from tools.outcomes import error_content
from tools.schemas import TooMuchToCheckError, errors_of

_MAX_MESSAGES = 5
_MAX_RULE_CHARS = 200
_LARGE = 20_000  # characters of arguments or of a schema: reading them takes milliseconds


@dataclass(frozen=True)
class Accepted:
    """Arguments that fit the schema."""

    arguments: dict[str, Any]


@dataclass(frozen=True)
class Refused:
    """A call that is not made; `content` is its result for the model."""

    message: str
    error_type: Literal["InvalidArguments", "UnknownTool"] = "InvalidArguments"

    @property
    def content(self) -> str:
        return error_content(self.error_type, self.message)


NO_OBJECT = Refused(
    "The arguments are not a valid JSON object; the tool was not called. Send the call again with one, {} if the tool"
    " takes no arguments."
)
TOO_MUCH = Refused("The arguments are too large to be checked; the tool was not called. Send less at once.")


def is_large(schema: dict[str, Any]) -> bool:
    """Whether looking at the schema alone takes milliseconds."""
    return len(json.dumps(schema)) >= _LARGE


async def checked_beside(text: str, schema: dict[str, Any], *, large: bool) -> Accepted | Refused:
    """The verdict of `check_arguments`; a check that takes long leaves the event loop, whose heartbeats must go on.

    Few schemas are large, and a small one can be worse: so a check is begun here, and made anew in a thread if it turns
    out to be long. An ordinary one costs no hop to a thread. `large` is what `is_large` says of the schema.
    """
    if not large and len(text) < _LARGE:
        try:
            return _verdict(text, schema, soon=True)
        except TooMuchToCheckError:
            pass
    return await asyncio.to_thread(check_arguments, text, schema)


def check_arguments(text: str, schema: dict[str, Any]) -> Accepted | Refused:
    """The verdict about a call's argument text as the model wrote it; empty text means no arguments (SPEC A11)."""
    try:
        return _verdict(text, schema, soon=False)
    except TooMuchToCheckError:
        return TOO_MUCH


def _verdict(text: str, schema: dict[str, Any], *, soon: bool) -> Accepted | Refused:
    arguments = arguments_object(text)
    if arguments is None:
        return NO_OBJECT
    if depth_of(arguments) > DEEPEST_ARGUMENTS:
        return Refused(f"The arguments are nested deeper than {DEEPEST_ARGUMENTS} levels.")
    if not _encodes(arguments):
        return Refused("The arguments contain a lone surrogate, which is not valid Unicode text.")
    if (twice := _repeated_key(text)) is not None:
        return Refused(f"The key {twice[:50]!r} is there twice in one object; the tool was not called.")
    errors = _sorted(errors_of(arguments, schema, soon=soon))
    messages = [_message(error) for error in errors[:_MAX_MESSAGES]]
    return Refused("; ".join(messages)) if messages else Accepted(arguments)


def unknown_tool(name: str, known: Iterable[str]) -> Refused:
    """The verdict about a call of a tool that the release doesn't have."""
    return Refused(f"There is no tool {name[:100]!r}. Tools: {', '.join(known) or 'none'}.", "UnknownTool")


class _RepeatedKeyError(Exception):
    """A key is there twice; its one argument is the key."""


def _repeated_key(text: str) -> str | None:
    """A key that is there twice in one object; JSON's readers differ in which value they take."""
    try:
        json.loads(text.strip() or "{}", object_pairs_hook=_once)
    except _RepeatedKeyError as error:
        return str(error)
    return None


def _once(pairs: list[tuple[str, Any]]) -> None:
    keys: set[str] = set()
    for key, _ in pairs:
        if key in keys:
            raise _RepeatedKeyError(key)
        keys.add(key)


def _sorted(errors: list[ValidationError]) -> list[ValidationError]:
    return sorted(errors, key=lambda error: ([str(step) for step in error.absolute_path], str(error.validator)))


def _message(error: ValidationError) -> str:
    place = ".".join(str(step) for step in error.absolute_path) or "arguments"
    rule: Any = error.validator_value
    if error.validator == "required" and isinstance(error.instance, dict):
        missing = [name for name in list(rule) if name not in error.instance]
        return f"{place}: missing {', '.join(map(repr, missing))}"
    if error.validator == "additionalProperties" and isinstance(error.instance, dict):
        extra = sorted(error.instance.keys() - _declared(error.schema))
        return f"{place}: unknown {', '.join(repr(name[:50]) for name in extra[:_MAX_MESSAGES])}"
    return f"{place}: must satisfy {error.validator} {str(rule)[:_MAX_RULE_CHARS]}"


def _declared(schema: Any) -> set[str]:
    return set(schema.get("properties", {})) if isinstance(schema, dict) else set()


def _encodes(value: Any) -> bool:
    if isinstance(value, str):
        return value.isascii() or value.encode(errors="replace").decode() == value
    if isinstance(value, dict):
        return all(map(_encodes, value)) and all(map(_encodes, value.values()))
    return all(map(_encodes, value)) if isinstance(value, list) else True

"""Turns what a Python function returned into an outcome: text stays, values become JSON, bytes become artifacts."""

import dataclasses
import json
import math
from typing import Any
from uuid import UUID

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_jsonable_python

from tools.outcomes import artifact_note, error_outcome, exact_json, sniffed_media_type, text_outcome
from tools.port import Artifact, ToolOutcome


def outcome_of_value(value: Any, operation_id: UUID) -> ToolOutcome:
    """The outcome of a call that returned; a value that JSON can't express is the tool's own failure (SPEC T9)."""
    artifacts: list[Artifact] = []
    try:
        plain = _plain(value, artifacts, operation_id)
        raw, content = exact_json(plain), _content(plain)
    except (PydanticSerializationError, RecursionError, UnicodeEncodeError):
        kind = type(value).__name__
        return error_outcome("ResultNotSerializable", f"The tool ran and returned a {kind} that JSON can't express.")
    return text_outcome(content, raw, artifacts=tuple(artifacts))


def _content(plain: Any) -> str:
    if plain is None:
        return ""
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False, allow_nan=False)


def _plain(value: Any, artifacts: list[Artifact], operation_id: UUID) -> Any:
    """The value with JSON's types only; every piece of bytes goes to `artifacts` and leaves its reference."""
    match value:
        case str() | bool() | int() | None:
            return value if type(value) in {str, bool, int, type(None)} else to_jsonable_python(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes() | bytearray() | memoryview():
            body = bytes(value)
            return _plain(Artifact(sniffed_media_type(body), body), artifacts, operation_id)
        case Artifact():
            artifacts.append(value)
            return artifact_note(operation_id, len(artifacts), value)
        case list() | tuple() | set() | frozenset():
            return [_plain(item, artifacts, operation_id) for item in value]
    return _plain_object(value, artifacts, operation_id)


def _plain_object(value: Any, artifacts: list[Artifact], operation_id: UUID) -> Any:
    if isinstance(value, BaseModel):
        value = value.model_dump()
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {_key(key): _plain(item, artifacts, operation_id) for key, item in value.items()}
    return to_jsonable_python(value, inf_nan_mode="strings")


def _key(key: Any) -> str:
    return key if isinstance(key, str) else next(iter(to_jsonable_python({key: None})))

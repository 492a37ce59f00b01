"""Turns what a Python function returned into an outcome: text stays, values become JSON, bytes become artifacts.

A value may be of the user's own types, whose code runs here: whatever it raises is the tool's own failure.
"""

import dataclasses
import json
import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence, Set, ValuesView
from enum import Enum
from functools import partial
from itertools import islice
from typing import Any
from uuid import UUID

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from tools.outcomes import artifact_note, error_outcome, exact_json, sniffed_media_type, text_outcome
from tools.port import Artifact, ToolOutcome
from tools.running import Raised, attempted

MAX_RESULT_BYTES = 64 * 1024 * 1024
"""A longer result, or artifact, is an error result, since it can't be kept whole."""
_MAX_ITEMS = 1_000_000
_PLAIN_TYPES = frozenset({str, bool, int, type(None)})


def outcome_of_value(value: Any, operation_id: UUID) -> ToolOutcome:
    """The outcome of a call that returned; a value that JSON can't express is the tool's own failure (SPEC T9)."""
    artifacts: list[Artifact] = []
    result = attempted(partial(_expressed, value, artifacts, operation_id))
    if isinstance(result, Raised):
        kind = type(value).__name__
        return error_outcome("ResultNotSerializable", f"The tool ran and returned a {kind} that JSON can't express.")
    raw, content = result.value
    if max(len(raw), *(len(artifact.body) for artifact in artifacts), 0) > MAX_RESULT_BYTES:
        return error_outcome("ResultTooLarge", f"The tool ran and returned more than {MAX_RESULT_BYTES} bytes.")
    return text_outcome(content, raw, artifacts=tuple(artifacts))


def _expressed(value: Any, artifacts: list[Artifact], operation_id: UUID) -> tuple[bytes, str]:
    plain = _plain(value, artifacts, operation_id)
    return exact_json(plain), _content(plain)


def _content(plain: Any) -> str:
    if plain is None:
        return ""
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False, allow_nan=False)


def _plain(value: Any, artifacts: list[Artifact], operation_id: UUID) -> Any:
    """The value with JSON's types only; every piece of bytes goes to `artifacts` and leaves its reference."""
    match value:
        case _ if type(value) in _PLAIN_TYPES:
            return value
        case Enum():
            return _plain(value.value, artifacts, operation_id)
        case str():
            return str.__str__(value)
        case float():
            return float(value) if math.isfinite(value) else str(float(value))
        case bytes() | bytearray() | memoryview():
            body = bytes(value)
            return _plain(Artifact(sniffed_media_type(body), body), artifacts, operation_id)
        case Artifact():
            artifacts.append(value)
            return artifact_note(operation_id, len(artifacts), value)
        case Sequence() | Set() | deque() | ValuesView() | Iterator():
            return [_plain(item, artifacts, operation_id) for item in _items(value)]
    return _plain_object(value, artifacts, operation_id)


def _items(value: Any) -> list[Any]:
    """What is in it; an iterator may have no end."""
    items = list(islice(value, _MAX_ITEMS + 1))
    if len(items) > _MAX_ITEMS:
        raise OverflowError
    return items


def _plain_object(value: Any, artifacts: list[Artifact], operation_id: UUID) -> Any:
    if isinstance(value, BaseModel):
        value = value.model_dump()
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        plain = {_key(key): _plain(item, artifacts, operation_id) for key, item in value.items()}
        if len(plain) != len(value):  # 1 and "1" are one key in JSON, and one of them would be lost
            raise ValueError
        return plain
    return to_jsonable_python(value, inf_nan_mode="strings")


def _key(key: Any) -> str:
    return str.__str__(key) if isinstance(key, str) else next(iter(to_jsonable_python({key: None})))

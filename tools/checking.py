"""JSON schema checks of bounded work: no schema or value of other people holds up a worker (decision 0082).

Each keyword is charged before it is looked at; `WorkExceededError` ends a check that would go on for too long. Patterns
are RE2's. A pattern that RE2 doesn't have, and what is left over after all branches (`unevaluated…`), is not checked.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, cast

from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend
from jsonschema_specifications import REGISTRY
from referencing.jsonschema import specification_with

from tools.patterns import Pattern, compiled

Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]

UNCHECKED = ("unevaluatedItems", "unevaluatedProperties")
_MOST_STEPS = 200_000
_SOON = 1_000
_BYTES_OF_A_STEP = 500
_STEPS_OF_A_LOST_PATTERN = 1_000
_INSTRUCTIONS_OF_A_STEP = 5


class WorkExceededError(Exception):
    """The check would take too long."""


class _Work:
    """What one check may still do, and the patterns it has compiled."""

    def __init__(self, steps: int) -> None:
        self._left = steps
        self._patterns: dict[str, Pattern | None] = {}

    def charge(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise WorkExceededError

    def matches(self, pattern: str, text: str, *, unknown: bool) -> bool:
        """Whether the pattern is found in the text; `unknown` if it can't be looked for."""
        self.charge(1)
        found = self._compiled(pattern)
        if found is None:
            return unknown
        self.charge(found.programsize * len(text.encode()) // _BYTES_OF_A_STEP)
        return found.search(text) is not None

    def _compiled(self, pattern: str) -> Pattern | None:
        if pattern not in self._patterns:
            found = self._patterns[pattern] = compiled(pattern)
            self.charge(found.programsize // _INSTRUCTIONS_OF_A_STEP if found else _STEPS_OF_A_LOST_PATTERN)
        return self._patterns[pattern]


_work: ContextVar[_Work] = ContextVar("work")


@contextmanager
def bounded(*, soon: bool = False) -> Iterator[None]:
    """What is checked within has a bounded number of steps, a few milliseconds' if `soon`. Raises WorkExceededError."""
    token = _work.set(_Work(_SOON if soon else _MOST_STEPS))
    try:
        yield
    except RecursionError:  # a schema that refers to itself without going deeper into the value
        raise WorkExceededError from None
    finally:
        _work.reset(token)


@cache
def bounded_kind(kind: type[Validator]) -> Any:
    """The validator class of this draft, within bounds."""
    keywords: dict[str, Keyword] = {name: _charged(keyword) for name, keyword in kind.VALIDATORS.items()}
    own: dict[str, Keyword] = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "uniqueItems": _unique_items,
        **dict.fromkeys(UNCHECKED, _nothing),
    }
    build: Callable[..., Any] = extend
    return build(kind, {**keywords, **{name: own[name] for name in own if name in keywords}})


def bounded_validator(kind: type[Validator], schema: Any) -> Any:
    """A validator of the schema; nothing in it can name another class, or has to be searched for again and again."""
    plain, meta = _without_dialects(schema), cast("dict[str, Any]", kind.META_SCHEMA)
    resource = specification_with(meta["$schema"]).create_resource(plain)
    base = resource.id() or ""
    resolver = REGISTRY.with_resource(base, resource).crawl().resolver(base)
    return bounded_kind(kind)(plain, _resolver=resolver)


def _without_dialects(node: Any) -> Any:
    """The schema without `$schema`: a part with one would be given to that draft's class, which has no bounds."""
    if isinstance(node, dict):
        return {key: _without_dialects(part) for key, part in node.items() if not _names_dialect(key, part)}
    return [_without_dialects(part) for part in node] if isinstance(node, list) else node


def _names_dialect(key: str, part: Any) -> bool:
    return key == "$schema" and isinstance(part, str)


def _charged(keyword: Keyword) -> Keyword:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        work = _work.get()
        work.charge(1 + (len(value) if isinstance(value, list | dict) else 0))
        for error in keyword(validator, value, instance, schema) or ():
            work.charge(len(error.message) // _BYTES_OF_A_STEP)  # it repeats the whole value, at each level
            yield error

    return check


def _nothing(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    yield from ()


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not _work.get().matches(pattern, instance, unknown=True):
        yield ValidationError("does not match")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    for pattern, part in patterns.items() if isinstance(instance, dict) else ():
        for key, value in instance.items():
            if _work.get().matches(pattern, key, unknown=False):
                yield from validator.descend(value, part, path=key, schema_path=pattern)


def _additional_properties(validator: Any, rule: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    extra = list(_additional(instance, schema)) if isinstance(instance, dict) else []
    if isinstance(rule, dict):
        for key in extra:
            yield from validator.descend(instance[key], rule, path=key)
    elif extra and rule is False:
        yield ValidationError("has more properties")


def _additional(instance: dict[str, Any], schema: dict[str, Any]) -> Iterator[str]:
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    matches = _work.get().matches
    for key in instance:
        if key not in known and not any(matches(pattern, key, unknown=True) for pattern in patterns):
            yield key


def _unique_items(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if wanted and isinstance(instance, list):
        _work.get().charge(len(instance))
        if len({_identity(item) for item in instance}) < len(instance):
            yield ValidationError("has non-unique elements")


def _identity(value: Any) -> Any:
    """Something hashable that is equal for equal JSON values only: 1 is 1.0, and no true."""
    if isinstance(value, dict):
        return ("object", frozenset((key, _identity(part)) for key, part in value.items()))
    if isinstance(value, list):
        return ("array", tuple(map(_identity, value)))
    return (isinstance(value, bool), value)

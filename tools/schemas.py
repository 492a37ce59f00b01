"""JSON schemas of arguments: which ones can be frozen into a release, and how arguments are checked against them.

Draft 2020-12 unless the schema names another draft. A reference never leaves the schema: no check reaches out. What was
declared here must be checkable within bounds; what a server or a function's types say may hold more, and they check it.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from referencing import Registry, Resource
from referencing._core import Resolver
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from context.errors import ConfigurationInvalidError
from tools.checking import UNCHECKED, WorkExceededError, bounded, bounded_validator
from tools.patterns import compiled

_VALUES = frozenset({"const", "enum", "default", "examples"})
_NAMED_PARTS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})


class TooMuchToCheckError(Exception):
    """Checking this value against this schema would hold up everything else."""


def errors_of(value: Any, schema: dict[str, Any], *, soon: bool = False) -> list[ValidationError]:
    """What is wrong with a value, by a schema that `checked_schema` has passed. Raises TooMuchToCheckError.

    `soon`: it is too much already where it would hold up an event loop.
    """
    kind: type[Validator] = validator_for(schema, default=Draft202012Validator)
    return _errors(kind, schema, value, soon=soon)


def checked_schema(schema: dict[str, Any], *, tool: str, declared: bool = True) -> dict[str, Any]:
    """The schema if it can describe an arguments object and stands on its own; one `declared` can be checked wholly.

    A list of anything is written out, since strict servers refuse one without `items` (SPEC A11). Raises
    ConfigurationInvalidError, naming the tool.
    """
    if schema.get("type") != "object":
        raise ConfigurationInvalidError(f'The schema of the tool \'{tool}\' must have "type": "object".')
    if broken := _broken_part(schema, tool=tool):
        raise ConfigurationInvalidError(f"The schema of the tool '{tool}' is not valid JSON Schema at '{broken}'.")
    if declared and (found := next(_uncheckable(schema), None)):
        place, why = found
        raise ConfigurationInvalidError(f"The schema of the tool '{tool}' can't be checked at '{place}': {why}")
    resolver = _resolver(schema)
    if lost := next((name for name in set(_references(schema)) if not _resolves(resolver, name)), None):
        raise ConfigurationInvalidError(f"The schema of the tool '{tool}' refers to '{lost[:100]}', which it lacks.")
    whole: dict[str, Any] = _with_items(schema)
    return whole


def _with_items(node: Any) -> Any:
    """The same schema in which each list names its items."""
    if isinstance(node, list):
        return [_with_items(part) for part in node]
    if not isinstance(node, dict):
        return node
    whole = {key: _part_with_items(key, part) for key, part in node.items()}
    kinds = node["type"] if isinstance(node.get("type"), list) else [node.get("type")]
    is_bare = "array" in kinds and not node.keys() & {"items", "prefixItems"}
    return whole | {"items": {}} if is_bare else whole


def _part_with_items(key: str, part: Any) -> Any:
    if key in _NAMED_PARTS and isinstance(part, dict):
        return {name: _with_items(named) for name, named in part.items()}
    return part if key in _VALUES else _with_items(part)


def _errors(kind: type[Validator], schema: Any, value: Any, *, soon: bool = False) -> list[ValidationError]:
    try:
        with bounded(soon=soon):
            errors: Iterable[ValidationError] = bounded_validator(kind, schema).iter_errors(value)
            return list(errors)
    except WorkExceededError:
        raise TooMuchToCheckError from None


def _broken_part(schema: dict[str, Any], *, tool: str) -> str | None:
    kind: type[Validator] = validator_for(schema, default=Draft202012Validator)
    try:
        errors = _errors(kind, kind.META_SCHEMA, schema)
    except TooMuchToCheckError:
        raise ConfigurationInvalidError(f"The schema of the tool '{tool}' is too large or too deep.") from None
    return (".".join(str(step) for step in errors[0].absolute_path) or "its root") if errors else None


def _uncheckable(node: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Places that are left out of every check, and why; a property may bear the name of a keyword."""
    if isinstance(node, list):
        for number, part in enumerate(node):
            yield from _uncheckable(part, f"{place}{number}.")
    for key, part in node.items() if isinstance(node, dict) else ():
        if key == "pattern" and isinstance(part, str):
            yield from _refused_pattern(part, f"{place}{key}")
        if key == "patternProperties" and isinstance(part, dict):
            for pattern in part:
                yield from _refused_pattern(pattern, f"{place}{key}")
        if key in UNCHECKED and not place.endswith("properties."):
            yield f"{place}{key}", "this keyword is not supported; use additionalProperties or items."
        if key not in _VALUES:
            yield from _uncheckable(part, f"{place}{key}.")


def _refused_pattern(pattern: str, place: str) -> Iterator[tuple[str, str]]:
    if compiled(pattern) is None:
        yield place, "write the pattern without look-around and back-references, as RE2 has it."


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        yield from (value for key, value in node.items() if key in {"$ref", "$dynamicRef"} and isinstance(value, str))
        node = list(node.values())
    if isinstance(node, list):
        for item in node:
            yield from _references(item)


def _resolver(schema: dict[str, Any]) -> Resolver[Any]:
    resource = Resource.from_contents(schema, default_specification=DRAFT202012)
    base = resource.id() or ""
    registry: Registry[Any] = Registry()
    resolver: Resolver[Any] = registry.with_resource(base, resource).crawl().resolver(base)
    return resolver


def _resolves(resolver: Resolver[Any], reference: str) -> bool:
    try:
        resolver.lookup(reference)
    except Unresolvable:
        return False
    return True

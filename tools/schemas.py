"""JSON schemas of arguments: which ones can be frozen into a release, and how arguments are checked against them.

Draft 2020-12 unless the schema names another draft. A reference never leaves the schema: no check reaches out.
"""

from collections.abc import Iterator
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from referencing import Registry, Resource
from referencing._core import Resolver
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from context.errors import ConfigurationInvalidError


def validator_of(schema: dict[str, Any]) -> Validator:
    """The validator of a schema that `checked_schema` has passed."""
    kind = validator_for(schema, default=Draft202012Validator)
    return kind(schema, registry=Registry())


def checked_schema(schema: dict[str, Any], *, tool: str) -> dict[str, Any]:
    """The schema if it can describe an arguments object and stands on its own.

    Raises ConfigurationInvalidError, naming the tool.
    """
    if schema.get("type") != "object":
        raise ConfigurationInvalidError(f'The schema of the tool \'{tool}\' must have "type": "object".')
    if broken := _broken_part(schema):
        raise ConfigurationInvalidError(f"The schema of the tool '{tool}' is not valid JSON Schema at '{broken}'.")
    resolver = _resolver(schema)
    if lost := next((name for name in _references(schema) if not _resolves(resolver, name)), None):
        raise ConfigurationInvalidError(f"The schema of the tool '{tool}' refers to '{lost[:100]}', which it lacks.")
    return schema


def _broken_part(schema: dict[str, Any]) -> str | None:
    try:
        validator_for(schema, default=Draft202012Validator).check_schema(schema)
    except SchemaError as error:
        return ".".join(str(step) for step in error.absolute_path) or "its root"
    return None


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
    resolver: Resolver[Any] = registry.with_resource(base, resource).resolver(base)
    return resolver


def _resolves(resolver: Resolver[Any], reference: str) -> bool:
    try:
        resolver.lookup(reference)
    except Unresolvable:
        return False
    return True

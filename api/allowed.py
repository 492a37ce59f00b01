"""Whether an address can lead anywhere: a known path whose parts can be the ids and names they stand for."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from starlette.requests import Request
from starlette.routing import compile_path

from api.parameters import is_id

Methods = Mapping[str, Mapping[str, Any]]


def fitting_methods(request: Request) -> list[str]:
    """The methods that the address takes over all routes, of those whose path parameters its parts can be."""
    if request.url.path == request.app.openapi_url:  # the document is in no document
        return ["GET", "HEAD"]
    methods = (
        method.upper()
        for parts, offered in _matching(request)
        for method, operation in offered.items()
        if all(_can_be(parts[one["name"]], one["schema"]) for one in operation.get("parameters", ()) if _in_path(one))
    )
    return sorted(set(methods))


def _matching(request: Request) -> Iterator[tuple[Mapping[str, str], Methods]]:
    """Each path of the document that the address has the shape of, with what its parameters would be."""
    paths: Mapping[str, Methods] = request.app.openapi()["paths"]
    for path, offered in paths.items():
        if found := compile_path(path)[0].match(request.url.path):
            yield found.groupdict(), offered


def _in_path(parameter: Mapping[str, Any]) -> bool:
    return bool(parameter["in"] == "path")


def _can_be(part: str, schema: Mapping[str, Any]) -> bool:
    if schema.get("format") == "uuid" and not is_id(part):
        return False
    return re.search(schema.get("pattern", ""), part) is not None

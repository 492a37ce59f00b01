"""Query parameters and headers are as strict as bodies: nothing unknown, nothing twice (SPEC Y5).

What is ignored in silence answers another question than the one that was asked. Names that are not ours are told by
their position (SPEC Y6).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args
from uuid import UUID

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError

from context.errors import InputInvalidError

# Headers that decide something here: of two, one program would read the first and the next one the last.
SINGLE_HEADERS = ("authorization", "content-type", "idempotency-key", "last-event-id")

# How ids and numbers are written, and what pydantic calls those that are not: it takes `+1`, `1_0` and `1.0` for
# numbers, and an id in five more forms.
PLAIN: Mapping[object, tuple[re.Pattern[str], str]] = {
    UUID: (re.compile("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"), "uuid_parsing"),
    int: (re.compile("-?[0-9]+"), "int_parsing"),
    float: (re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?"), "float_parsing"),
}


def query_kinds(route: Dependant) -> dict[str, object]:
    """The query parameters that a route and what it depends on take; each with its key in `PLAIN`, or None."""
    return dict(_query_kinds(route))


def path_ids(route: Dependant) -> tuple[str, ...]:
    """The parts of a route's path that are ids."""
    return tuple(one.alias for one in route.path_params if one.field_info.annotation is UUID)


def is_id(part: str) -> bool:
    """Whether this part of an address can be an id."""
    return _is_plain(UUID, part)


def check_ids(request: Request, ids: Sequence[str]) -> None:
    """Raises RequestValidationError if one of those parts of the address can be no id: it leads nowhere."""
    _check_plain("path", [(name, UUID, str(request.path_params[name])) for name in ids])


def check_query(request: Request, known: Mapping[str, object]) -> None:
    """Raises InputInvalidError for a parameter that is unknown or there twice, RequestValidationError for its form."""
    seen: set[str] = set()
    for position, (name, _) in enumerate(request.query_params.multi_items(), 1):
        if name not in known:
            takes = f"takes {', '.join(sorted(known))}" if known else "takes none"
            raise InputInvalidError(f"Query parameter {position} is not known here; this address {takes}.")
        if name in seen:
            raise InputInvalidError(f"query.{name} is there twice.")
        seen.add(name)
    _check_plain("query", [(name, known[name], value) for name, value in request.query_params.items()])


def check_headers(request: Request) -> None:
    """Raises InputInvalidError for a header that decides something and is there twice."""
    for name in SINGLE_HEADERS:
        if len(request.headers.getlist(name)) > 1:
            raise InputInvalidError(f"header.{name} is there twice.")


def _check_plain(place: str, given: Sequence[tuple[str, object, str]]) -> None:
    wrong = [(name, kind) for name, kind, value in given if not _is_plain(kind, value)]
    if problems := [{"loc": (place, name), "type": PLAIN[kind][1]} for name, kind in wrong]:
        raise RequestValidationError(problems)


def _is_plain(kind: object, value: str) -> bool:
    return kind not in PLAIN or PLAIN[kind][0].fullmatch(value) is not None


def _query_kinds(route: Dependant) -> Iterator[tuple[str, object]]:
    for parameter in route.query_params:
        annotation: Any = parameter.field_info.annotation
        yield parameter.alias, next((kind for kind in PLAIN if kind in (annotation, *get_args(annotation))), None)
    for inner in route.dependencies:
        yield from _query_kinds(inner)

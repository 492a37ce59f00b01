"""Query parameters and headers are as strict as bodies: nothing unknown, nothing twice (SPEC Y5).

What is ignored in silence answers another question than the one that was asked. Names that are not ours are told by
their position (SPEC Y6).
"""

from collections.abc import Iterator
from uuid import UUID

from fastapi import Request
from fastapi.dependencies.models import Dependant

from context.errors import InputInvalidError

# Headers that decide something here: of two, one program would read the first and the next one the last.
SINGLE_HEADERS = ("authorization", "content-type", "idempotency-key", "last-event-id")


def query_names(route: Dependant) -> frozenset[str]:
    """The query parameters that a route and what it depends on take."""
    return frozenset(_query_names(route))


def path_ids(route: Dependant) -> tuple[str, ...]:
    """The parts of a route's path that are ids."""
    return tuple(one.alias for one in route.path_params if one.field_info.annotation is UUID)


def leads_somewhere(request: Request, ids: tuple[str, ...]) -> bool:
    """Whether those parts of the address can be ids."""
    return all(is_id(str(request.path_params[name])) for name in ids)


def is_id(part: str) -> bool:
    """Whether this part of an address can be an id."""
    try:
        UUID(part)
    except ValueError:
        return False
    return True


def check_query(request: Request, known: frozenset[str]) -> None:
    """Raises InputInvalidError for a parameter that is unknown or there twice."""
    seen: set[str] = set()
    for position, (name, _) in enumerate(request.query_params.multi_items(), 1):
        if name not in known:
            takes = f"takes {', '.join(sorted(known))}" if known else "takes none"
            raise InputInvalidError(f"Query parameter {position} is not known here; this address {takes}.")
        if name in seen:
            raise InputInvalidError(f"query.{name} is there twice.")
        seen.add(name)


def check_headers(request: Request) -> None:
    """Raises InputInvalidError for a header that decides something and is there twice."""
    for name in SINGLE_HEADERS:
        if len(request.headers.getlist(name)) > 1:
            raise InputInvalidError(f"header.{name} is there twice.")


def _query_names(route: Dependant) -> Iterator[str]:
    yield from (parameter.alias for parameter in route.query_params)
    for inner in route.dependencies:
        yield from _query_names(inner)

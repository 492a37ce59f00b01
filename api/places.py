"""Where in a request something is wrong, told in names of ours and in positions (SPEC Y6).

A name that a client made up may be content just as a value may, so only names that our own schemas have are repeated.
Any other one is told by where it stands: `body.definition.(field 3)` is the third field of the definition.
"""

import difflib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, get_args

from pydantic import BaseModel

from api import admin_schemas
from api.schemas import Wanted
from context.written import BRANCHES

LONGEST_NAME = 64
KEY = "[key]"  # pydantic's mark for a mapping's own name, after that name
PARAMETERS = ("query", "header", "path", "cookie")  # named by the route alone


def place_of(location: Sequence[int | str], body: Any = None) -> str:
    """A dotted path through what was sent."""
    if location and location[0] in PARAMETERS:
        return ".".join(str(part) for part in location)
    return ".".join(_steps(location, {"body": body})) or "body"


def step_of(name: str, position: int) -> str:
    """One field of an object: its name if that is ours, else its position, counted from 1."""
    return name if name in known_names() else f"(field {position})"


def meant(name: str) -> str | None:
    """The name of ours that is nearest to one that isn't, if any is near."""
    if len(name) > LONGEST_NAME:
        return None
    return next(iter(difflib.get_close_matches(name, sorted(known_names()), n=1, cutoff=0.75)), None)


@lru_cache(maxsize=1)
def known_names() -> frozenset[str]:
    """Every name that a field of a request body can have."""
    return frozenset({"body", *_names((Wanted, admin_schemas.ConnectionSettings), set())})


def _steps(location: Sequence[int | str], value: Any) -> Iterator[str]:
    for part in location:
        if part == KEY:
            yield "(its name)"
        elif part not in BRANCHES:
            yield _step(part, value)
            value = _below(value, part)


def _step(part: int | str, value: Any) -> str:
    if isinstance(part, int):
        return str(part)
    if isinstance(value, dict) and part in value:
        return step_of(part, list(value).index(part) + 1)
    return part if part in known_names() else "(unnamed)"


def _below(value: Any, part: int | str) -> Any:
    if isinstance(value, dict):
        return value.get(part)
    return value[part] if isinstance(value, list) and isinstance(part, int) and part < len(value) else None


def _names(models: Sequence[type[BaseModel]], seen: set[type[BaseModel]]) -> Iterator[str]:
    for model in models:
        if model in seen:
            continue
        seen.add(model)
        for name, field in model.model_fields.items():
            yield field.alias or name
            yield from _names(list(_models_in(field.annotation)), seen)
        yield from _names(model.__subclasses__(), seen)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_in(inner)

"""A page of a list, and the cursor that gets the next one."""

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from uuid import UUID

from context.errors import InputInvalidError, NotFoundError

T = TypeVar("T")
MAX_LIMIT = 200


@dataclass(frozen=True)
class Page(Generic[T]):
    """Items in order; `next` is what to pass as `cursor` for more, None at the end."""

    items: Sequence[T]
    next: str | None


def page_of(found: Sequence[T], limit: int, key: Callable[[T], str]) -> Page[T]:
    """A page out of `limit + 1` rows asked for: the last one only tells that there is more."""
    items = found[:limit]
    return Page(items, encode_cursor(key(items[-1])) if len(found) > limit else None)


def clamped(limit: int) -> int:
    """A limit within 1 to 200."""
    return max(1, min(limit, MAX_LIMIT))


def encode_cursor(key: str) -> str:
    """A key as an opaque cursor."""
    return base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")


def decode_cursor(cursor: str) -> str:
    """The inverse. Raises InputInvalidError for anything that was not given out."""
    try:
        key = base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4)).decode()
    except (ValueError, binascii.Error):
        raise invalid_cursor() from None
    if "\0" in key:  # PostgreSQL takes no NUL in a text
        raise invalid_cursor()
    return key


def cursor_number(cursor: str | None, *, digits: int = 9) -> int:
    """A cursor over numbers that start at 1; 0 without one. Raises InputInvalidError."""
    key = decode_cursor(cursor) if cursor else "0"
    if not (key.isascii() and key.isdigit() and len(key) <= digits):
        raise invalid_cursor()
    return int(key)


def cursor_made_no(cursor: str | None) -> int:
    """A cursor over the order of facts, which are numbered from 1; 0 without one. Raises InputInvalidError."""
    return cursor_number(cursor, digits=18)


def invalid_cursor() -> InputInvalidError:
    """The refusal of a cursor."""
    return InputInvalidError("The cursor is not one that was given out for this list.")


def found(row: Mapping[str, Any] | None, kind: str, identity: UUID | str) -> Mapping[str, Any]:
    """The row. Raises NotFoundError for that kind of thing if there is none, be it unknown or another person's."""
    if row is None:
        raise NotFoundError.of(kind, identity)
    return row

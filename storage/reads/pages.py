"""A page of a list, and the cursor that gets the next one."""

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from uuid import UUID

from context.errors import InputInvalidError, NotFoundError

T = TypeVar("T")
MAX_LIMIT = 200
NUMBER = re.compile("[1-9][0-9]*")
NAME = re.compile("[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


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


def cursor_number(cursor: str | None, *, digits: int = 9) -> int:
    """A cursor over numbers that start at 1; 0 without one. Raises InputInvalidError."""
    if cursor is None:
        return 0
    key = _decoded(cursor)
    if not (NUMBER.fullmatch(key) and len(key) <= digits):
        raise _invalid_cursor()
    return int(key)


def cursor_made_no(cursor: str | None) -> int:
    """A cursor over the order of facts, which are numbered from 1; 0 without one. Raises InputInvalidError."""
    return cursor_number(cursor, digits=18)


def cursor_name(cursor: str | None) -> str:
    """A cursor over names; the empty text, which is before all of them, without one. Raises InputInvalidError."""
    if cursor is None:
        return ""
    key = _decoded(cursor)
    if not NAME.fullmatch(key):
        raise _invalid_cursor()
    return key


def _decoded(cursor: str) -> str:
    """The inverse of `encode_cursor`. Raises InputInvalidError for anything that it doesn't make."""
    try:
        key = base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4)).decode()
    except (ValueError, binascii.Error):
        raise _invalid_cursor() from None
    if encode_cursor(key) != cursor:
        raise _invalid_cursor()
    return key


def _invalid_cursor() -> InputInvalidError:
    return InputInvalidError("query.cursor is not one that was given out for this list.")


def found(row: Mapping[str, Any] | None, kind: str, identity: UUID | str) -> Mapping[str, Any]:
    """The row. Raises NotFoundError for that kind of thing if there is none, be it unknown or another person's."""
    if row is None:
        raise NotFoundError.of(kind, identity)
    return row

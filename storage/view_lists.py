"""The list of a view as rows and items: read by position, written once, and the head that a commit leaves behind."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.views import ViewItem
from storage.database import fetch_all
from storage.tables import request_views, view_items
from storage.writes import WriteSet

ITEMS = text("""
    SELECT kind, payload_id, tokens, source_id, run_no, revision, transform FROM view_items
    WHERE view_id = :view_id AND pos < :length ORDER BY pos
""")


@dataclass(frozen=True)
class Switch:
    """A list that takes the place of the first `before_length` items of another one, from which it has `inherited`.

    The first list of a Run goes on from a saved one of another Run, or from none.
    """

    view_id: UUID
    cause: str
    before_view_id: UUID | None
    before_length: int | None
    inherited: int | None


async def listed(connection: AsyncConnection, view_id: UUID | None, length: int) -> tuple[ViewItem, ...]:
    """The first `length` items of a view; references only."""
    if view_id is None:
        return ()
    rows = await fetch_all(connection, ITEMS, view_id=view_id, length=length)
    return tuple(ViewItem(**row) for row in rows)


def write_items(writes: WriteSet, view_id: UUID, items: Sequence[ViewItem], *, start: int = 0) -> None:
    """Put items into the commit's writes, from position `start` on."""
    writes.insert(view_items, [_row(view_id, start + at, item) for at, item in enumerate(items)])


def write_switch(writes: WriteSet, context_id: UUID, switch: Switch) -> None:
    """Put a new list into the commit's writes; the old one stays for the requests that were made from it."""
    place = {"view_id": switch.view_id, "context_id": context_id, "cause": switch.cause}
    before = {"before_view_id": switch.before_view_id, "before_length": switch.before_length}
    writes.insert(request_views, [place | before | {"inherited": switch.inherited}])


def _row(view_id: UUID, place: int, item: ViewItem) -> dict[str, Any]:
    shown = {"kind": item.kind, "source_id": item.source_id, "run_no": item.run_no, "revision": item.revision}
    content = {"payload_id": item.payload_id, "tokens": item.tokens, "transform": item.transform}
    return {"view_id": view_id, "pos": place} | shown | content

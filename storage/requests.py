"""A frozen request read back: the references of its view, with their content (SPEC A9).

The list of a view only grows, so the process keeps what it has read of it and asks only for the rest.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.errors import NotFoundError
from storage.database import fetch_all, fetch_one
from storage.payloads import Payloads
from storage.store import Store

OPERATION = text("""
    SELECT o.operation_id, o.session_id, o.run_id, o.context_id, o.state, o.loop_no, o.view_id, o.view_length,
           o.max_output_tokens, o.request_hash, o.verdict, r.release_id,
           EXISTS (SELECT 1 FROM input_deliveries d WHERE d.run_id = o.run_id AND d.state = 'claimed') AS claims
    FROM operations o JOIN runs r USING (run_id) WHERE o.operation_id = :operation_id
""")
ITEMS = text("""
    SELECT pos, kind, payload_id, source_id, run_no FROM view_items
    WHERE view_id = :view_id AND pos >= :start AND pos < :length ORDER BY pos
""")


@dataclass(frozen=True)
class ListedItem:
    """One place of a frozen request."""

    kind: str
    payload_id: bytes
    source_id: UUID | None
    is_protected: bool


@dataclass(frozen=True)
class FrozenRequest:
    """A model Operation with the items of its request, in order. `claims`: it carries inputs not yet delivered."""

    operation_id: UUID
    session_id: UUID
    run_id: UUID
    context_id: UUID
    release_id: UUID
    state: str
    loop: int
    max_output_tokens: int
    request_hash: bytes | None
    verdict: dict[str, Any] | None
    claims: bool
    items: tuple[ListedItem, ...]
    contents: dict[bytes, bytes] = field(repr=False)


class Requests:
    """Reads frozen requests; keeps the lists of the views it has seen lately."""

    def __init__(self, store: Store, *, views: int = 200) -> None:
        self._store = store
        self._lists: OrderedDict[UUID, list[ListedItem]] = OrderedDict()
        self._limit = views

    async def load(self, operation_id: UUID) -> FrozenRequest:
        """The request of a model Operation. Raises NotFoundError if there is none."""
        async with self._store.reading() as connection:
            row: Any = await fetch_one(connection, OPERATION, operation_id=operation_id)
            if row is None or row["view_id"] is None:
                raise NotFoundError
            items = await self._items(connection, row["view_id"], row["view_length"])
            contents = await _contents(self._store.payloads, connection, items)
        return _request(row, items, contents)

    async def _items(self, connection: AsyncConnection, view_id: UUID, length: int) -> tuple[ListedItem, ...]:
        known = self._lists.setdefault(view_id, [])
        self._lists.move_to_end(view_id)
        while len(self._lists) > self._limit:
            self._lists.popitem(last=False)
        if len(known) < length:
            rows = await fetch_all(connection, ITEMS, view_id=view_id, start=len(known), length=length)
            known += [_item(row) for row in rows if row["pos"] >= len(known)]
        return tuple(known[:length])


async def _contents(
    payloads: Payloads, connection: AsyncConnection, items: tuple[ListedItem, ...]
) -> dict[bytes, bytes]:
    return await payloads.read(connection, [item.payload_id for item in items])


def _item(row: Any) -> ListedItem:
    protected = row["run_no"] is None and row["kind"] in ("system", "input")
    return ListedItem(row["kind"], row["payload_id"], row["source_id"], protected)


def _request(row: Any, items: tuple[ListedItem, ...], contents: dict[bytes, bytes]) -> FrozenRequest:
    same = ("operation_id", "session_id", "run_id", "context_id", "release_id", "state", "max_output_tokens")
    rest = {"request_hash": row["request_hash"], "verdict": row["verdict"], "claims": row["claims"]}
    return FrozenRequest(
        **{name: row[name] for name in same}, loop=row["loop_no"], **rest, items=items, contents=contents
    )

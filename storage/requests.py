"""A frozen request read back: the references of its view, with their content (SPEC A9).

The list of a view only grows, so a process that has the beginning of it asks only for the rest.
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import text

from context.errors import NotFoundError
from context.messages import ChatMessage, message_from_bytes
from storage.database import fetch_all, fetch_one
from storage.store import Store

OPERATION = text("""
    SELECT o.operation_id, o.session_id, o.run_id, o.context_id, o.state, o.loop_no, o.view_id, o.view_length,
           o.request_hash, o.verdict, r.release_id,
           EXISTS (SELECT 1 FROM input_deliveries d WHERE d.run_id = o.run_id AND d.state = 'claimed') AS claims
    FROM operations o JOIN runs r USING (run_id) WHERE o.operation_id = :operation_id
""")
ITEMS = text("""
    SELECT payload_id FROM view_items
    WHERE view_id = :view_id AND pos >= :start AND pos < :length ORDER BY pos
""")


@dataclass(frozen=True)
class FrozenRequest:
    """A model Operation with its place in its view. `claims`: it carries inputs not yet delivered."""

    operation_id: UUID
    session_id: UUID
    run_id: UUID
    context_id: UUID
    release_id: UUID
    state: str
    loop_no: int
    view_id: UUID
    view_length: int
    request_hash: bytes | None
    verdict: dict[str, Any] | None
    claims: bool


class Requests:
    """Reads frozen requests."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def load(self, operation_id: UUID) -> FrozenRequest:
        """The request of a model Operation. Raises NotFoundError if there is none."""
        async with self._store.reading() as connection:
            row: Any = await fetch_one(connection, OPERATION, operation_id=operation_id)
        if row is None or row["view_id"] is None:
            raise NotFoundError
        return FrozenRequest(**row)

    async def messages(self, view_id: UUID, start: int, length: int) -> list[ChatMessage]:
        """The messages of a view from `start` up to `length`. Raises CorruptPayloadError if one is missing."""
        if start >= length:
            return []
        async with self._store.reading() as connection:
            rows = await fetch_all(connection, ITEMS, view_id=view_id, start=start, length=length)
            ids = [row["payload_id"] for row in rows]
            contents = await self._store.payloads.read(connection, ids)
        return [message_from_bytes(contents[payload_id]) for payload_id in ids]

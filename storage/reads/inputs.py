"""What a user sent, verbatim, and where each input is now."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.messages import message_from_bytes
from storage.database import fetch_all
from storage.reads.owned import check_run, check_session
from storage.reads.pages import Page, clamped, cursor_number, page_of
from storage.store import Store


@dataclass(frozen=True)
class InputRow:
    """An input with one of its deliveries: the newest one in a session's list, the Run's own one in a Run's list."""

    input_id: UUID
    input_seq: int
    kind: str
    text: str = field(repr=False)
    state: str
    run_id: UUID | None
    delivery_id: UUID
    previous_delivery_id: UUID | None
    received_at: datetime


COLUMNS = """
    SELECT i.input_id, i.input_seq, i.kind, i.payload_id, d.state, d.run_id, d.delivery_id, d.previous_delivery_id,
           i.received_at
    FROM user_inputs i JOIN input_deliveries d USING (input_id) JOIN sessions s ON s.session_id = i.session_id
    WHERE s.owner_id = :owner_id AND i.input_seq > :after
"""
OF_SESSION = text(f"""
    {COLUMNS} AND i.session_id = :session_id
      AND NOT EXISTS (SELECT 1 FROM input_deliveries n
                      WHERE n.input_id = i.input_id AND n.previous_delivery_id = d.delivery_id)
    ORDER BY i.input_seq LIMIT :limit
""")
OF_RUN = text(f"{COLUMNS} AND d.run_id = :run_id ORDER BY i.input_seq LIMIT :limit")


async def session_inputs(
    store: Store, session_id: UUID, owner_id: UUID, *, limit: int = 100, cursor: str | None = None
) -> Page[InputRow]:
    """The inputs of a session in received order. Raises NotFoundError."""
    limit, after = clamped(limit), cursor_number(cursor)
    binds = {"session_id": session_id, "owner_id": owner_id}
    async with store.reading() as connection:
        rows = await fetch_all(connection, OF_SESSION, **binds, after=after, limit=limit + 1)
        if not rows:
            await check_session(connection, session_id, owner_id)
        return page_of(await _rows(store, connection, rows), limit, _key)


async def run_inputs(
    store: Store, run_id: UUID, owner_id: UUID, *, limit: int = 100, cursor: str | None = None
) -> Page[InputRow]:
    """The inputs that are or were bound to a Run, in received order. Raises NotFoundError."""
    limit, after = clamped(limit), cursor_number(cursor)
    binds = {"run_id": run_id, "owner_id": owner_id}
    async with store.reading() as connection:
        rows = await fetch_all(connection, OF_RUN, **binds, after=after, limit=limit + 1)
        if not rows:
            await check_run(connection, run_id, owner_id)
        return page_of(await _rows(store, connection, rows), limit, _key)


def _key(one: InputRow) -> str:
    return str(one.input_seq)


async def _rows(store: Store, connection: AsyncConnection, rows: Sequence[Mapping[str, Any]]) -> list[InputRow]:
    bodies = await store.payloads.read(connection, [row["payload_id"] for row in rows])
    return [_row(row, bodies[row["payload_id"]]) for row in rows]


def _row(row: Mapping[str, Any], body: bytes) -> InputRow:
    words = message_from_bytes(body).content or ""
    return InputRow(**{name: value for name, value in row.items() if name != "payload_id"}, text=words)

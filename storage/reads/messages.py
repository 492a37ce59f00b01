"""The messages of a session as its records hold them, in commit order over all instances."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import text

from context.messages import ChatMessage, message_from_bytes
from storage.database import fetch_all
from storage.reads.owned import check_instance, check_session
from storage.reads.pages import clamped
from storage.store import Store


@dataclass(frozen=True)
class MessageRow:
    """One record; the message's `status` is set where a result isn't plain success."""

    seq: int
    run_id: UUID
    instance: str
    kind: str
    record_id: UUID
    context_seq: int
    message: ChatMessage = field(repr=False)
    created_at: datetime


@dataclass(frozen=True)
class MessagePage:
    """A page; `next_after` is what to pass as `after` for more, and stays where it was on an empty page."""

    items: tuple[MessageRow, ...]
    next_after: int


PAGE = text("""
    SELECT c.seq, c.run_id, x.instance, c.kind, c.record_id, c.context_seq, c.payload_id, c.status, c.created_at
    FROM context_records c JOIN role_contexts x USING (context_id) JOIN sessions s ON s.session_id = c.session_id
    WHERE c.session_id = :session_id AND s.owner_id = :owner_id AND c.seq > :after AND x.instance = :instance
    ORDER BY c.seq LIMIT :limit
""")


async def messages(
    store: Store, session_id: UUID, owner_id: UUID, *, after: int = 0, limit: int = 100, instance: str = "main"
) -> MessagePage:
    """The messages of one instance beyond session `seq` = `after`. Raises NotFoundError."""
    binds = {"session_id": session_id, "owner_id": owner_id, "instance": instance}
    async with store.reading() as connection:
        rows = await fetch_all(connection, PAGE, **binds, after=after, limit=clamped(limit))
        if not rows:
            await check_session(connection, session_id, owner_id)
            await check_instance(connection, session_id, instance)
            return MessagePage((), after)
        bodies = await store.payloads.read(connection, [row["payload_id"] for row in rows])
    return MessagePage(tuple(_row(row, bodies[row["payload_id"]]) for row in rows), rows[-1]["seq"])


def _row(row: Mapping[str, Any], body: bytes) -> MessageRow:
    plain = {name: value for name, value in row.items() if name not in ("payload_id", "status")}
    message = message_from_bytes(body)
    shown = message.model_copy(update={"status": row["status"]}) if row["status"] else message
    return MessageRow(**plain, message=shown)

"""A context as it stood at any of its revisions, and the revisions themselves (SPEC 16)."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import text

from context.errors import NotFoundError
from context.messages import ChatMessage, message_from_bytes
from storage.database import fetch_all, fetch_one
from storage.reads.pages import clamped, found
from storage.store import Store


@dataclass(frozen=True)
class RevisionRow:
    """One revision: how far the records went, which mutations it added, and the commit that made it."""

    revision: int
    record_watermark: int
    mutation_ids: list[UUID]
    cause: str
    created_at: datetime


@dataclass(frozen=True)
class RecordRow:
    """One record of a context in its effective content."""

    context_seq: int
    record_id: UUID
    kind: str
    message: ChatMessage = field(repr=False)
    created_at: datetime


@dataclass(frozen=True)
class ContextView:
    """Records up to the watermark of a revision, one page of them; `next_after` is a `context_seq`, None at the end."""

    context_id: UUID
    revision: int
    record_watermark: int
    items: tuple[RecordRow, ...]
    next_after: int | None


CONTEXT = text("""
    SELECT c.revision FROM role_contexts c JOIN sessions s USING (session_id)
    WHERE c.context_id = :context_id AND s.owner_id = :owner_id
""")
REVISION = text("""
    SELECT revision, record_watermark FROM context_revisions WHERE context_id = :context_id AND revision = :revision
""")
REVISIONS = text("""
    SELECT revision, record_watermark, mutation_ids, cause, created_at FROM context_revisions
    WHERE context_id = :context_id AND revision > :after ORDER BY revision LIMIT :limit
""")
RECORDS = text("""
    SELECT c.context_seq, c.record_id, c.kind, coalesce(e.payload_id, c.payload_id) AS payload_id, c.created_at
    FROM context_records c
         LEFT JOIN LATERAL (SELECT m.payload_id FROM context_mutations m
                            WHERE m.record_id = c.record_id AND m.revision <= :revision
                            ORDER BY m.revision DESC LIMIT 1) e ON true
    WHERE c.context_id = :context_id AND c.context_seq > :after AND c.context_seq <= :watermark
    ORDER BY c.context_seq LIMIT :limit
""")


async def context_view(
    store: Store, context_id: UUID, owner_id: UUID, *, revision: int | None = None, after: int = 0, limit: int = 100
) -> ContextView:
    """The context at a revision, by default the newest. Raises NotFoundError, also for a revision it never had."""
    limit = clamped(limit)
    async with store.reading() as connection:
        newest = found(
            await fetch_one(connection, CONTEXT, context_id=context_id, owner_id=owner_id), "context", context_id
        )["revision"]
        chosen = newest if revision is None else revision
        row: Any = await fetch_one(connection, REVISION, context_id=context_id, revision=chosen)
        if row is None and chosen != 0:
            raise NotFoundError.of(f"revision of context {context_id} with number", str(chosen))
        watermark = row["record_watermark"] if row else 0
        binds = {"context_id": context_id, "after": after, "watermark": watermark, "revision": chosen}
        rows = await fetch_all(connection, RECORDS, **binds, limit=limit + 1)
        contents = await store.payloads.read(connection, [one["payload_id"] for one in rows[:limit]])
    items = tuple(
        RecordRow(
            one["context_seq"],
            one["record_id"],
            one["kind"],
            message_from_bytes(contents[one["payload_id"]]),
            one["created_at"],
        )
        for one in rows[:limit]
    )
    next_after = items[-1].context_seq if len(rows) > limit else None
    return ContextView(context_id, chosen, watermark, items, next_after)


async def context_revisions(
    store: Store, context_id: UUID, owner_id: UUID, *, after: int = 0, limit: int = 100
) -> tuple[RevisionRow, ...]:
    """The revisions after one of that number, in order. Raises NotFoundError."""
    async with store.reading() as connection:
        found(await fetch_one(connection, CONTEXT, context_id=context_id, owner_id=owner_id), "context", context_id)
        rows: Any = await fetch_all(connection, REVISIONS, context_id=context_id, after=after, limit=clamped(limit))
    return tuple(RevisionRow(**row) for row in rows)

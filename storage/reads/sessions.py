"""A user's own sessions."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.database import fetch_all, fetch_one
from storage.reads.pages import Page, clamped, cursor_made_no, found, page_of
from storage.store import Store

NO_LIMIT = 2**63 - 1


@dataclass(frozen=True)
class SessionRow:
    """A session; `run_head` is the number of its newest Run.

    `active_compaction_id` is a compaction that was asked for while it was idle and has not ended; questions go on.
    """

    session_id: UUID
    agent: str
    title: str | None = field(repr=False)
    archived: bool
    run_head: int
    active_run_id: UUID | None
    active_compaction_id: UUID | None
    created_at: datetime


COLUMNS = """
    SELECT s.session_id, a.name AS agent, s.title_id, s.archived_at IS NOT NULL AS archived, s.run_head,
           r.run_id AS active_run_id, e.episode_id AS active_compaction_id, s.created_at,
           s.made_no
    FROM sessions s JOIN agents a USING (agent_id)
    LEFT JOIN runs r ON r.session_id = s.session_id AND r.status IN ('queued', 'running')
    LEFT JOIN compaction_episodes e
      ON e.session_id = s.session_id AND e.operation_id IS NULL AND e.status IN ('queued', 'running')
    WHERE s.owner_id = :owner_id
"""
ONE = text(f"{COLUMNS} AND s.session_id = :session_id")
PAGE = f"{COLUMNS} AND s.made_no < :before {{}} ORDER BY s.made_no DESC LIMIT :limit"
ALL = text(PAGE.format(""))
UNARCHIVED = text(PAGE.format("AND s.archived_at IS NULL"))


async def sessions(
    store: Store, owner_id: UUID, *, include_archived: bool = False, limit: int = 50, cursor: str | None = None
) -> Page[SessionRow]:
    """The owner's sessions, newest first."""
    limit, before = clamped(limit), cursor_made_no(cursor) or NO_LIMIT
    statement = ALL if include_archived else UNARCHIVED
    async with store.reading() as connection:
        rows = await fetch_all(connection, statement, owner_id=owner_id, before=before, limit=limit + 1)
        page = page_of(rows, limit, lambda row: str(row["made_no"]))
        return Page(await _rows(store, connection, page.items), page.next)


async def session(store: Store, session_id: UUID, owner_id: UUID) -> SessionRow:
    """One session. Raises NotFoundError."""
    async with store.reading() as connection:
        row = found(await fetch_one(connection, ONE, session_id=session_id, owner_id=owner_id), "session", session_id)
        return (await _rows(store, connection, [row]))[0]


async def _rows(store: Store, connection: AsyncConnection, rows: Sequence[Mapping[str, Any]]) -> list[SessionRow]:
    titles = await store.payloads.read(connection, [row["title_id"] for row in rows if row["title_id"]])
    return [_row(row, titles) for row in rows]


def _row(row: Mapping[str, Any], titles: Mapping[bytes, bytes]) -> SessionRow:
    title = json.loads(titles[row["title_id"]])["title"] if row["title_id"] else None
    return SessionRow(
        **{name: value for name, value in row.items() if name not in ("title_id", "made_no")}, title=title
    )

"""The row locks of the commits a client asks for: session, then run, the owner checked in the query.

The lock is `FOR NO KEY UPDATE`: it keeps other commits out and lets rows that only refer to the session be inserted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.errors import NotFoundError
from storage.database import fetch_one

SESSION = text("""
    SELECT session_id, agent_id, archived_at IS NOT NULL AS archived, input_head, run_head
    FROM sessions WHERE session_id = :session_id AND owner_id = :owner_id
    FOR NO KEY UPDATE
""")

SESSION_OF_RUN = text("""
    SELECT s.session_id, s.agent_id, s.archived_at IS NOT NULL AS archived, s.input_head, s.run_head
    FROM sessions s JOIN runs r USING (session_id)
    WHERE r.run_id = :run_id AND s.owner_id = :owner_id
    FOR NO KEY UPDATE OF s
""")

RUN = """
    SELECT run_id, release_id, status, execution_no, event_head
    FROM runs WHERE {where}
    FOR NO KEY UPDATE
"""
RUN_BY_ID = text(RUN.format(where="run_id = :run_id"))
ACTIVE_RUN = text(RUN.format(where="session_id = :session_id AND status IN ('queued', 'running')"))


@dataclass(frozen=True)
class LockedSession:
    """A session as it stands under this transaction's lock."""

    session_id: UUID
    agent_id: UUID
    archived: bool
    input_head: int
    run_head: int


@dataclass(frozen=True)
class LockedRun:
    """A Run as it stands under this transaction's lock."""

    run_id: UUID
    release_id: UUID
    status: str
    execution_no: int
    event_head: int

    @property
    def is_active(self) -> bool:
        return self.status in ("queued", "running")


async def lock_session(connection: AsyncConnection, session_id: UUID, owner_id: UUID) -> LockedSession:
    """The session, locked. Raises NotFoundError for an unknown one and for another person's alike."""
    row = await fetch_one(connection, SESSION, session_id=session_id, owner_id=owner_id)
    return LockedSession(**_found(row, "session", session_id))


async def lock_active_run(connection: AsyncConnection, session_id: UUID) -> LockedRun | None:
    """The session's active Run, locked, or None. The session is locked already."""
    row = await fetch_one(connection, ACTIVE_RUN, session_id=session_id)
    return LockedRun(**row) if row else None


async def lock_run(connection: AsyncConnection, run_id: UUID, owner_id: UUID) -> tuple[LockedSession, LockedRun]:
    """The Run's session and the Run, locked. Raises NotFoundError for an unknown one and for another person's alike."""
    session = _found(await fetch_one(connection, SESSION_OF_RUN, run_id=run_id, owner_id=owner_id), "run", run_id)
    run = _found(await fetch_one(connection, RUN_BY_ID, run_id=run_id), "run", run_id)
    return LockedSession(**session), LockedRun(**run)


def _found(row: Mapping[str, Any] | None, kind: str, identity: UUID) -> Mapping[str, Any]:
    if row is None:
        raise NotFoundError.of(kind, identity)
    return row

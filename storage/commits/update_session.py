"""Changing what a user may change of a session: its title, and whether it is archived (SPEC M3)."""

from dataclasses import dataclass, field
from uuid import UUID

from sqlalchemy import text

from context.errors import RunActiveError
from storage.locks import lock_active_run, lock_session
from storage.store import Store
from storage.titles import seal_title

TITLE = text("UPDATE sessions SET title_id = :title_id WHERE session_id = :session_id")
ARCHIVE = text("UPDATE sessions SET archived_at = coalesce(archived_at, now()) WHERE session_id = :session_id")
UNARCHIVE = text("UPDATE sessions SET archived_at = NULL WHERE session_id = :session_id")


@dataclass(frozen=True)
class UpdateSession:
    """What is None stays as it is; an empty title removes it."""

    session_id: UUID
    owner_id: UUID
    title: str | None = field(default=None, repr=False)
    archived: bool | None = None


async def update_session(store: Store, request: UpdateSession) -> None:
    """Apply the change; a repeat changes nothing.

    Raises NotFoundError, and RunActiveError if a session with an active Run is to be archived.
    """
    async with store.transaction("update_session") as connection:
        session = await lock_session(connection, request.session_id, request.owner_id)
        archives = request.archived and not session.archived
        if archives and (run := await lock_active_run(connection, request.session_id)):
            raise RunActiveError(run_id=str(run.run_id))
        if request.title is not None:
            title_id = await seal_title(store, connection, request.title)
            await connection.execute(TITLE, {"title_id": title_id, "session_id": request.session_id})
        if request.archived is not None:
            await connection.execute(ARCHIVE if request.archived else UNARCHIVE, {"session_id": request.session_id})

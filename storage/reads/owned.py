"""Whether something is there for its owner: asked only when a list came back empty, which says neither."""

from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.database import fetch_one
from storage.reads.pages import found

SESSION = text("SELECT 1 AS there FROM sessions WHERE session_id = :session_id AND owner_id = :owner_id")
RUN = text("""
    SELECT 1 AS there FROM runs r JOIN sessions s USING (session_id)
    WHERE r.run_id = :run_id AND s.owner_id = :owner_id
""")

INSTANCE = text("""
    SELECT 1 AS there FROM runs r JOIN role_contexts x USING (run_id)
    WHERE r.session_id = :session_id AND x.instance = :instance LIMIT 1
""")
ROOT = "main"  # there from the beginning, though its context is made by the first Run


async def check_session(connection: AsyncConnection, session_id: UUID, owner_id: UUID) -> None:
    """Raises NotFoundError unless the session is this owner's."""
    found(await fetch_one(connection, SESSION, session_id=session_id, owner_id=owner_id), "session", session_id)


async def check_run(connection: AsyncConnection, run_id: UUID, owner_id: UUID) -> None:
    """Raises NotFoundError unless the Run is in a session of this owner's."""
    found(await fetch_one(connection, RUN, run_id=run_id, owner_id=owner_id), "run", run_id)


async def check_instance(connection: AsyncConnection, session_id: UUID, instance: str) -> None:
    """Raises NotFoundError unless the session, which was looked at before, has such an instance."""
    if instance != ROOT:
        found(await fetch_one(connection, INSTANCE, session_id=session_id, instance=instance), "instance", instance)

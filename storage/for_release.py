"""Reads on behalf of a release: secrets of its space, and results of its sessions. For workers, never for clients."""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any
from uuid import UUID

from sqlalchemy import text

from context.errors import NotFoundError
from storage.database import fetch_one
from storage.reads.connections import stored_connection
from storage.store import Store

SPACE = text("""
    SELECT a.space_id FROM agent_releases r JOIN agents a USING (agent_id) WHERE r.release_id = :release_id
""")
WHOLE = text("""
    SELECT whole_id FROM operations
    WHERE operation_id = :operation_id AND session_id = :session_id AND purpose = 'tool' AND whole_id IS NOT NULL
""")


def secrets_of(store: Store, release_id: UUID) -> Callable[[str], Awaitable[str | None]]:
    """A look-up of stored secrets by connection name, in the space that the release belongs to."""

    async def secret(name: str) -> str | None:
        async with store.reading() as connection:
            row = await fetch_one(connection, SPACE, release_id=release_id)
        try:
            return (await stored_connection(store, row["space_id"], name)).secret if row else None
        except NotFoundError:
            return None

    return secret


def results_of(store: Store) -> Callable[[str, UUID], Coroutine[Any, Any, str | None]]:
    """A look-up of whole tool results by reference, within one Session (SPEC T5)."""

    async def read_result(result_ref: str, session_id: UUID) -> str | None:
        operation_id = _uuid(result_ref)
        if operation_id is None:
            return None
        async with store.reading() as connection:
            row = await fetch_one(connection, WHOLE, operation_id=operation_id, session_id=session_id)
            return (await store.payloads.read_one(connection, row["whole_id"])).decode() if row else None

    return read_result


def _uuid(value: str) -> UUID | None:
    try:
        return UUID(value)
    except ValueError:
        return None

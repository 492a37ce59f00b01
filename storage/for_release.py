"""Reads on behalf of a release: secrets of its space, and results of its sessions. For workers, never for clients."""

from collections.abc import Awaitable, Callable
from uuid import UUID

from sqlalchemy import text

from context.errors import NotFoundError
from context.messages import message_from_bytes
from context.stored_keys import StoredKey
from storage.covered_results import covered_results
from storage.database import fetch_one
from storage.reads.connections import stored_key
from storage.store import Store

SPACE = text("""
    SELECT a.space_id FROM agent_releases r JOIN agents a USING (agent_id) WHERE r.release_id = :release_id
""")
WHOLE = text("""
    SELECT whole_id, result_id FROM operations
    WHERE operation_id = :operation_id AND session_id = :session_id AND purpose = 'tool' AND result_id IS NOT NULL
""")


def secrets_of(store: Store, release_id: UUID) -> Callable[[str], Awaitable[str | None]]:
    """A look-up of stored secrets by connection name, in the space that the release belongs to."""
    find = keys_of(store, release_id)

    async def secret(name: str) -> str | None:
        stored = await find(name)
        return stored.secret if stored else None

    return secret


def keys_of(store: Store, release_id: UUID) -> Callable[[str], Awaitable[StoredKey | None]]:
    """The same, with whom each secret was stored for; None if there is no connection of that name."""

    async def key(name: str) -> StoredKey | None:
        async with store.reading() as connection:
            row = await fetch_one(connection, SPACE, release_id=release_id)
        try:
            return await stored_key(store, row["space_id"], name) if row else None
        except NotFoundError:
            return None

    return key


class StoredResults:
    """Whole tool results by reference, within one Session (SPEC T5)."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def __call__(self, result_ref: str, session_id: UUID) -> str | None:
        """The whole text that `result_ref` names, or None if this Session has none of that name.

        A result that was shown whole once and is pruned since has no other text than its message (SPEC T5). A summary's
        name brings the list of all results that it stands for.
        """
        named = _uuid(result_ref)
        if named is None:
            return None
        async with self._store.reading() as connection:
            row = await fetch_one(connection, WHOLE, operation_id=named, session_id=session_id)
            if row is None:
                covered = await covered_results(connection, named, session_id)
                return "\n".join(one.line for one in covered) or None
            stored = await self._store.payloads.read_one(connection, row["whole_id"] or row["result_id"])
        return stored.decode() if row["whole_id"] else message_from_bytes(stored).content


def _uuid(value: str) -> UUID | None:
    try:
        return UUID(value)
    except ValueError:
        return None

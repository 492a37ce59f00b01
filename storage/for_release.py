"""Reads on behalf of a release: secrets of its space, and results of its sessions. For workers, never for clients."""

import math
import time
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
KNOWN_FOR_S = 60
WHOLE = text("""
    SELECT whole_id, result_id FROM operations
    WHERE operation_id = :operation_id AND session_id = :session_id AND purpose = 'tool' AND result_id IS NOT NULL
""")


class ReleaseKeys:
    """The stored keys of the space that a release belongs to, by connection name.

    A key is asked for each time it is used, so that a new one counts at once. What was found is remembered, to be
    recognised where it comes back (SPEC L6).
    """

    def __init__(self, store: Store, release_id: UUID, names: frozenset[str]) -> None:
        self._store = store
        self._release_id = release_id
        self._names = names
        self._found: dict[str, frozenset[str]] = {}
        self._asked_at = -math.inf

    async def key(self, name: str) -> StoredKey | None:
        """The key, and whom it was stored for; None if there is no connection of that name."""
        async with self._store.reading() as connection:
            row = await fetch_one(connection, SPACE, release_id=self._release_id)
        try:
            stored = await stored_key(self._store, row["space_id"], name) if row else None
        except NotFoundError:
            stored = None
        new = frozenset([stored.secret] if stored and stored.secret else [])
        self._found[name] = self._found.get(name, frozenset()) | new
        return stored

    async def secret(self, name: str) -> str | None:
        """The secret of the connection of that name, if there is one."""
        stored = await self.key(name)
        return stored.secret if stored else None

    async def known(self) -> frozenset[str]:
        """The secrets of the release's own connections; those that others have changed are known within a minute."""
        if self._names and time.monotonic() - self._asked_at > KNOWN_FOR_S:
            for name in sorted(self._names):
                await self.key(name)
            self._asked_at = time.monotonic()
        return frozenset().union(*self._found.values())


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

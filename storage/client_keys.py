"""Client keys: a request that is sent again with the same key finds the first answer, once it is committed (SPEC S5).

Key and body are stored as keyed hashes only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pydantic import BaseModel
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.errors import ClientKeyInFlightError, ClientKeyReusedError
from context.messages import canonical_json
from storage.database import fetch_one
from storage.store import Store
from storage.tables import client_keys
from storage.writes import WriteSet

FIRST_ANSWER = text("""
    SELECT body_hash, answer FROM client_keys WHERE session_id = :session_id AND client_key = :key
""")
TRY_LOCK = text("SELECT pg_try_advisory_xact_lock(:lock) AS mine")


@dataclass(frozen=True)
class ClientKey:
    """A client's key and the body it came with, both only as keyed hashes."""

    session_id: UUID
    key: bytes
    body: bytes

    @property
    def lock(self) -> int:
        """The advisory lock of whoever is handling this key."""
        return int.from_bytes(self.key[:8], "big", signed=True)


def client_key(
    store: Store, session_id: UUID, owner_id: UUID, key: str | None, body: Sequence[str]
) -> ClientKey | None:
    """The key of a request for this session, or None if it came without one."""
    if key is None:
        return None
    hashed = store.payloads.vault.keyed_hash
    name = canonical_json(["client_key", str(session_id), str(owner_id), key])
    return ClientKey(session_id, hashed(name), hashed(canonical_json(list(body))))


async def first_answer(connection: AsyncConnection, key: ClientKey) -> Any | None:
    """What this key was answered, or None for whoever is first and now holds it until the commit.

    The look before the lock lets any number of repeats of a finished request pass side by side; the look after it sees
    what was committed in between. Raises ClientKeyReusedError, ClientKeyInFlightError.
    """
    if answer := await _look_up(connection, key):
        return answer
    row = await fetch_one(connection, TRY_LOCK, lock=key.lock)
    if row is None or not row["mine"]:
        raise ClientKeyInFlightError
    return await _look_up(connection, key)


def remember(writes: WriteSet, key: ClientKey, answer: BaseModel) -> None:
    """Put the answer into the commit's writes, for repeats."""
    row = {"session_id": key.session_id, "client_key": key.key, "body_hash": key.body}
    writes.insert(client_keys, [row | {"answer": answer.model_dump_json()}])


async def _look_up(connection: AsyncConnection, key: ClientKey) -> Any | None:
    row = await fetch_one(connection, FIRST_ANSWER, session_id=key.session_id, key=key.key)
    if row is None:
        return None
    if row["body_hash"] != key.body:
        raise ClientKeyReusedError
    return row["answer"]

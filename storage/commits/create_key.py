"""An API key of a user. The key itself is returned once and never stored: the database knows its keyed hash."""

import secrets
from dataclasses import dataclass, field
from uuid import UUID

from sqlalchemy import text

from storage.keys import key_hash
from storage.store import Store, new_id

HINT_CHARS = 7  # `al_` and four more: enough to tell keys apart, no help in guessing one

KEY = text("""
    INSERT INTO api_keys (key_id, user_id, key_hash, hint) VALUES (:key_id, :user_id, :key_hash, :hint)
    ON CONFLICT (key_hash) DO NOTHING
""")


@dataclass(frozen=True)
class CreateKey:
    """A key for a user; `key` is given only where it must stay the same, as in a development stack."""

    user_id: UUID
    key: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class CreatedKey:
    """The new key, to be shown once."""

    key_id: UUID
    key: str = field(repr=False)
    hint: str


async def create_key(store: Store, request: CreateKey) -> CreatedKey:
    """Make a key. A given key that exists already stays as it is. Raises NotFoundError for an unknown user."""
    key = request.key or "al_" + secrets.token_urlsafe(32)
    created = CreatedKey(new_id(), key, key[:HINT_CHARS])
    row = {"key_id": created.key_id, "user_id": request.user_id, "hint": created.hint}
    async with store.transaction("create_key") as connection:
        await connection.execute(KEY, row | {"key_hash": key_hash(store.payloads.vault, key)})
    return created

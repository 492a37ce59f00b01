"""Revoking an API key: it stops working with the commit; the row stays, so that its use can be told."""

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import text

from context.errors import NotFoundError
from storage.database import fetch_one
from storage.store import Store

REVOKE = text("""
    UPDATE api_keys k SET revoked_at = coalesce(k.revoked_at, now())
    FROM users u WHERE k.key_id = :key_id AND u.user_id = k.user_id AND u.space_id = :space_id
    RETURNING k.key_id
""")


@dataclass(frozen=True)
class RevokeKey:
    """A key of a user of this space."""

    key_id: UUID
    space_id: UUID


async def revoke_key(store: Store, request: RevokeKey) -> None:
    """Revoke the key; a repeat changes nothing. Raises NotFoundError for an unknown key and another space's alike."""
    async with store.transaction("revoke_key") as connection:
        if await fetch_one(connection, REVOKE, key_id=request.key_id, space_id=request.space_id) is None:
            raise NotFoundError.of("key", request.key_id)

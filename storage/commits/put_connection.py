"""Making or changing a stored connection; its secret is content of its own, which no other row shares (SPEC L6)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.messages import canonical_json
from storage.store import Store, new_id

# The update changes nothing; it locks the connection that is already there and returns it as of now.
FIND = text("""
    INSERT INTO connections (connection_id, space_id, name, provider, base_url)
    VALUES (:connection_id, :space_id, :name, :provider, :base_url)
    ON CONFLICT (space_id, name) DO UPDATE SET name = excluded.name
    RETURNING connection_id, provider, base_url, secret_id
""")
CHANGE = text("""
    UPDATE connections SET provider = :provider, base_url = :base_url, secret_id = :secret_id,
                           models = coalesce(CAST(:models AS jsonb), models)
    WHERE connection_id = :connection_id
""")
FORGET = text("DELETE FROM payloads WHERE payload_id = :secret_id")


@dataclass(frozen=True)
class PutConnection:
    """A connection by name. Without `secret` the stored one stays if provider and base URL do; "" removes it.

    `models` are rows of SPEC 16 (`{id, context_window, max_output_tokens, source}`); None leaves them as they are.
    """

    space_id: UUID
    name: str
    provider: str
    base_url: str | None
    secret: str | None = field(default=None, repr=False)
    models: tuple[Mapping[str, Any], ...] | None = None


async def put_connection(store: Store, request: PutConnection) -> UUID:
    """Store the connection and return its id; a repeat changes nothing. Raises NotFoundError for an unknown space."""
    what = {"provider": request.provider, "base_url": request.base_url}
    async with store.transaction("put_connection") as connection:
        new = {"connection_id": new_id(), "space_id": request.space_id, "name": request.name}
        old = (await connection.execute(FIND, new | what)).mappings().one()
        kept = old["secret_id"] if (old["provider"], old["base_url"]) == (request.provider, request.base_url) else None
        secret_id = kept if request.secret is None else await _seal(store, connection, old["connection_id"], request)
        models = None if request.models is None else json.dumps([dict(model) for model in request.models])
        row = {"connection_id": old["connection_id"], "secret_id": secret_id, "models": models}
        await connection.execute(CHANGE, row | what)
        if old["secret_id"] not in (None, secret_id):
            await connection.execute(FORGET, {"secret_id": old["secret_id"]})
        return UUID(str(old["connection_id"]))


async def _seal(store: Store, connection: AsyncConnection, owner: UUID, request: PutConnection) -> bytes | None:
    """The secret's payload. The connection's id is part of it, so that deleting it can't hit anybody else's."""
    if not request.secret:
        return None
    sealed = store.payloads.seal(canonical_json({"connection_id": str(owner), "secret": request.secret}))
    await store.payloads.write(connection, [sealed])
    return sealed.payload_id

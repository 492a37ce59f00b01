"""Stored connections. A client learns whether there is a key; only the edge that calls the provider is given it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.stored_keys import StoredKey
from storage.database import fetch_all, fetch_one
from storage.reads.pages import found
from storage.store import Store


@dataclass(frozen=True)
class ConnectionRow:
    """A connection as it may be shown (SPEC L6); `models` as in SPEC 16: `{id, context_window, …}`."""

    name: str
    provider: str
    base_url: str | None
    has_key: bool
    models: tuple[Mapping[str, Any], ...]


COLUMNS = """
    SELECT name, provider, base_url, secret_id, models FROM connections WHERE space_id = :space_id
"""
ALL = text(f"{COLUMNS} ORDER BY name")
ONE = text(f"{COLUMNS} AND name = :name")


async def connections(store: Store, space_id: UUID) -> list[ConnectionRow]:
    """The connections of a space, by name."""
    async with store.reading() as connection_:
        return [_row(row) for row in await fetch_all(connection_, ALL, space_id=space_id)]


async def connection(store: Store, space_id: UUID, name: str) -> ConnectionRow:
    """One connection. Raises NotFoundError."""
    async with store.reading() as connection_:
        return _row(found(await fetch_one(connection_, ONE, space_id=space_id, name=name), "connection", name))


async def stored_key(store: Store, space_id: UUID, name: str) -> StoredKey:
    """The key of one connection, for the call itself. Raises NotFoundError."""
    async with store.reading() as connection_:
        row = found(await fetch_one(connection_, ONE, space_id=space_id, name=name), "connection", name)
        secret = await _secret(store, connection_, row["secret_id"])
    return StoredKey(row["provider"], row["base_url"], secret)


async def _secret(store: Store, connection_: AsyncConnection, secret_id: bytes | None) -> str | None:
    if secret_id is None:
        return None
    return str(json.loads(await store.payloads.read_one(connection_, secret_id))["secret"])


def _row(row: Mapping[str, Any]) -> ConnectionRow:
    has_key = row["secret_id"] is not None
    return ConnectionRow(row["name"], row["provider"], row["base_url"], has_key, tuple(row["models"]))

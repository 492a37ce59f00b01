"""Deleting a stored connection, its secret with it."""

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import text

from context.errors import NotFoundError
from storage.database import fetch_one
from storage.store import Store

DELETE = text("DELETE FROM connections WHERE space_id = :space_id AND name = :name RETURNING secret_id")
FORGET = text("DELETE FROM payloads WHERE payload_id = :secret_id")


@dataclass(frozen=True)
class DeleteConnection:
    space_id: UUID
    name: str


async def delete_connection(store: Store, request: DeleteConnection) -> None:
    """Delete the connection. Raises NotFoundError, so for a repeat too."""
    async with store.transaction("delete_connection") as connection:
        row = await fetch_one(connection, DELETE, space_id=request.space_id, name=request.name)
        if row is None:
            raise NotFoundError.of("connection", request.name)
        if row["secret_id"] is not None:
            await connection.execute(FORGET, {"secret_id": row["secret_id"]})

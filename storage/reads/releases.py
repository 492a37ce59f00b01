"""The release a Run is bound to: immutable, so each process reads it once."""

from uuid import UUID

from pydantic import ValidationError
from sqlalchemy import text

from context.errors import UnknownContentError
from context.policy import Release
from storage.database import fetch_one
from storage.reads.pages import found
from storage.store import Store

KEPT = 256  # releases a process keeps in memory

PAYLOAD = text("SELECT payload_id FROM agent_releases WHERE release_id = :release_id")


async def release(store: Store, release_id: UUID) -> Release:
    """The release. Raises NotFoundError. For workers, which act for every space; clients get `release_row`."""
    if known := store.releases.get(release_id):
        return known
    async with store.reading() as connection:
        row = found(await fetch_one(connection, PAYLOAD, release_id=release_id), "release", release_id)
        body = await store.payloads.read_one(connection, row["payload_id"])
    return remember(store, release_id, body)


def remember(store: Store, release_id: UUID, body: bytes) -> Release:
    """Parse and keep a release. Raises UnknownContentError for one that another version published."""
    try:
        parsed = Release.model_validate_json(body)
    except ValidationError:  # its text quotes the definition
        raise UnknownContentError from None
    while len(store.releases) >= KEPT:
        store.releases.pop(next(iter(store.releases)))
    return store.releases.setdefault(release_id, parsed)

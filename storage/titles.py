"""A session's title: content like any other, so it is stored as a payload (SPEC Y2)."""

from sqlalchemy.ext.asyncio import AsyncConnection

from context.messages import canonical_json
from storage.store import Store


async def seal_title(store: Store, connection: AsyncConnection, title: str | None) -> bytes | None:
    """Store a title and return its payload's id; no title, or an empty one, has none."""
    if not title:
        return None
    sealed = store.payloads.seal(title_bytes(title))
    await store.payloads.write(connection, [sealed])
    return sealed.payload_id


def title_bytes(title: str) -> bytes:
    """The stored form; not a message's, so that the two are never one payload."""
    return canonical_json({"title": title})

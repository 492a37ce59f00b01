"""What was sent, of a call whose end nobody will learn here: the hash that its rebuilt request is checked by (SPEC A9).

A call that ends by itself stores it with its result, and a further try with its beginning. One statement; a repeat
changes nothing.
"""

from uuid import UUID

from sqlalchemy import text

from storage.database import fetch_value
from storage.store import Store

NOTE = text("""
    UPDATE operations SET request_hash = :request_hash WHERE operation_id = :operation_id AND request_hash IS NULL
""")


async def note_sent(store: Store, operation_id: UUID, request_hash: bytes) -> None:
    """Commit the SHA-256 of the body."""
    async with store.single("note_sent") as connection:
        await fetch_value(connection, NOTE, operation_id=operation_id, request_hash=request_hash)

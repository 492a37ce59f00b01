"""Token counts inside a preparing transaction: taken from where they are stored, made once where they are not."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.messages import ChatMessage, message_bytes, message_from_bytes
from context.tokens import TokenCounter
from context.views import ViewItem, protected_tokens
from storage.database import fetch_all, fetch_one
from storage.payloads import Payloads, Sealed
from storage.tables import payloads as payloads_table
from storage.writes import WriteSet

LARGE = 20_000  # bytes from which counting leaves the event loop
NOTE_COUNTS = """
    UPDATE payloads p SET tokens = p.tokens || CAST(n.tokens AS jsonb)
    FROM unnest(CAST(:counted_ids AS bytea[]), CAST(:counted AS text[])) AS n(payload_id, tokens)
    WHERE p.payload_id = n.payload_id
"""
COUNTED = text("""
    SELECT payload_id, CAST(tokens ->> :estimator AS integer) AS tokens FROM payloads
    WHERE payload_id = ANY(CAST(:ids AS bytea[])) AND tokens -> :estimator IS NOT NULL
""")
PAGE = 200
PROTECTED = text("""
    SELECT coalesce(sum(tokens), 0) AS tokens FROM view_items
    WHERE view_id = :view_id AND run_no IS NULL AND kind IN ('system', 'input')
""")


class Measuring:
    """Counts what has no stored count, and remembers it with the payload."""

    def __init__(self, payloads: Payloads, connection: AsyncConnection, counter: TokenCounter) -> None:
        self.connection = connection
        self.counter = counter
        self._payloads = payloads
        self._new: dict[bytes, Sealed] = {}
        self._counted: dict[bytes, int] = {}

    async def measure(self, item: ViewItem) -> ViewItem:
        """The item with its tokens."""
        return (await self.measure_all([item]))[0]

    async def measure_all(self, items: Sequence[ViewItem]) -> list[ViewItem]:
        """The items with their tokens; contents are read together, and counted once each."""
        contents = await self._payloads.read(self.connection, [item.payload_id for item in items])
        for payload_id, content in contents.items():
            self._counted[payload_id] = await count_stored(self.counter, content)
        return [replace(item, tokens=self._counted[item.payload_id]) for item in items]

    async def measure_stored(self, items: Sequence[ViewItem]) -> list[ViewItem]:
        """The items with their tokens: stored counts, and by page those that were never made."""
        ids = list({item.payload_id for item in items})
        rows = await fetch_all(self.connection, COUNTED, ids=ids, estimator=self.counter.estimator_id) if ids else []
        known: dict[bytes, int] = {row["payload_id"]: row["tokens"] for row in rows}
        unknown = [item for item in items if item.payload_id not in known]
        for start in range(0, len(unknown), PAGE):
            measured = await self.measure_all(unknown[start : start + PAGE])
            known |= {item.payload_id: item.tokens for item in measured}
        return [replace(item, tokens=known[item.payload_id]) for item in items]

    async def contents(self, payload_ids: Sequence[bytes]) -> dict[bytes, bytes]:
        """Stored messages by payload id."""
        return await self._payloads.read(self.connection, payload_ids)

    async def own(self, message: ChatMessage) -> tuple[bytes, int]:
        """Seal a sentence of the platform's own; returns its payload id and tokens."""
        content = message_bytes(message)
        tokens = await count_stored(self.counter, content)
        sealed = self._payloads.seal(content, {self.counter.estimator_id: tokens})
        self._new[sealed.payload_id] = sealed
        return sealed.payload_id, tokens

    async def protected_tokens(self, view_id: UUID | None, items: tuple[ViewItem, ...]) -> int:
        """Tokens of what can't be left out: system and current inputs, stored ones and new ones."""
        row = await fetch_one(self.connection, PROTECTED, view_id=view_id)
        return (int(row["tokens"]) if row else 0) + protected_tokens(items)

    def write(self, writes: WriteSet) -> None:
        """Put new payloads and new counts into the commit's writes."""
        sealed = [one.parameters() for one in self._new.values()]
        writes.insert(payloads_table, sealed, skip_existing=True)
        if self._counted:
            name = self.counter.estimator_id
            counts = [json.dumps({name: tokens}) for tokens in self._counted.values()]
            writes.sql(NOTE_COUNTS, counted_ids=list(self._counted), counted=counts)


async def count_stored(counter: TokenCounter, content: bytes) -> int:
    """Tokens of a stored message. Long ones are counted outside the event loop, whose heartbeats must go on."""
    if len(content) < LARGE:
        return counter.count_message(message_from_bytes(content))
    return await asyncio.to_thread(lambda: counter.count_message(message_from_bytes(content)))

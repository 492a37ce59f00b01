"""Whether a session is what it says: chains, coverage and lists re-derived from what is stored (SPEC M7).

Rebuilding its requests is up to the caller, who knows wire forms. Reads by page; reports every break, mends none.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.material import piece_of
from context.revisions import EMPTY_CHAIN, next_chain
from context.snapshots import doubled
from storage.covering import coverage_of
from storage.database import fetch_all
from storage.reads.owned import check_session
from storage.store import Store
from storage.view_lists import listed

PAGE = 200

CONTEXTS = text("SELECT context_id, chain, record_head FROM role_contexts WHERE session_id = :session_id")
RECORDS = text("""
    SELECT c.context_seq, c.record_id, c.payload_id, c.chain FROM context_records c
    WHERE c.context_id = :context_id AND c.context_seq > :after ORDER BY c.context_seq LIMIT :page
""")
SNAPSHOTS = text("""
    SELECT snapshot_id, pieces FROM snapshots WHERE session_id = :session_id ORDER BY created_at, snapshot_id
""")
COVERED = text("""
    SELECT p.snapshot_id, p.piece FROM snapshots s JOIN snapshot_pieces p USING (snapshot_id)
      JOIN context_records c ON c.context_id = p.context_id AND c.context_seq = p.context_seq
      JOIN payloads w ON w.payload_id = c.payload_id
    WHERE s.session_id = :session_id AND w.digest <> p.digest AND s.outdated_at IS NULL
""")
REQUESTS = text("""
    SELECT operation_id, view_id, view_length FROM operations
    WHERE session_id = :session_id AND request_hash IS NOT NULL AND view_id IS NOT NULL AND operation_id > :after
    ORDER BY operation_id LIMIT :page
""")


@dataclass(frozen=True)
class Break:
    """One thing that is not as it should be, by name and place."""

    kind: Literal["chain", "content", "coverage", "doubled", "request"]
    subject: str
    place: int | None = None


@dataclass(frozen=True)
class Checked:
    """How much was looked at, and everything that was wrong."""

    records: int
    snapshots: int
    requests: tuple[UUID, ...]
    breaks: tuple[Break, ...]


async def verified(store: Store, session_id: UUID, owner_id: UUID) -> Checked:
    """Check a session's chains, snapshots and lists. Raises NotFoundError."""
    breaks: list[Break] = []
    records, requests = 0, []
    async with store.reading() as connection:
        await check_session(connection, session_id, owner_id)
        for context in await fetch_all(connection, CONTEXTS, session_id=session_id):
            records += await _check_chain(store, connection, context, breaks)
        snapshots = await _check_snapshots(connection, session_id, breaks)
        async for row in _requests(connection, session_id):
            requests.append(row["operation_id"])
            breaks += await _doubled(connection, row)
    return Checked(records, snapshots, tuple(requests), tuple(breaks))


async def _check_chain(store: Store, connection: AsyncConnection, context: Any, breaks: list[Break]) -> int:
    chain, place = EMPTY_CHAIN, 0
    while rows := await fetch_all(connection, RECORDS, context_id=context["context_id"], after=place, page=PAGE):
        contents = await store.payloads.read(connection, [row["payload_id"] for row in rows])
        for row in rows:
            chain = next_chain(chain, row["context_seq"], sha256(contents[row["payload_id"]]).digest())
            if row["context_seq"] != place + 1 or row["chain"] != chain:
                breaks.append(Break("chain", f"record/{row['record_id']}", row["context_seq"]))
            place, chain = row["context_seq"], row["chain"]
    if (place, chain) != (context["record_head"], context["chain"]):
        breaks.append(Break("chain", f"context/{context['context_id']}", place))
    return place


async def _check_snapshots(connection: AsyncConnection, session_id: UUID, breaks: list[Break]) -> int:
    snapshots = await fetch_all(connection, SNAPSHOTS, session_id=session_id)
    for row in snapshots:
        coverage = await coverage_of(connection, row["snapshot_id"])
        if len(coverage.pieces) != row["pieces"]:
            breaks.append(Break("coverage", f"snapshot/{row['snapshot_id']}"))
    for row in await fetch_all(connection, COVERED, session_id=session_id):
        breaks.append(Break("coverage", row["piece"]))
    return len(snapshots)


async def _requests(connection: AsyncConnection, session_id: UUID) -> AsyncIterator[Any]:
    after = UUID(int=0)
    while rows := await fetch_all(connection, REQUESTS, session_id=session_id, after=after, page=PAGE):
        for row in rows:
            yield row
        after = rows[-1]["operation_id"]


async def _doubled(connection: AsyncConnection, row: Any) -> list[Break]:
    """Pieces that a request showed twice: as themselves, or beside a summary of them (SPEC K10)."""
    items = await listed(connection, row["view_id"], row["view_length"])
    summaries = [item.source_id for item in items if item.kind == "summary" and item.source_id]
    coverages = [await coverage_of(connection, one) for one in summaries]
    pieces = [piece_of(item) for item in items if item.source_id is not None]
    return [Break("doubled", f"{row['operation_id']}:{piece}") for piece in doubled(pieces, coverages)]

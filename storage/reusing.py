"""A published summary of an earlier Run at the beginning of a new one, in place of what it covers (SPEC P7, K10).

Looked for only where the history is too long otherwise. It must lie wholly in the older part, and every piece of it
that the history would show must still be the version that was summarised.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.material import piece_of
from context.snapshots import Applies, Candidate, Coverage, Outdated, Version, reusable, summary_item
from context.summary_view import without_covered
from context.views import ViewItem
from storage.covering import coverage_of, touched
from storage.database import fetch_all
from storage.heads import Heads

NEWEST = text("""
    SELECT s.snapshot_id, s.runs, s.pieces, s.message_id, s.tokens, p.tokens -> :estimator AS counted
    FROM snapshots s JOIN payloads p ON p.payload_id = s.message_id
    WHERE s.session_id = :session_id AND s.activated AND s.outdated_at IS NULL
      AND s.runs <@ CAST(:older AS integer[])
    ORDER BY s.created_at DESC LIMIT 20
""")
DIGESTS = text("SELECT payload_id, digest FROM payloads WHERE payload_id = ANY(CAST(:ids AS bytea[]))")


async def with_reused(
    connection: AsyncConnection, heads: Heads, items: Sequence[ViewItem], *, recent: int, estimator_id: str
) -> tuple[ViewItem, ...]:
    """The first list of a Run with the best earlier summary in it, or as it is if none fits."""
    older = frozenset(range(1, heads.run_no - recent))
    binds = {"session_id": heads.session_id, "older": sorted(older), "estimator": estimator_id}
    rows: Any = await fetch_all(connection, NEWEST, **binds) if older else []
    known = {row["snapshot_id"]: row for row in rows if row["counted"] is not None}
    versions = await _versions(connection, items) if known else {}
    coverages = {one: await coverage_of(connection, one) for one in known}
    candidates = [
        Candidate(one, frozenset(row["runs"]), row["pieces"], await _validity(connection, coverages[one], versions))
        for one, row in reversed(known.items())
    ]
    best = reusable(candidates, older_runs=older)
    if best is None:
        return tuple(items)
    row = known[best.snapshot_id]
    summary = summary_item(best.snapshot_id, row["message_id"], row["tokens"])
    return without_covered(items, summary, coverages[best.snapshot_id].names)


async def _validity(
    connection: AsyncConnection, coverage: Coverage, versions: dict[str, Version]
) -> Applies | Outdated:
    """What the list shows is compared by content; what it no longer shows, by the changes of its context."""
    changed = await touched(connection, coverage)
    gone = [one.piece for one in coverage.pieces if versions.get(one.piece, one.version).digest != one.version.digest]
    return Outdated((*gone, *sorted(changed))) if gone or changed else Applies()


async def _versions(connection: AsyncConnection, items: Sequence[ViewItem]) -> dict[str, Version]:
    rows = await fetch_all(connection, DIGESTS, ids=[item.payload_id for item in items])
    digests: dict[bytes, bytes] = {row["payload_id"]: row["digest"] for row in rows}
    return {piece_of(item): Version(digests[item.payload_id]) for item in items if item.payload_id in digests}

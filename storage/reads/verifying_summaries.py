"""Whether each summary of a session covers what it says, and was shown as it was written (SPEC K10, M7)."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.snapshots import Coverage
from storage.covering import coverage_of
from storage.database import fetch_all
from storage.effective import EFFECTIVE

SNAPSHOTS = text("""
    SELECT snapshot_id, pieces, ranges, runs FROM snapshots WHERE session_id = :session_id
    ORDER BY created_at, snapshot_id
""")
# A piece that is a record or an input names the one at its place; its version is that of the record, unless mutated.
PIECES = text(f"""
    SELECT p.snapshot_id, p.ordinal FROM snapshots s JOIN snapshot_pieces p USING (snapshot_id)
      LEFT JOIN context_records c ON c.context_id = p.context_id AND c.context_seq = p.context_seq
      {EFFECTIVE}
      LEFT JOIN payloads w ON w.payload_id = coalesce(e.payload_id, c.payload_id)
    WHERE s.session_id = :session_id AND p.context_id IS NOT NULL
      AND (c.record_id IS NULL OR p.piece NOT IN ('record/' || c.record_id, 'input/' || c.input_id)
           OR s.outdated_at IS NULL AND w.digest IS DISTINCT FROM p.digest)
    ORDER BY p.snapshot_id, p.ordinal
""")
# Finished episodes without their snapshot (one that found nothing to compact has none), and summaries in a request that
# are no snapshot's, or not in its words.
LOST = text("""
    SELECT e.episode_id FROM compaction_episodes e LEFT JOIN snapshots s USING (episode_id)
    WHERE e.session_id = :session_id AND e.status = 'succeeded' AND e.outcome <> 'nothing_to_compact'
      AND s.snapshot_id IS NULL ORDER BY 1
""")
MISQUOTED = text("""
    SELECT DISTINCT v.source_id FROM role_contexts x JOIN request_views w USING (context_id)
      JOIN view_items v ON v.view_id = w.view_id LEFT JOIN snapshots s ON s.snapshot_id = v.source_id
    WHERE x.session_id = :session_id AND v.kind = 'summary' AND s.message_id IS DISTINCT FROM v.payload_id ORDER BY 1
""")


class Summaries:
    """The coverage of a session's summaries, each read once."""

    def __init__(self, connection: AsyncConnection, session_id: UUID) -> None:
        self._connection = connection
        self._session_id = session_id
        self._coverages: dict[UUID, Coverage] = {}
        self.count = 0

    async def coverage(self, snapshot_id: UUID) -> Coverage:
        """What a summary stands for, with all that was folded into it."""
        if snapshot_id not in self._coverages:
            self._coverages[snapshot_id] = await coverage_of(self._connection, snapshot_id)
        return self._coverages[snapshot_id]

    async def breaks(self) -> AsyncIterator[tuple[str, int | None]]:
        """Each summary that is not as it should be, and the covered piece it is about, if it is about one."""
        for row in await self._rows(SNAPSHOTS):
            self.count += 1
            if not _agrees(row, await self.coverage(row["snapshot_id"])):
                yield f"snapshot/{row['snapshot_id']}", None
        for row in await self._rows(PIECES):
            yield f"snapshot/{row['snapshot_id']}", row["ordinal"]
        for row in await self._rows(LOST):
            yield f"episode/{row['episode_id']}", None
        for row in await self._rows(MISQUOTED):
            yield f"snapshot/{row['source_id']}", None

    async def _rows(self, statement: Any) -> list[Mapping[str, Any]]:
        return await fetch_all(self._connection, statement, session_id=self._session_id)


def _agrees(row: Mapping[str, Any], coverage: Coverage) -> bool:
    """Whether what is told of a summary follows from its pieces."""
    ranges = [asdict(one) | {"context_id": str(one.context_id)} for one in coverage.ranges]
    told = (row["pieces"], row["ranges"], row["runs"])
    return told == (len(coverage.pieces), ranges, sorted(coverage.runs))

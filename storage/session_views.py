"""What a Run's list knew of its Session, and what it may stand for in later Runs: noted, saved, outdated (SPEC P2).

A saved view is a place in a list that only grows, so saving costs the same however long the session is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.session_views import Claim, SavedView, Seen, best_view, claim, observed
from storage.database import fetch_all, fetch_one, fetch_value
from storage.heads import Heads
from storage.snapshot_tables import session_views
from storage.writes import WriteSet

LATER_RUNS = text("""
    SELECT min(c.seq) FROM runs r JOIN context_records c ON c.run_id = r.run_id
    WHERE r.session_id = :session_id AND r.run_no > :run_no
""")
# Only a Run that was resumed can have records of others among its own.
SEEN = text("""
    SELECT c.view_id, c.view_length, o.observed_seq AS observed,
      coalesce((SELECT k.seq FROM context_records k
                WHERE k.context_id = c.context_id AND k.context_seq = c.record_head), 0) AS last,
      CASE WHEN r.execution_no > 1 THEN
        (SELECT min(k.seq) FROM context_records k JOIN role_contexts x USING (context_id)
         WHERE k.session_id = o.session_id AND k.seq > o.observed_seq AND k.run_id <> o.run_id AND x.instance = 'main')
      END AS foreign_seq,
      (SELECT count(*) FROM tool_batches b WHERE b.run_id = o.run_id AND NOT b.consumed) AS unsettled,
      (SELECT count(*) FROM input_deliveries d JOIN user_inputs i USING (input_id)
       WHERE d.session_id = o.session_id AND d.state IN ('pending', 'claimed') AND i.kind = 'supplement') AS queued
    FROM session_views o JOIN runs r USING (run_id) JOIN role_contexts c ON c.run_id = o.run_id AND c.instance = 'main'
    WHERE o.run_id = :run_id AND o.whole
""")
SAVE = """
    UPDATE session_views SET through_seq = :through_seq, view_id = :saved_view, view_length = :saved_length,
           outdated_at = NULL
    WHERE run_id = :run_id
"""
# A summary stands before all else but the system message.
CANDIDATES = text("""
    SELECT v.run_no, v.through_seq, v.view_length AS length, v.view_id, v.estimator_id,
           v.outdated_at IS NOT NULL OR EXISTS (
             SELECT 1 FROM view_items i JOIN snapshots s ON s.snapshot_id = i.source_id
             WHERE i.view_id = v.view_id AND i.pos < least(v.view_length, 2) AND i.kind = 'summary'
               AND s.outdated_at IS NOT NULL) AS outdated
    FROM session_views v
    WHERE v.session_id = :session_id AND v.through_seq IS NOT NULL AND v.run_no < :run_no
    ORDER BY v.through_seq DESC LIMIT 20
""")
# The calls that a resumed Run left open get results: whoever showed them with placeholders has shown another version.
OUTDATE_RESUMED = """
    UPDATE session_views v SET outdated_at = now()
    FROM tool_batches b JOIN context_records a ON a.operation_id = b.batch_id AND a.kind = 'assistant'
    WHERE b.run_id = :resumed AND NOT b.consumed AND v.session_id = a.session_id AND v.through_seq >= a.seq
      AND v.outdated_at IS NULL
"""


@dataclass(frozen=True)
class ReusableView:
    """A saved view with the list it is a place in, and the estimator that counted it."""

    saved: SavedView
    view_id: UUID
    estimator_id: str


async def note_observed(
    connection: AsyncConnection, writes: WriteSet, heads: Heads, *, whole: bool, estimator_id: str
) -> None:
    """Put down how far the first list of a Run sees."""
    later = await fetch_value(connection, LATER_RUNS, session_id=heads.session_id, run_no=heads.run_no)
    owner = {"run_id": heads.run_id, "session_id": heads.session_id, "run_no": heads.run_no}
    seen = {"whole": whole, "observed_seq": observed(heads.session_head, later), "estimator_id": estimator_id}
    writes.insert(session_views, [owner | seen])


async def save_view(connection: AsyncConnection, writes: WriteSet, run_id: UUID) -> None:
    """Save the list of a Run that ends if it may stand for the session so far. `writes` binds `run_id`."""
    row: Any = await fetch_one(connection, SEEN, run_id=run_id)
    if row is None:
        return
    foreign = () if row["foreign_seq"] is None else (row["foreign_seq"],)
    claimed = claim(Seen(row["observed"], row["last"], foreign, row["unsettled"], row["queued"]))
    if isinstance(claimed, Claim):
        list_head = {"saved_view": row["view_id"], "saved_length": row["view_length"]}
        writes.sql(SAVE, through_seq=claimed.through_seq, **list_head)


async def reusable_view(connection: AsyncConnection, heads: Heads) -> ReusableView | None:
    """The view that a Run's first list goes on from, if there is one."""
    rows: Sequence[Any] = await fetch_all(connection, CANDIDATES, session_id=heads.session_id, run_no=heads.run_no)
    views = {SavedView(row["run_no"], row["through_seq"], row["length"], row["outdated"]): row for row in rows}
    best = best_view(list(views), before_run=heads.run_no)
    return ReusableView(best, views[best]["view_id"], views[best]["estimator_id"]) if best else None

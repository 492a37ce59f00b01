"""A published summary of an earlier Run at the beginning of a new one, in place of what it covers (SPEC P7, K10).

One that was asked for (SPEC K12) is looked for always, any other only where the history is too long otherwise. It must
lie wholly in the older part, and every piece of it that the history would show must still be the version that was
summarised.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.material import piece_of
from context.snapshots import Applies, Candidate, Outdated, reusable, summary_item
from context.summary_view import without_covered
from context.views import ViewItem
from storage.covering import CHAIN, changed_pieces, covered_among
from storage.database import fetch_all, fetch_value
from storage.heads import Heads
from storage.measuring import Measuring

NEWEST = text("""
    SELECT s.snapshot_id, s.runs, s.pieces, s.message_id, s.revisions
    FROM snapshots s JOIN compaction_episodes e USING (episode_id)
    WHERE s.session_id = :session_id AND s.activated AND s.outdated_at IS NULL AND s.runs <@ CAST(:older AS integer[])
      AND (NOT :asked_for OR e.operation_id IS NULL) AND s.snapshot_id <> ALL(CAST(:shown AS uuid[]))
    ORDER BY s.made_no DESC LIMIT 20
""")
SHOWN = text(f"""{CHAIN}
    SELECT p.piece, w.digest = p.digest AS same
    FROM chain JOIN snapshot_pieces p USING (snapshot_id)
      JOIN unnest(CAST(:pieces AS text[]), CAST(:payloads AS bytea[])) AS shown(piece, payload_id) USING (piece)
      JOIN payloads w ON w.payload_id = shown.payload_id
""")

FOLDED = text(f"{CHAIN} SELECT count(*) FROM chain WHERE snapshot_id = ANY(CAST(:shown AS uuid[]))")


IN_SUMMARIES = text("""
    SELECT coalesce(sum(pieces), 0) FROM snapshots WHERE snapshot_id = ANY(CAST(:summaries AS uuid[]))
""")


@dataclass(frozen=True)
class Older:
    """The part of a Session that a summary may stand for: Runs 1 to `through_run`.

    `whole`: the list shows all of it, so that what it does not show has another form by now.
    """

    through_run: int
    whole: bool


async def with_reused(
    measuring: Measuring, heads: Heads, items: Sequence[ViewItem], older: Older, *, asked_for: bool
) -> tuple[ViewItem, ...]:
    """The first list of a Run with the best earlier summary in it, or as it is if none fits.

    `asked_for`: only summaries that somebody asked for while the Session was idle. A summary that the list shows
    already is taken out if the new one was made from it; otherwise the list stays as it is.
    """
    connection, runs = measuring.connection, frozenset(range(1, older.through_run + 1))
    shown = [item.source_id for item in items if item.kind == "summary"]
    binds = {"session_id": heads.session_id, "older": sorted(runs)}
    rows: Any = await fetch_all(connection, NEWEST, **binds, asked_for=asked_for, shown=shown) if runs else []
    known = {row["snapshot_id"]: row for row in rows if await _folds_all(connection, row["snapshot_id"], shown)}
    candidates = [
        Candidate(one, frozenset(row["runs"]), row["pieces"], await _validity(connection, row, items, older))
        for one, row in reversed(known.items())
    ]
    best = reusable(candidates, older_runs=runs)
    if best is None:
        return tuple(items)
    row = known[best.snapshot_id]
    [summary] = await measuring.measure_stored([summary_item(best.snapshot_id, row["message_id"], 0)])
    covered = await covered_among(connection, best.snapshot_id, [piece_of(item) for item in items])
    return without_covered(items, summary, covered | {piece_of(item) for item in items if item.kind == "summary"})


async def _folds_all(connection: AsyncConnection, snapshot_id: UUID, shown: Sequence[UUID | None]) -> bool:
    """Whether a summary was made from all the summaries that the list shows."""
    if not shown:
        return True
    return bool(await fetch_value(connection, FOLDED, snapshot_id=snapshot_id, shown=shown) == len(shown))


async def _stands_for(connection: AsyncConnection, snapshot_id: UUID, items: Sequence[ViewItem]) -> int:
    """How many of its pieces the list shows, as themselves or in a summary that went into it."""
    pieces = await covered_among(connection, snapshot_id, [piece_of(item) for item in items])
    summaries = [item.source_id for item in items if item.kind == "summary"]
    return len(pieces) + int(await fetch_value(connection, IN_SUMMARIES, summaries=summaries))


async def _validity(
    connection: AsyncConnection, row: Any, items: Sequence[ViewItem], older: Older
) -> Applies | Outdated:
    """What the list shows is compared by content; what it does not show, by the changes of its context."""
    whole = [item for item in items if item.is_as_recorded]  # a preview is no other version of what it previews
    names = {"pieces": [piece_of(item) for item in whole], "payloads": [item.payload_id for item in whole]}
    shown = await fetch_all(connection, SHOWN, snapshot_id=row["snapshot_id"], **names)
    changed = tuple(one["piece"] for one in shown if not one["same"])
    gone = older.whole and await _stands_for(connection, row["snapshot_id"], items) < row["pieces"]
    revisions = {UUID(context): revision for context, revision in row["revisions"].items()}
    touched = await covered_among(connection, row["snapshot_id"], sorted(await changed_pieces(connection, revisions)))
    return Outdated(changed) if changed or gone or touched else Applies()

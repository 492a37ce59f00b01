"""Compactions of Runs and of idle Sessions: what went into each, how far it came, what became of it (SPEC K13).

No content.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.ids import block_operation_id, compaction_workflow_id
from storage.database import fetch_all, fetch_one
from storage.reads.owned import check_run
from storage.reads.pages import Page, clamped, cursor_made_no, found, page_of
from storage.snapshot_tables import SOURCE_ID
from storage.store import Store


@dataclass(frozen=True)
class CompactionRow:
    """One episode. Sizes are those of the whole request by one estimator; `cost` is None if a price is unknown.

    `ranges` and `pieces` are of all that its snapshot stands for, with what was folded in. An idle Session's has no
    operation, and stands with the Run that was the newest; before it is opened it has no sizes. `event_head` is the
    newest event of that Run. It was taken back as a whole at `outdated_at`,
    since something that it stands for changed (SPEC K10).
    """

    episode_id: UUID
    session_id: UUID
    run_id: UUID
    operation_id: UUID | None
    source: str
    causes: list[str]
    status: str
    outcome: str | None
    failure: Mapping[str, Any] | None
    blocks: int | None
    cursor: int
    tokens_before: int | None
    tokens_after: int | None
    ratio: Decimal | None
    target: int | None
    reaches_target: bool | None
    under_trigger: bool | None
    truncated: bool
    calls: int
    input_tokens: int | None
    output_tokens: int | None
    cost: Decimal | None
    snapshot_id: UUID | None
    outdated_at: datetime | None
    previous_snapshot_id: UUID | None
    summary_tokens: int | None
    pieces: int | None
    ranges: list[Mapping[str, Any]]
    replaced_inputs: list[UUID]
    event_head: int
    created_at: datetime
    ended_at: datetime | None

    @property
    def workflow_id(self) -> str:
        return compaction_workflow_id(self.episode_id)

    @property
    def has_ended(self) -> bool:
        return self.status not in ("queued", "running")


COLUMNS = """
    SELECT e.episode_id, e.session_id, e.run_id, e.operation_id, e.source, e.causes, e.status, e.outcome, e.failure,
           e.blocks, e.cursor, nullif(e.estimated, 0) AS tokens_before, e.tokens_after,
           (e.target ->> 'summary')::int AS target,
           e.reaches_target, e.under_trigger, e.truncated, s.snapshot_id, s.outdated_at,
           s.previous_id AS previous_snapshot_id,
           s.tokens AS summary_tokens, s.pieces, coalesce(s.ranges, '[]') AS ranges,
           r.event_head, e.created_at, e.ended_at, e.made_no
    FROM compaction_episodes e JOIN sessions o USING (session_id) JOIN runs r ON r.run_id = e.run_id
         LEFT JOIN snapshots s USING (episode_id)
    WHERE o.owner_id = :owner_id
"""
PAGE = text(f"""{COLUMNS}
      AND e.run_id = :run_id AND e.made_no > :after ORDER BY e.made_no LIMIT :limit
""")
ONE = text(f"{COLUMNS} AND e.episode_id = :episode_id")
# What a call under way has noted of itself is counted when it has ended.
CALLS = text("""
    SELECT operation_id, count(*)::int AS calls, sum((used ->> 'input_tokens')::bigint)::bigint AS input_tokens,
           sum((used ->> 'output_tokens')::bigint)::bigint AS output_tokens,
           sum(cost) FILTER (WHERE used IS NOT NULL) AS cost,
           bool_or(used IS NOT NULL AND cost IS NULL) AS unknown_cost
    FROM (SELECT operation_id, cost, CASE WHEN state <> 'calling' THEN usage END AS used FROM attempts
          WHERE operation_id = ANY(:ids)) tries
    GROUP BY operation_id
""")
INPUTS = text(f"""
    SELECT snapshot_id, array_agg(source_id ORDER BY ordinal) AS inputs
    FROM (SELECT p.snapshot_id, p.ordinal, {SOURCE_ID} AS source_id FROM snapshot_pieces p
          WHERE p.snapshot_id = ANY(:ids) AND p.piece LIKE 'input/%') named
    WHERE source_id IS NOT NULL GROUP BY snapshot_id
""")


async def compactions(
    store: Store, run_id: UUID, owner_id: UUID, *, limit: int = 50, cursor: str | None = None
) -> Page[CompactionRow]:
    """The compactions of a Run in the order they began. Raises NotFoundError."""
    limit, after = clamped(limit), cursor_made_no(cursor)
    async with store.reading() as connection:
        binds = {"run_id": run_id, "owner_id": owner_id, "after": after, "limit": limit + 1}
        rows = await fetch_all(connection, PAGE, **binds)
        if not rows:
            await check_run(connection, run_id, owner_id)
        page = page_of(rows, limit, lambda row: str(row["made_no"]))
        return Page(await _rows(connection, page.items), page.next)


async def compaction(store: Store, episode_id: UUID, owner_id: UUID) -> CompactionRow:
    """One compaction. Raises NotFoundError."""
    async with store.reading() as connection:
        row = found(
            await fetch_one(connection, ONE, episode_id=episode_id, owner_id=owner_id), "compaction", episode_id
        )
        return (await _rows(connection, [row]))[0]


async def _rows(connection: AsyncConnection, rows: Sequence[Mapping[str, Any]]) -> list[CompactionRow]:
    """The rows with what their calls used and which inputs they replaced."""
    blocks = {row["episode_id"]: _block_ids(row) for row in rows}
    ids = [one for of_episode in blocks.values() for one in of_episode]
    calls = {row["operation_id"]: row for row in await fetch_all(connection, CALLS, ids=ids)}
    snapshots = [row["snapshot_id"] for row in rows if row["snapshot_id"]]
    inputs = {row["snapshot_id"]: row["inputs"] for row in await fetch_all(connection, INPUTS, ids=snapshots)}
    made = {episode: [calls[one] for one in of_episode if one in calls] for episode, of_episode in blocks.items()}
    return [_row(row, made[row["episode_id"]], inputs) for row in rows]


def _block_ids(row: Mapping[str, Any]) -> list[UUID]:
    """Operations of an episode have derived ids: those of finished blocks, and of the one it came to."""
    return [block_operation_id(row["episode_id"], block) for block in range(row["cursor"] + 1)]


def _row(row: Mapping[str, Any], calls: list[Mapping[str, Any]], inputs: Mapping[UUID, list[UUID]]) -> CompactionRow:
    after = row["tokens_after"]
    before = row["tokens_before"]
    ratio = (Decimal(after) / before).quantize(Decimal("0.0001")) if after is not None and before else None
    unknown = not calls or any(call["unknown_cost"] for call in calls)
    return CompactionRow(
        **{name: value for name, value in row.items() if name != "made_no"},
        ratio=ratio,
        calls=sum(call["calls"] for call in calls),
        input_tokens=_total(calls, "input_tokens"),
        output_tokens=_total(calls, "output_tokens"),
        cost=None if unknown else sum((call["cost"] or Decimal(0) for call in calls), Decimal(0)),
        replaced_inputs=inputs.get(row["snapshot_id"], []),
    )


def _total(calls: list[Mapping[str, Any]], name: str) -> int | None:
    known = [call[name] for call in calls if call[name] is not None]
    return sum(known) if known else None

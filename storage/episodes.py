"""Compaction episodes read and locked: where one stands, who may move it, and the sources it froze (SPEC K5, K7).

Sources are the effective content of the facts behind the list, not what a view had shortened of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

from pydantic import TypeAdapter
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.compaction import Target
from context.episodes import EpisodeRef, OpenEpisode, Plan, SourceItem
from context.errors import NotFoundError, SupersededError
from context.messages import message_from_bytes
from context.views import ViewItem
from storage.database import fetch_all, fetch_one
from storage.effective import EFFECTIVE_THEN
from storage.store import Store

EPISODE = text("""
    SELECT episode_id, context_id, status, outcome, covered, folds, target, blocks, cursor, failure
    FROM compaction_episodes WHERE episode_id = :episode_id
""")
# An idle Session's episode has no request that waits: no execution owns it, and it is stopped by itself.
LOCK = text("""
    SELECT s.session_id, r.run_id, r.run_no, r.status AS run_status,
           r.execution_no, r.event_head, r.loops, r.input_tokens + r.output_tokens AS run_tokens, r.cost AS run_cost,
           CASE WHEN e.operation_id IS NULL THEN e.stop_requested_at ELSE r.stop_requested_at END IS NOT NULL
             AS stopping,
           c.view_id AS now_view_id, c.view_length AS now_view_length, c.active_snapshot_id,
           e.episode_id, e.context_id, e.operation_id, e.source, e.status, e.view_id, e.view_length, e.covered, e.folds,
           e.context_revision, e.expected_snapshot_id, e.estimated, e.blocks, e.cursor, e.summary_id,
           e.truncated, e.outcome, e.failure, e.tokens_after, e.through_run_no
    FROM compaction_episodes e JOIN role_contexts c USING (context_id) JOIN runs r ON r.run_id = e.run_id
         JOIN sessions s ON s.session_id = r.session_id
    WHERE e.episode_id = :episode_id
    FOR UPDATE OF s, r, c, e
""")
SOURCES = text(f"""
    SELECT v.pos, v.kind, v.source_id, v.run_no, v.revision, v.tokens, v.transform,
           coalesce(e.payload_id, c.payload_id, v.payload_id) AS payload_id
    FROM compaction_episodes o JOIN view_items v ON v.view_id = o.view_id
         LEFT JOIN context_records c ON c.record_id = v.source_id
           AND v.transform IN ('tool_result_pruned', 'args_truncated')
         {EFFECTIVE_THEN}
    WHERE o.episode_id = :episode_id AND v.pos = ANY(CAST(:positions AS integer[])) ORDER BY v.pos
""")


PLAN: TypeAdapter[Plan] = TypeAdapter(Plan)
"""How a plan is stored."""


@dataclass(frozen=True)
class FrozenSources:
    """What an episode summarises, as it was frozen: places of a list, and the revision of its context."""

    session_id: UUID
    run_no: int
    episode_id: UUID
    context_id: UUID
    view_id: UUID | None
    view_length: int
    covered: list[int]
    folds: int | None
    context_revision: int


@dataclass(frozen=True)
class LockedEpisode(FrozenSources):
    """An episode with its Session, Run and context as they stand under this transaction's locks."""

    run_id: UUID
    run_status: str
    execution_no: int
    event_head: int
    loops: int
    stopping: bool
    run_tokens: int
    run_cost: Decimal | None
    now_view_id: UUID
    now_view_length: int
    active_snapshot_id: UUID | None
    operation_id: UUID | None
    source: str
    status: str
    expected_snapshot_id: UUID | None
    estimated: int
    blocks: int | None
    cursor: int
    summary_id: bytes | None
    truncated: bool
    outcome: str | None
    failure: dict[str, Any] | None
    tokens_after: int | None
    through_run_no: int | None

    @property
    def runs(self) -> bool:
        return self.status == "running"

    @property
    def is_idle(self) -> bool:
        return self.operation_id is None


async def lock_episode(connection: AsyncConnection, ref: EpisodeRef) -> LockedEpisode:
    """Lock session, run, context and episode, in this order.

    Raises SupersededError if the Run that waits for it has ended or gone on without it.
    """
    row: Any = await fetch_one(connection, LOCK, episode_id=ref.episode_id)
    if row is None:
        raise SupersededError
    found = LockedEpisode(**row)
    owned = found.run_status == "running" and found.execution_no == ref.execution_no
    if found.operation_id is not None and not owned:
        raise SupersededError
    return found


async def open_episode(store: Store, episode_id: UUID) -> OpenEpisode:
    """An episode as it stands. Raises NotFoundError."""
    async with store.reading() as connection:
        row: Any = await fetch_one(connection, EPISODE, episode_id=episode_id)
    if row is None:
        raise NotFoundError.of("compaction", episode_id)
    target = Target(**row["target"]) if row["target"] else None
    shaped = {"covered": tuple(row["covered"]), "target": target}
    return OpenEpisode(**(row | shaped))


async def sources(store: Store, episode_id: UUID, positions: Sequence[int]) -> tuple[SourceItem, ...]:
    """Items of the frozen list with their content, in order."""
    async with store.reading() as connection:
        return await read_sources(store, connection, episode_id, positions)


async def read_sources(
    store: Store, connection: AsyncConnection, episode_id: UUID, positions: Sequence[int]
) -> tuple[SourceItem, ...]:
    """The same inside a transaction."""
    rows: Any = await fetch_all(connection, SOURCES, episode_id=episode_id, positions=list(positions))
    contents = await store.payloads.read(connection, [row["payload_id"] for row in rows])
    return tuple(
        SourceItem(
            row["pos"],
            ViewItem(**{name: row[name] for name in row if name != "pos"}),
            message_from_bytes(contents[row["payload_id"]]),
        )
        for row in rows
    )


FOLDED = text("""
    SELECT s.text_id FROM compaction_episodes e JOIN view_items v ON v.view_id = e.view_id AND v.pos = e.folds
      JOIN snapshots s ON s.snapshot_id = v.source_id
    WHERE e.episode_id = :episode_id
""")
PLANNED = text("SELECT plan_id, summary_id, status, cursor FROM compaction_episodes WHERE episode_id = :episode_id")


async def folded_text(store: Store, episode_id: UUID) -> str | None:
    """The earlier summary that goes into the new one, as it came; None if there is none."""
    async with store.reading() as connection:
        row = await fetch_one(connection, FOLDED, episode_id=episode_id)
        return (await store.payloads.read_one(connection, row["text_id"])).decode() if row else None


@dataclass(frozen=True)
class Progress:
    """The plan of an episode and the summary so far, as stored; both None before they are."""

    plan: bytes | None
    summary: str | None
    cursor: int


async def progress(store: Store, episode_id: UUID) -> Progress:
    """How far an episode has come. Raises NotFoundError."""
    async with store.reading() as connection:
        row: Any = await fetch_one(connection, PLANNED, episode_id=episode_id)
        if row is None:
            raise NotFoundError.of("compaction", episode_id)
        ids = [one for one in (row["plan_id"], row["summary_id"]) if one is not None]
        contents = await store.payloads.read(connection, ids)
    summary = contents[row["summary_id"]].decode() if row["summary_id"] else None
    return Progress(contents.get(row["plan_id"]), summary, row["cursor"])

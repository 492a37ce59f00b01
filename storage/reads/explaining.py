"""Why a record or input was or was not in a request, and what two requests have in common (SPEC A10).

From what was stored when the request was made: its list, its cutoff, and the coverage of the summary in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.explain import (
    DiffLine,
    ExplainedBlock,
    ExplainedRequest,
    Explanation,
    Subject,
    common_prefix,
    diff,
    explain,
    explain_block,
)
from context.ids import block_operation_id, snapshot_id
from context.material import piece_of
from context.views import ViewItem
from storage.covering import covered_among
from storage.database import fetch_all, fetch_one
from storage.episodes import PLAN
from storage.reads.pages import found
from storage.reads.releases import release
from storage.store import Store
from storage.view_lists import listed

# A record was there if it is an input up to the cutoff, or came from a call that was made before the request: what a
# call brings is listed by the next request at the latest.
REQUEST = text("""
    SELECT o.view_id, o.view_length, o.context_id, o.session_id, coalesce(o.input_cutoff, 0) AS cutoff, r.run_no,
           r.run_id, r.release_id, o.purpose, o.ordinal,
           (SELECT v.observed_seq FROM session_views v WHERE v.run_id = o.run_id) AS observed,
           coalesce((SELECT max(c.context_seq) FROM context_records c
               LEFT JOIN operations p ON p.operation_id = c.operation_id
               LEFT JOIN user_inputs i ON i.input_id = c.input_id
             WHERE c.context_id = o.context_id AND (p.made_no < o.made_no OR i.input_seq <= o.input_cutoff)), 0)
             AS watermark
    FROM operations o JOIN runs r USING (run_id) JOIN sessions s ON s.session_id = o.session_id
    WHERE o.operation_id = :operation_id AND s.owner_id = :owner_id AND o.view_id IS NOT NULL
""")
# The episode of a block, and what its sources could contain: the request that waited for it says that, which was made
# before the block and answered after it, or in an idle Session the inputs of the Runs that it was made of.
BLOCKS = text("""
    SELECT e.episode_id, e.plan_id, v.source_id AS folds, n.cutoff, e.operation_id IS NULL AS is_idle,
           coalesce((SELECT max(c.context_seq) FROM context_records c
               LEFT JOIN operations p ON p.operation_id = c.operation_id
               LEFT JOIN user_inputs i ON i.input_id = c.input_id
             WHERE c.context_id = e.context_id
               AND (p.made_no < coalesce(w.made_no, e.made_no) OR i.input_seq <= n.cutoff)), 0) AS watermark
    FROM compaction_episodes e LEFT JOIN operations w ON w.operation_id = e.operation_id
         LEFT JOIN view_items v ON v.view_id = e.view_id AND v.pos = e.folds
         CROSS JOIN LATERAL (SELECT coalesce(w.input_cutoff, (
           SELECT max(i.input_seq) FROM user_inputs i JOIN runs q ON q.run_id = i.origin_run_id
           WHERE i.session_id = e.session_id AND q.run_no <= e.through_run_no), 0) AS cutoff) n
    WHERE e.run_id = :run_id AND e.plan_id IS NOT NULL
""")
RECORD = text("""
    SELECT c.record_id, c.input_id, c.context_id, c.context_seq, c.seq, c.kind, c.session_id, r.run_no, i.input_seq,
           x.instance <> 'main' AS is_private, EXISTS (SELECT 1 FROM input_deliveries d
             WHERE d.input_id = c.input_id AND d.state = 'withdrawn') AS is_withdrawn
    FROM context_records c JOIN runs r USING (run_id) JOIN role_contexts x ON x.context_id = c.context_id
         JOIN sessions s ON s.session_id = c.session_id LEFT JOIN user_inputs i ON i.input_id = c.input_id
    WHERE c.record_id = :record_id AND s.owner_id = :owner_id
""")
INPUT = text("""
    SELECT i.input_id, i.input_seq, i.session_id, coalesce(r.run_no, 0) AS run_no,
           EXISTS (SELECT 1 FROM input_deliveries d
                   WHERE d.input_id = i.input_id AND d.state = 'withdrawn') AS is_withdrawn
    FROM user_inputs i JOIN sessions s USING (session_id) LEFT JOIN runs r ON r.run_id = i.origin_run_id
    WHERE i.input_id = :input_id AND s.owner_id = :owner_id
""")


@dataclass(frozen=True)
class ExplainedPiece:
    """What became of a piece in a request."""

    piece: str
    explanation: Explanation


@dataclass(frozen=True)
class ComparedRequests:
    """Two requests item by item; `common_prefix` items at their beginning are the same."""

    lines: tuple[DiffLine, ...]
    common_prefix: int


@dataclass(frozen=True)
class _Request:
    row: Any
    items: tuple[ViewItem, ...]


async def explained(
    store: Store, operation_id: UUID, owner_id: UUID, *, record_id: UUID | None = None, input_id: UUID | None = None
) -> ExplainedPiece:
    """What became of a record or of an input in the request of a model call. Raises NotFoundError."""
    async with store.reading() as connection:
        request = await _request(connection, operation_id, owner_id)
        session_id = request.row["session_id"]
        if record_id is not None:
            subject = await _record(connection, record_id, owner_id, session_id)
        else:
            subject = await _input(connection, input_id, owner_id, session_id)
        covered = await _covered(connection, request.items, [subject.piece])
        episode = await _episode(connection, request, operation_id)
        block = await _block(store, connection, request, episode, subject.piece) if episode else None
    settings = (await release(store, request.row["release_id"])).definition.context
    whole = settings.history == "session_view"
    asked = ExplainedRequest(
        items=request.items,
        run_no=request.row["run_no"],
        context_id=request.row["context_id"],
        cutoff=(episode or request.row)["cutoff"],
        watermark=(episode or request.row)["watermark"],
        snapshots=covered,
        recent_from=None if whole else max(1, request.row["run_no"] - settings.recent_runs),
        observed=None if episode and episode["is_idle"] else request.row["observed"],
    )
    explanation = explain_block(subject, block, asked) if block else explain(subject, asked)
    return ExplainedPiece(subject.piece, explanation)


async def compared(store: Store, left: UUID, right: UUID, owner_id: UUID) -> ComparedRequests:
    """The request of the Operation `right` seen from that of `left`. Raises NotFoundError."""
    async with store.reading() as connection:
        before = await _request(connection, left, owner_id)
        after = await _request(connection, right, owner_id)
        covered = await _covered(connection, after.items, [piece_of(item) for item in before.items])
    lines = diff(before.items, after.items, snapshots=covered)
    return ComparedRequests(lines, common_prefix(before.items, after.items))


async def _request(connection: AsyncConnection, operation_id: UUID, owner_id: UUID) -> _Request:
    row = found(
        await fetch_one(connection, REQUEST, operation_id=operation_id, owner_id=owner_id), "model call", operation_id
    )
    items = await listed(connection, row["view_id"], row["view_length"])
    return _Request(row, items)


async def _covered(
    connection: AsyncConnection, items: Sequence[ViewItem], pieces: Sequence[str]
) -> dict[UUID, set[str]]:
    """Which of these pieces the summaries in a list stand for; the others that they stand for are not read."""
    summaries = [item.source_id for item in items if item.kind == "summary" and item.source_id is not None]
    return {one: await covered_among(connection, one, pieces) for one in summaries}


async def _episode(connection: AsyncConnection, request: _Request, operation_id: UUID) -> Any:
    """The compaction that a call belongs to; None for another call."""
    if request.row["purpose"] != "compaction":
        return None
    rows = await fetch_all(connection, BLOCKS, run_id=request.row["run_id"])
    number = request.row["ordinal"]
    return next(row for row in rows if block_operation_id(row["episode_id"], number) == operation_id)


async def _block(
    store: Store, connection: AsyncConnection, request: _Request, episode: Any, piece: str
) -> ExplainedBlock:
    """What a call of a compaction was made from."""
    number, folds = request.row["ordinal"], episode["folds"]
    plan = PLAN.validate_json(await store.payloads.read_one(connection, episode["plan_id"]))
    pieces = [{part.piece: part.is_whole for part in block.parts} for block in plan.blocks]
    has_earlier = number > 0 or plan.carries_on or f"summary/{folds}" in pieces[0]
    return ExplainedBlock(
        shown=pieces[number],
        before={name for block in pieces[:number] for name in block},
        later={name for block in pieces[number + 1 :] for name in block},
        summary=snapshot_id(episode["episode_id"]),
        position=request.row["view_length"] - 1,
        folds=folds if has_earlier else None,
        folded=await covered_among(connection, folds, [piece]) if folds else frozenset(),
    )


async def _record(connection: AsyncConnection, record_id: UUID, owner_id: UUID, session_id: UUID) -> Subject:
    row: Any = found(await fetch_one(connection, RECORD, record_id=record_id, owner_id=owner_id), "record", record_id)
    return Subject(
        piece=f"input/{row['input_id']}" if row["input_id"] else f"record/{record_id}",
        run_no=row["run_no"],
        context_id=row["context_id"],
        context_seq=row["context_seq"],
        session_seq=row["seq"],
        input_seq=row["input_seq"],
        is_private=row["is_private"],
        is_fragment=row["kind"] == "fragment",
        is_withdrawn=row["is_withdrawn"],
        same_session=row["session_id"] == session_id,
    )


async def _input(connection: AsyncConnection, input_id: UUID | None, owner_id: UUID, session_id: UUID) -> Subject:
    row: Any = found(await fetch_one(connection, INPUT, input_id=input_id, owner_id=owner_id), "input", input_id or "")
    return Subject(
        piece=f"input/{input_id}",
        run_no=row["run_no"],
        input_seq=row["input_seq"],
        is_withdrawn=row["is_withdrawn"],
        same_session=row["session_id"] == session_id,
    )

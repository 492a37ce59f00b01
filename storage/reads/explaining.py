"""Why a record or input was or was not in a request, and what two requests have in common (SPEC A10).

From what was stored when the request was made: its list, its cutoff, and the coverage of the summary in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.explain import DiffLine, ExplainedRequest, Explanation, Subject, common_prefix, diff, explain
from context.material import piece_of
from context.views import ViewItem
from storage.covering import covered_among
from storage.database import fetch_one
from storage.reads.pages import found
from storage.reads.releases import release
from storage.store import Store
from storage.view_lists import listed

# A record was there if it is an input up to the cutoff, or came from a call that was made before the request: what a
# call brings is listed by the next request at the latest.
REQUEST = text("""
    SELECT o.view_id, o.view_length, o.context_id, o.session_id, coalesce(o.input_cutoff, 0) AS cutoff, r.run_no,
           r.release_id, (SELECT v.observed_seq FROM session_views v WHERE v.run_id = o.run_id) AS observed,
           coalesce((SELECT max(c.context_seq) FROM context_records c
               LEFT JOIN operations p ON p.operation_id = c.operation_id
               LEFT JOIN user_inputs i ON i.input_id = c.input_id
             WHERE c.context_id = o.context_id AND (p.made_no < o.made_no OR i.input_seq <= o.input_cutoff)), 0)
             AS watermark
    FROM operations o JOIN runs r USING (run_id) JOIN sessions s ON s.session_id = o.session_id
    WHERE o.operation_id = :operation_id AND s.owner_id = :owner_id AND o.view_id IS NOT NULL
""")
RECORD = text("""
    SELECT c.record_id, c.input_id, c.context_id, c.context_seq, c.seq, c.kind, c.session_id, r.run_no, i.input_seq,
           x.instance <> 'main' AS is_private
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
    settings = (await release(store, request.row["release_id"])).definition.context
    whole = settings.history == "session_view"
    asked = ExplainedRequest(
        items=request.items,
        run_no=request.row["run_no"],
        context_id=request.row["context_id"],
        cutoff=request.row["cutoff"],
        watermark=request.row["watermark"],
        snapshots=covered,
        recent_from=None if whole else max(1, request.row["run_no"] - settings.recent_runs),
        observed=request.row["observed"],
    )
    return ExplainedPiece(subject.piece, explain(subject, asked))


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

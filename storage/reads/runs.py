"""Runs, their events and the contexts in them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.ids import run_workflow_id
from context.messages import message_from_bytes
from storage.database import fetch_all, fetch_one
from storage.reads.owned import check_run, check_session
from storage.reads.pages import Page, clamped, cursor_number, found, page_of
from storage.reads.usage import UsageTotals
from storage.store import Store

MAX_EVENTS = 1_000


@dataclass(frozen=True)
class RunRow:
    """A Run as committed. `answer` is there only once it has succeeded; `error` is `{code, message, numbers}`."""

    run_id: UUID
    session_id: UUID
    release_id: UUID
    run_no: int
    status: str
    phase: str
    loops: int
    answer: str | None = field(repr=False)
    end_reason: str | None
    error: Mapping[str, Any] | None
    input_cutoff: int
    execution_no: int
    event_head: int
    usage: UsageTotals
    stop_requested: bool
    created_at: datetime
    ended_at: datetime | None

    @property
    def workflow_id(self) -> str:
        return run_workflow_id(self.run_id)

    @property
    def is_active(self) -> bool:
        return self.status in ("queued", "running")


@dataclass(frozen=True)
class EventRow:
    """One event; `body` holds ids and numbers only."""

    run_seq: int
    type: str
    at: datetime
    body: Mapping[str, Any]


@dataclass(frozen=True)
class InstanceRow:
    """A RoleContext: `main`, or the id of a delegated task."""

    instance: str
    context_id: UUID
    role: str
    records: int
    revision: int


PLAIN = [
    "run_id",
    "session_id",
    "release_id",
    "run_no",
    "status",
    "phase",
    "loops",
    "end_reason",
    "error",
    "input_cutoff",
    "execution_no",
    "event_head",
    "created_at",
    "ended_at",
]
COLUMNS = f"""
    SELECT {", ".join("r." + name for name in PLAIN)}, r.stop_requested_at IS NOT NULL AS stop_requested,
           r.input_tokens, r.output_tokens, r.cached_tokens, r.usage_unknown AS unknown, r.cost,
           a.payload_id AS answer_id
    FROM runs r JOIN sessions s ON s.session_id = r.session_id
    LEFT JOIN context_records a ON a.record_id = r.answer_record_id AND r.status = 'succeeded'
    WHERE s.owner_id = :owner_id
"""
ONE = text(f"{COLUMNS} AND r.run_id = :run_id")
OF_SESSION = text(f"{COLUMNS} AND r.session_id = :session_id AND r.run_no > :after ORDER BY r.run_no LIMIT :limit")
EVENTS = text("""
    SELECT e.run_seq, e.type, e.at, e.body
    FROM run_events e JOIN runs r USING (run_id) JOIN sessions s ON s.session_id = r.session_id
    WHERE e.run_id = :run_id AND s.owner_id = :owner_id AND e.run_seq > :after ORDER BY e.run_seq LIMIT :limit
""")
INSTANCES = text("""
    SELECT x.instance, x.context_id, t.role_key AS role, x.record_head AS records, x.revision
    FROM role_contexts x JOIN agent_tasks t USING (task_id) JOIN sessions s ON s.session_id = x.session_id
         LEFT JOIN operations o ON o.operation_id = t.parent_operation_id
    WHERE x.run_id = :run_id AND s.owner_id = :owner_id ORDER BY x.instance <> 'main', o.made_no, x.context_id
""")


async def run(store: Store, run_id: UUID, owner_id: UUID) -> RunRow:
    """One Run. Raises NotFoundError."""
    async with store.reading() as connection:
        row = found(await fetch_one(connection, ONE, run_id=run_id, owner_id=owner_id), "run", run_id)
        return (await _rows(store, connection, [row]))[0]


async def runs(
    store: Store, session_id: UUID, owner_id: UUID, *, limit: int = 50, cursor: str | None = None
) -> Page[RunRow]:
    """The Runs of a session in order. Raises NotFoundError."""
    limit, after = clamped(limit), cursor_number(cursor)
    binds = {"session_id": session_id, "owner_id": owner_id}
    async with store.reading() as connection:
        rows = await fetch_all(connection, OF_SESSION, **binds, after=after, limit=limit + 1)
        if not rows:
            await check_session(connection, session_id, owner_id)
        return page_of(await _rows(store, connection, rows), limit, lambda one: str(one.run_no))


async def run_events(
    store: Store, run_id: UUID, owner_id: UUID, *, after: int = 0, limit: int = MAX_EVENTS
) -> list[EventRow]:
    """The events of a Run beyond `run_seq` = `after`, at most 1000. Raises NotFoundError."""
    binds = {"run_id": run_id, "owner_id": owner_id}
    async with store.reading() as connection:
        rows = await fetch_all(connection, EVENTS, **binds, after=after, limit=min(limit, MAX_EVENTS))
        if not rows:
            await check_run(connection, run_id, owner_id)
    return [EventRow(**row) for row in rows]


async def instances(store: Store, run_id: UUID, owner_id: UUID) -> list[InstanceRow]:
    """The contexts of a Run: `main`, then by the calls that delegated. Raises NotFoundError."""
    async with store.reading() as connection:
        rows = await fetch_all(connection, INSTANCES, run_id=run_id, owner_id=owner_id)
        if not rows:
            await check_run(connection, run_id, owner_id)
    return [InstanceRow(**row) for row in rows]


async def _rows(store: Store, connection: AsyncConnection, rows: Sequence[Mapping[str, Any]]) -> list[RunRow]:
    answers = await store.payloads.read(connection, [row["answer_id"] for row in rows if row["answer_id"]])
    return [_row(row, answers) for row in rows]


def _row(row: Mapping[str, Any], answers: Mapping[bytes, bytes]) -> RunRow:
    usage = UsageTotals(**{name: row[name] for name in UsageTotals.FIELDS})
    return RunRow(
        **{name: row[name] for name in PLAIN},
        stop_requested=row["stop_requested"],
        usage=usage,
        answer=message_from_bytes(answers[row["answer_id"]]).content if row["answer_id"] else None,
    )

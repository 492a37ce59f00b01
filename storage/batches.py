"""The open calls of a batch, read at once: what is to be called, and whether it, or one more, still may be."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import text

from context.messages import message_from_bytes
from context.steps import ToolCallFacts
from storage.database import fetch_all, fetch_value
from storage.store import Store

CALLS = text("""
    SELECT t.operation_id, t.session_id, t.run_id, t.name, t.call_id, t.ordinal, r.release_id, m.result_id,
           r.status = 'running' AND r.execution_no = :execution_no AS owned,
           r.stop_requested_at IS NOT NULL AS stopping
    FROM operations t JOIN operations m ON m.operation_id = t.batch_id JOIN runs r ON r.run_id = t.run_id
    WHERE t.batch_id = :batch_id AND t.verdict IS NULL ORDER BY t.ordinal
""")
MAY_BEGIN = text("""
    SELECT EXISTS (SELECT 1 FROM runs
      WHERE run_id = :run_id AND status = 'running' AND execution_no = :execution_no AND stop_requested_at IS NULL
        AND extract(epoch FROM clock_timestamp()) < coalesce(CAST(:deadline_at AS double precision), 'infinity'))
""")


@dataclass(frozen=True)
class BatchCalls:
    """The calls without a result. `may_run`: this execution owns the Run, and no stop is recorded."""

    calls: tuple[ToolCallFacts, ...]
    may_run: bool


async def batch_calls(store: Store, batch_id: UUID, execution_no: int) -> BatchCalls:
    """What is left to call of a batch."""
    async with store.reading() as connection:
        rows: Any = await fetch_all(connection, CALLS, batch_id=batch_id, execution_no=execution_no)
        if not rows:
            return BatchCalls((), True)
        message = message_from_bytes(await store.payloads.read_one(connection, rows[0]["result_id"]))
    same = ("operation_id", "session_id", "run_id", "release_id", "name", "call_id")
    calls = tuple(
        ToolCallFacts(**{name: row[name] for name in same}, arguments=message.tool_calls[row["ordinal"]].arguments)
        for row in rows
    )
    return BatchCalls(calls, all(row["owned"] and not row["stopping"] for row in rows))


async def may_begin(store: Store, run_id: UUID, execution_no: int, *, deadline_at: float | None) -> bool:
    """Whether one more call may begin: this execution owns the Run, no stop is recorded, and there is time left."""
    async with store.reading() as connection:
        key = {"run_id": run_id, "execution_no": execution_no, "deadline_at": deadline_at}
        return bool(await fetch_value(connection, MAY_BEGIN, **key))

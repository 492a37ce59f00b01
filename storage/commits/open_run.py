"""Opening: the Run goes from queued to running, with the context of its root role (DESIGN 3, phase `opening`)."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import text

from context.chain import EMPTY_CHAIN
from context.errors import SupersededError
from context.ids import derived, root_context_id
from context.steps import OpenedRun, OpenRun, UnsettledTool
from storage.database import fetch_all, fetch_one
from storage.event_log import EventLog
from storage.store import Store
from storage.tables import agent_tasks, role_contexts
from storage.writes import WriteSet

# A loop is behind us once its call is finished. One that a crash interrupted is prepared again and found as it was; one
# that a stop or a failure cut off is made anew by the next execution (SPEC R6, S9).
LOCK = text("""
    SELECT s.session_id, r.release_id, r.run_no, r.status, r.execution_no, r.active_ms, r.event_head,
           CASE WHEN EXISTS (SELECT 1 FROM operations o
                             WHERE o.run_id = r.run_id AND o.purpose = 'business' AND o.loop_no = r.loops
                               AND o.raw_id IS NOT NULL)
                THEN r.loops ELSE greatest(0, r.loops - 1) END AS loops,
           r.asked_to_compact, r.answer_record_id IS NOT NULL AS answered,
           r.input_tokens + r.output_tokens AS used_tokens, r.cost
    FROM runs r JOIN sessions s USING (session_id)
    WHERE r.run_id = :run_id FOR UPDATE OF s, r
""")

BATCH = text("""
    SELECT b.batch_id, o.ordinal, o.name, o.verdict IS NULL AS unsettled
    FROM tool_batches b JOIN operations o USING (batch_id)
    WHERE b.run_id = :run_id AND NOT b.consumed ORDER BY o.ordinal
""")
REOPEN = """
    UPDATE operations SET state = 'prepared'
    WHERE batch_id = :batch_id AND state IN ('cancelled', 'unknown', 'calling') AND verdict IS NULL
"""
START = """
    UPDATE runs SET status = 'running', phase = 'preparing', started_at = now(), event_head = :event_head
    WHERE run_id = :run_id AND status = 'queued'
"""


async def open_run(store: Store, request: OpenRun) -> OpenedRun:
    """Open the Run; a repeat finds it open. Raises SupersededError if it has ended or another execution owns it."""
    async with store.transaction("open_run") as connection:
        run = await fetch_one(connection, LOCK, run_id=request.run_id)
        if run is None or run["execution_no"] != request.execution_no or run["status"] not in ("queued", "running"):
            raise SupersededError
        task_id, context_id = derived(request.run_id, "root"), root_context_id(request.run_id)
        writes = WriteSet()
        task = {"task_id": task_id, "run_id": request.run_id, "role_key": "root"}
        writes.insert(agent_tasks, [task], skip_existing=True)
        context = {"context_id": context_id, "session_id": run["session_id"], "run_id": request.run_id}
        root = {"task_id": task_id, "instance": "main", "chain": EMPTY_CHAIN}
        writes.insert(role_contexts, [context | root], skip_existing=True)
        if run["status"] == "queued":
            events = EventLog(request.run_id, run["event_head"])
            events.add("run_started", execution_no=request.execution_no)
            events.write(writes)
            writes.sql(START, run_id=request.run_id)
        batch = await fetch_all(connection, BATCH, run_id=request.run_id)
        if batch:
            writes.sql(REOPEN, batch_id=batch[0]["batch_id"])
        await writes.send(connection)
        return _opened(run, context_id, batch)


FROM_ROW = ("session_id", "release_id", "run_no", "loops", "active_ms", "answered", "used_tokens", "cost")


def _opened(run: Any, context_id: UUID, batch: Sequence[Any]) -> OpenedRun:
    open_calls = [call for call in batch if call["unsettled"]]
    return OpenedRun(
        **{name: run[name] for name in FROM_ROW},
        **({"asked_to_compact": True} if run["asked_to_compact"] else {}),
        context_id=context_id,
        batch_id=batch[0]["batch_id"] if batch else None,
        unsettled=tuple(UnsettledTool(ordinal=call["ordinal"], name=call["name"]) for call in open_calls),
    )

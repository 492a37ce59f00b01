"""Opening: the Run goes from queued to running, with the context of its root role (DESIGN 3, phase `opening`)."""

from uuid import UUID

from pydantic import BaseModel, ConfigDict
from sqlalchemy import text

from context.errors import SupersededError
from context.ids import derived
from context.revisions import EMPTY_CHAIN
from storage.event_log import EventLog
from storage.database import fetch_one
from storage.store import Store
from storage.tables import agent_tasks, role_contexts
from storage.writes import WriteSet


class OpenRun(BaseModel):
    """Opens execution `execution_no` of a Run."""

    model_config = ConfigDict(frozen=True)

    run_id: UUID
    execution_no: int


class OpenedRun(BaseModel):
    """What the execution starts from; `batch_id` names a batch of an earlier execution that no request carries yet."""

    model_config = ConfigDict(frozen=True)

    session_id: UUID
    context_id: UUID
    release_id: UUID
    run_no: int
    loops: int
    active_ms: int
    batch_id: UUID | None


LOCK = text("""
    SELECT s.session_id, r.release_id, r.run_no, r.status, r.execution_no, r.loops, r.active_ms, r.event_head,
           (SELECT b.batch_id FROM tool_batches b WHERE b.run_id = r.run_id AND NOT b.consumed LIMIT 1) AS batch_id
    FROM runs r JOIN sessions s USING (session_id)
    WHERE r.run_id = :run_id FOR UPDATE OF s, r
""")

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
        await writes.send(connection)
        return OpenedRun(context_id=context_id, **{name: run[name] for name in FROM_ROW})


FROM_ROW = ("session_id", "release_id", "run_no", "loops", "active_ms", "batch_id")


def root_context_id(run_id: UUID) -> UUID:
    """The RoleContext of a Run's root role."""
    return derived(run_id, "root", "context")

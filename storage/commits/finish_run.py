"""The end of a Run: its state, what became of its inputs, calls and view, and the event that tells (SPEC S2, S6, P2).

A Run ends once. Whoever comes later, with whatever end, finds the one that stands. Calls that nobody reported on, and
nobody will try again, are counted here at the latest (SPEC L5).
"""

import json
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.errors import SupersededError
from context.policy import Limits
from context.spending import Spent, spent
from context.steps import FinishedRun, FinishRun, PreparedRequest
from storage.database import fetch_one, fetch_value
from storage.event_log import EventLog
from storage.freezing import keep_manifest, tell_built
from storage.lost_tries import settling
from storage.session_views import save_view
from storage.store import Store
from storage.tool_tries import LEFT_OPEN
from storage.writes import WriteSet

LOCK = text("""
    SELECT s.session_id, r.status, r.execution_no, r.end_reason, r.error, r.event_head, r.loops
    FROM runs r JOIN sessions s USING (session_id) WHERE r.run_id = :run_id FOR UPDATE OF s, r
""")
# Read after the locks were taken: what no commit can change until this one is true.
STANDS = text("""
    SELECT EXISTS (SELECT 1 FROM input_deliveries WHERE run_id = :run_id AND state = 'pending') AS late,
           x.record_head AS records, encode(x.chain, 'hex') AS chain,
           (SELECT json_build_object('operation_id', o.operation_id, 'loop', o.loop_no, 'prepared', o.prepared,
                                     'episode_id', e.episode_id)
            FROM operations o JOIN compaction_episodes e USING (operation_id)
            WHERE o.run_id = :run_id AND o.state = 'prepared' AND o.view_id IS NULL
            ORDER BY o.made_no DESC LIMIT 1) AS waiting
    FROM (SELECT 1) one LEFT JOIN role_contexts x ON x.run_id = :run_id AND x.instance = 'main'
""")
CARRY = """
    INSERT INTO input_deliveries (delivery_id, input_id, session_id, input_seq, previous_delivery_id, state)
    SELECT gen_random_uuid(), d.input_id, d.session_id, d.input_seq, d.delivery_id, 'pending'
    FROM input_deliveries d JOIN user_inputs i USING (input_id)
    WHERE d.run_id = :run_id AND d.state IN ('pending', 'claimed') AND i.kind = 'supplement'
"""
LET_GO = """
    UPDATE input_deliveries d SET state = 'carried' FROM user_inputs i
    WHERE d.run_id = :run_id AND d.state IN ('pending', 'claimed') AND i.input_id = d.input_id
      AND i.kind = 'supplement'
"""
OPEN = "('prepared', 'frozen', 'calling', 'raw_stored')"
# A request that still waits for its compaction was listed for that, and shows that list.
FROZEN_FOR = "(SELECT e.{} FROM compaction_episodes e WHERE e.operation_id = operations.operation_id)"
CLOSE_OPERATIONS = f"""
    UPDATE operations SET state = CASE WHEN purpose = 'tool' AND {LEFT_OPEN.format(call="operations")}
           THEN 'unknown' ELSE 'cancelled' END,
           view_id = coalesce(view_id, {FROZEN_FOR.format("view_id")}),
           view_length = coalesce(view_length, {FROZEN_FOR.format("view_length")}), updated_at = now()
    WHERE run_id = :run_id AND state IN {OPEN}
      AND NOT EXISTS (SELECT 1 FROM idle_blocks b WHERE b.operation_id = operations.operation_id)
"""
# Tries still under way, and those of model calls that were closed and not counted.
LOST = f"""
    CASE WHEN o.purpose = 'tool' THEN a.state = 'calling' AND o.state IN {OPEN}
         ELSE a.state = 'calling' OR (a.state = 'superseded' AND a.usage IS NULL AND a.begun_at IS NOT NULL) END
    AND NOT EXISTS (SELECT 1 FROM idle_blocks b WHERE b.operation_id = o.operation_id)
"""
SETTLE = text(f"""
    WITH {settling(run="SELECT run_id FROM runs WHERE run_id = :run_id", which=LOST)} SELECT 1
""")
USED = text("SELECT input_tokens + output_tokens AS tokens, cost FROM runs WHERE run_id = :run_id")
RELEASE = text("SELECT release_id FROM runs WHERE run_id = :run_id")
CLOSE_EPISODES = """
    UPDATE compaction_episodes SET status = 'cancelled', ended_at = now(),
           failure = '{"code": "COMPACTION_FAILED", "reason": "cancelled", "block": null}'
    WHERE run_id = :run_id AND status = 'running' AND operation_id IS NOT NULL
"""
END = """
    UPDATE runs SET status = :status, phase = 'ended', end_reason = :end_reason, error = CAST(:error AS jsonb),
           ended_at = now(), ended_no = nextval('fact_order'), event_head = :event_head,
           active_ms = active_ms + greatest(0, coalesce(extract(epoch FROM now() - started_at) * 1000, 0))::bigint
    WHERE run_id = :run_id
"""


async def finish_run(store: Store, request: FinishRun, limits: Limits | None = None) -> FinishedRun:
    """End the Run, or say how it ended already. Raises SupersededError if a newer execution owns it.

    With `limits` the error says in numbers which of them is reached.
    """
    async with store.transaction("finish_run") as connection:
        return await end_run(connection, request, limits)


async def end_run(connection: AsyncConnection, request: FinishRun, limits: Limits | None = None) -> FinishedRun:
    """The same within another commit."""
    run: Any = await fetch_one(connection, LOCK, run_id=request.run_id)
    if run is None or run["execution_no"] != request.execution_no:
        raise SupersededError
    if run["status"] not in ("queued", "running"):
        return _standing(run)
    stands: Any = await fetch_one(connection, STANDS, run_id=request.run_id)
    if run["loops"] < request.loop_budget and stands["late"]:
        return FinishedRun(status=run["status"], end_reason=None, code=None, go_on=True)
    await fetch_value(connection, SETTLE, run_id=request.run_id)
    used_up = await reached(connection, request.run_id, limits) if limits else None
    numbers = request.numbers | (used_up.numbers if used_up else {})
    writes = _writes(request, run, stands, numbers)
    await save_view(connection, writes, request.run_id)
    await writes.send(connection)
    return FinishedRun(status=request.status, end_reason=request.end_reason, code=request.code)


def _standing(run: Any) -> FinishedRun:
    return FinishedRun(status=run["status"], end_reason=run["end_reason"], code=(run["error"] or {}).get("code"))


async def reached(connection: AsyncConnection, run_id: UUID, limits: Limits) -> Spent | None:
    """Which of the limits a Run has reached by what it used so far (SPEC L5)."""
    used: Any = await fetch_one(connection, USED, run_id=run_id)
    return spent(**used, max_total_tokens=limits.max_total_tokens, max_cost=limits.max_cost)


async def release_of(store: Store, run_id: UUID) -> UUID:
    """The release that the Run is bound to. Raises SupersededError if there is no such Run."""
    async with store.reading() as connection:
        found: UUID | None = await fetch_value(connection, RELEASE, run_id=run_id)
    if found is None:
        raise SupersededError
    return found


def _writes(request: FinishRun, run: Any, stands: Any, numbers: dict[str, int | str]) -> WriteSet:
    writes = WriteSet()
    for statement in (CARRY, LET_GO, CLOSE_OPERATIONS, CLOSE_EPISODES):
        writes.sql(statement)
    events = EventLog(request.run_id, run["event_head"])
    if stands["waiting"]:
        _tell_waiting(writes, events, **stands["waiting"])
    anchor = {"records": stands["records"], "chain": stands["chain"]} if stands["records"] else {}
    events.add("run_ended", status=request.status, end_reason=request.end_reason, code=request.code, **anchor)
    events.write(writes)
    writes.sql(END, status=request.status, end_reason=request.end_reason, error=_error(request, numbers))
    writes.bind(run_id=request.run_id)
    return writes


def _tell_waiting(
    writes: WriteSet, events: EventLog, operation_id: str, loop: int, prepared: dict[str, Any], episode_id: str
) -> None:
    """A request that was measured, and whose compaction ends with the Run, has its manifest and its event (SPEC A8)."""
    note = "compaction:cancelled"
    tell_built(events, UUID(operation_id), loop, PreparedRequest.model_validate(prepared), [note])
    keep_manifest(writes, UUID(episode_id), note)


def _error(request: FinishRun, numbers: dict[str, int | str]) -> str | None:
    if request.code is None:
        return None
    return json.dumps({"code": request.code, "message": request.message or "", "numbers": numbers})

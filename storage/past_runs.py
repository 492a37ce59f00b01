"""Earlier Runs as references: inputs, records, calls and ends, for the history of a later Run (SPEC P1, P2)."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.history import PastCall, PastInput, PastRecord, PastRun, last_of
from context.session_views import SavedView
from storage.database import fetch_all
from storage.effective import EFFECTIVE
from storage.heads import Heads
from storage.tool_tries import LEFT_OPEN

_RUNS = f"""
    SELECT r.run_id, r.run_no, r.status, r.execution_no, c.record_id AS answer_id,
           coalesce(e.payload_id, c.payload_id) AS answer_payload
    FROM runs r LEFT JOIN context_records c ON c.record_id = r.answer_record_id {EFFECTIVE}
    WHERE r.session_id = :session_id AND r.run_no < :run_no AND r.ended_at IS NOT NULL
"""
RUNS = text(f"{_RUNS} ORDER BY r.run_no")
# Of the Runs that a view knew, only one that was resumed can have come any further.
REST_OF_RUNS = text(f"{_RUNS} AND (r.run_no >= :saved_by OR r.execution_no > 1) ORDER BY r.run_no")
INPUTS = text("""
    SELECT d.run_id, i.input_id, i.payload_id, bool_or(d.state = 'delivered') AS delivered
    FROM input_deliveries d JOIN user_inputs i USING (input_id)
    WHERE d.session_id = :session_id AND d.run_id = ANY(:run_ids)
    GROUP BY d.run_id, i.input_id, i.input_seq, i.payload_id ORDER BY i.input_seq
""")
RECORDS = text(f"""
    SELECT c.run_id, c.record_id, c.kind, coalesce(e.payload_id, c.payload_id) AS payload_id, c.input_id, c.call_id,
           c.operation_id, c.kind = 'tool_result' AND e.payload_id IS NULL AND o.whole_id IS NOT NULL AS offloaded
    FROM context_records c JOIN role_contexts x USING (context_id) LEFT JOIN operations o USING (operation_id)
         {EFFECTIVE}
    WHERE x.run_id = ANY(:run_ids) AND x.instance = 'main' AND c.seq > :beyond ORDER BY c.run_id, c.context_seq
""")
CALLS = text(f"""
    SELECT o.batch_id, o.operation_id, o.call_id, o.name, o.state, o.result_id, o.whole_id IS NOT NULL AS offloaded,
           o.effect, {LEFT_OPEN.format(call="o")} AS begun
    FROM operations o WHERE o.run_id = ANY(:run_ids) AND o.purpose = 'tool' ORDER BY o.batch_id, o.ordinal
""")

Rows = Sequence[Mapping[str, Any]]


async def past_runs(connection: AsyncConnection, heads: Heads, *, recent: int) -> list[PastRun]:
    """The ended Runs before this one; the last `recent` of them with their records."""
    runs = await fetch_all(connection, RUNS, session_id=heads.session_id, run_no=heads.run_no)
    ids = [run["run_id"] for run in runs]
    return await _filled(connection, heads, runs, whole=last_of(ids, recent), beyond=0)


async def rest_of_runs(connection: AsyncConnection, heads: Heads, saved: SavedView) -> list[PastRun]:
    """The Runs with anything that a saved view may not hold, with their records beyond it."""
    binds = {"session_id": heads.session_id, "run_no": heads.run_no, "saved_by": saved.run_no}
    runs = await fetch_all(connection, REST_OF_RUNS, **binds)
    whole = [run["run_id"] for run in runs]
    return await _filled(connection, heads, runs, whole=whole, beyond=saved.through_seq)


async def _filled(
    connection: AsyncConnection, heads: Heads, runs: Rows, *, whole: Sequence[UUID], beyond: int
) -> list[PastRun]:
    if not runs:
        return []
    ids = [run["run_id"] for run in runs]
    inputs = _grouped(await fetch_all(connection, INPUTS, session_id=heads.session_id, run_ids=ids), "run_id")
    records = _grouped(await fetch_all(connection, RECORDS, run_ids=whole, beyond=beyond) if whole else [], "run_id")
    calls = _grouped(await fetch_all(connection, CALLS, run_ids=whole) if whole else [], "batch_id")
    return [_past_run(run, inputs[run["run_id"]], records[run["run_id"]], calls) for run in runs]


def _past_run(run: Mapping[str, Any], inputs: Rows, records: Rows, calls: Mapping[UUID, Rows]) -> PastRun:
    return PastRun(
        run_no=run["run_no"],
        status=run["status"],
        inputs=tuple(PastInput(one["input_id"], one["payload_id"], one["delivered"]) for one in inputs),
        answer=(run["answer_id"], run["answer_payload"]) if run["answer_id"] else None,
        records=tuple(_past_record(record, calls) for record in records),
        execution_no=run["execution_no"],
    )


def _past_record(record: Mapping[str, Any], calls: Mapping[UUID, Rows]) -> PastRecord:
    made = calls[record["operation_id"]] if record["kind"] == "assistant" else ()
    return PastRecord(
        record_id=record["record_id"],
        kind=record["kind"],
        payload_id=record["payload_id"],
        input_id=record["input_id"],
        call_id=record["call_id"],
        calls=tuple(_past_call(call) for call in made),
        offloaded=record["offloaded"],
    )


def _past_call(call: Mapping[str, Any]) -> PastCall:
    return PastCall(**{name: value for name, value in call.items() if name != "batch_id"})


def _grouped(rows: Rows, key: str) -> dict[UUID, list[Mapping[str, Any]]]:
    groups: dict[UUID, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row[key]].append(row)
    return groups

"""The beginning of a Run's first request: system, then earlier Runs as SPEC P1 wants them. Later requests only append.

Reads references, not content; only this request may cost more with the number of earlier Runs (SPEC P6).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import text

from context.history import Fact, Own, PastCall, PastInput, PastRecord, PastRun, project
from context.messages import ChatMessage
from context.views import ViewItem
from storage.database import fetch_all
from storage.heads import Heads
from storage.measuring import Measuring

RUNS = text("""
    SELECT r.run_id, r.run_no, r.status, a.record_id AS answer_id, a.payload_id AS answer_payload
    FROM runs r LEFT JOIN context_records a ON a.record_id = r.answer_record_id
    WHERE r.session_id = :session_id AND r.run_no < :run_no AND r.ended_at IS NOT NULL
    ORDER BY r.run_no
""")
INPUTS = text("""
    SELECT d.run_id, i.input_id, i.payload_id, bool_or(d.state = 'delivered') AS delivered
    FROM input_deliveries d JOIN user_inputs i USING (input_id)
    WHERE d.session_id = :session_id AND d.run_id = ANY(:run_ids)
    GROUP BY d.run_id, i.input_id, i.input_seq, i.payload_id ORDER BY i.input_seq
""")
RECORDS = text("""
    SELECT c.run_id, c.record_id, c.kind, c.payload_id, c.input_id, c.call_id, c.operation_id
    FROM context_records c JOIN role_contexts x USING (context_id)
    WHERE x.run_id = ANY(:run_ids) AND x.instance = 'main' ORDER BY c.run_id, c.context_seq
""")
# What was sent and taken back before any model answered to it stays a fact, and is no part of a later conversation.
WITHDRAWN = text("""
    SELECT DISTINCT input_id FROM input_deliveries WHERE session_id = :session_id AND state = 'withdrawn'
""")
CALLS = text("""
    SELECT o.batch_id, o.operation_id, o.call_id, o.name, o.state, o.result_id
    FROM operations o WHERE o.run_id = ANY(:run_ids) AND o.purpose = 'tool' ORDER BY o.batch_id, o.ordinal
""")

Rows = Sequence[Mapping[str, Any]]


async def build_first_view(
    measuring: Measuring, heads: Heads, system: ChatMessage | None, recent: int, own_inputs: frozenset[UUID]
) -> list[ViewItem]:
    """System message and history as measured items."""
    items: list[ViewItem] = []
    if system is not None:
        payload_id, tokens = await measuring.own(system)
        items.append(ViewItem("system", payload_id, tokens))
    runs = await _past_runs(measuring, heads, recent)
    withdrawn = await _withdrawn(measuring, heads) if runs else frozenset()
    facts = project(runs, recent=recent, shown_elsewhere=own_inputs | withdrawn)
    return items + await _measured(measuring, facts)


async def _withdrawn(measuring: Measuring, heads: Heads) -> frozenset[UUID]:
    rows = await fetch_all(measuring.connection, WITHDRAWN, session_id=heads.session_id)
    return frozenset(row["input_id"] for row in rows)


async def _measured(measuring: Measuring, facts: tuple[Fact, ...]) -> list[ViewItem]:
    drafts = [await _item(measuring, fact) for fact in facts]
    stored = [draft for draft in drafts if draft.tokens < 0]
    known = iter(await measuring.measure_all(stored) if stored else [])
    return [next(known) if draft.tokens < 0 else draft for draft in drafts]


async def _item(measuring: Measuring, fact: Fact) -> ViewItem:
    """The fact as an item; -1 tokens where they are still to be measured."""
    if isinstance(fact, Own):
        payload_id, tokens = await measuring.own(fact.message)
        return ViewItem(fact.kind, payload_id, tokens, fact.source_id, fact.run_no)
    return ViewItem(fact.kind, fact.payload_id, -1, fact.source_id, fact.run_no)


async def _past_runs(measuring: Measuring, heads: Heads, recent: int) -> list[PastRun]:
    connection = measuring.connection
    runs = await fetch_all(connection, RUNS, session_id=heads.session_id, run_no=heads.run_no)
    if not runs:
        return []
    ids = [run["run_id"] for run in runs]
    inputs = _grouped(await fetch_all(connection, INPUTS, session_id=heads.session_id, run_ids=ids), "run_id")
    whole = ids[len(ids) - recent :] if recent else []
    records = _grouped(await fetch_all(connection, RECORDS, run_ids=whole) if whole else [], "run_id")
    calls = _grouped(await fetch_all(connection, CALLS, run_ids=whole) if whole else [], "batch_id")
    return [_past_run(run, inputs[run["run_id"]], records[run["run_id"]], calls) for run in runs]


def _past_run(run: Mapping[str, Any], inputs: Rows, records: Rows, calls: Mapping[UUID, Rows]) -> PastRun:
    return PastRun(
        run_no=run["run_no"],
        status=run["status"],
        inputs=tuple(PastInput(one["input_id"], one["payload_id"], one["delivered"]) for one in inputs),
        answer=(run["answer_id"], run["answer_payload"]) if run["answer_id"] else None,
        records=tuple(_past_record(record, calls) for record in records),
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
    )


def _past_call(call: Mapping[str, Any]) -> PastCall:
    return PastCall(call["operation_id"], call["call_id"], call["name"], call["state"], call["result_id"])


def _grouped(rows: Rows, key: str) -> dict[UUID, list[Mapping[str, Any]]]:
    groups: dict[UUID, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row[key]].append(row)
    return groups

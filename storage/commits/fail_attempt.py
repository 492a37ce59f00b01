"""A try at a model call failed: the fact, what it cost, and the fragment that came before the break (SPEC L2, A5).

A complete answer that was of no use is such a failure too; what it used counts on the Run (SPEC L5, K8), or on the
Session if that is idle (SPEC K12).
"""

import json
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.replies import Usage
from context.steps import FailAttempt, Failures
from storage.counting import ADD_USAGE, usage_numbers
from storage.database import fetch_one, fetch_value
from storage.payloads import Sealed
from storage.store import Store

FAIL = text("""
    UPDATE attempts SET state = 'failed', ended_at = now(), error = CAST(:error AS jsonb), fragment_id = :fragment_id,
           usage = CAST(:usage AS jsonb), cost = :cost
    WHERE operation_id = :operation_id AND attempt_no = :attempt_no AND state = 'calling'
""")
KEEP_HASH = text("""
    UPDATE operations SET request_hash = coalesce(request_hash, :request_hash) WHERE operation_id = :operation_id
""")
END = text("""
    UPDATE operations SET state = 'failed', verdict = CAST(:verdict AS jsonb), raw_id = :raw_id, updated_at = now()
    WHERE operation_id = :operation_id AND attempts = :attempt_no AND verdict IS NULL
""")
COUNT = text("""
    SELECT count(a.*) FILTER (WHERE a.state = 'failed')::int AS count,
           coalesce(extract(epoch FROM now() - min(a.started_at)), 0)::float AS elapsed_s,
           r.input_tokens + r.output_tokens AS tokens, coalesce(r.cost, 0) AS cost
    FROM operations o JOIN runs r USING (run_id) LEFT JOIN attempts a USING (operation_id)
    WHERE o.operation_id = :operation_id GROUP BY r.run_id
""")
ESTIMATE = text("SELECT estimated_input_tokens FROM manifests WHERE operation_id = :operation_id")
LOCK_RUN = text("""
    SELECT 1 FROM runs r JOIN operations o USING (run_id) WHERE o.operation_id = :operation_id FOR UPDATE OF r
""")
COUNT_USAGE = text(f"""
    UPDATE runs SET {ADD_USAGE}
    FROM operations o JOIN attempts a USING (operation_id)
    WHERE o.operation_id = :operation_id AND a.attempt_no = :attempt_no AND a.state = 'calling'
      AND runs.run_id = o.run_id
      AND NOT EXISTS (SELECT 1 FROM idle_blocks b WHERE b.operation_id = o.operation_id)
""")


async def failures(store: Store, operation_id: UUID) -> Failures:
    """What was tried before, to decide whether one more try is allowed."""
    async with store.reading() as connection:
        row = await fetch_one(connection, COUNT, operation_id=operation_id)
    return Failures(**row) if row else Failures(0, 0)


async def estimated_input(store: Store, operation_id: UUID) -> int:
    """What the request of a model call was estimated at, in tokens; 0 if it was never measured."""
    async with store.reading() as connection:
        found = await fetch_value(connection, ESTIMATE, operation_id=operation_id)
    return max(0, found or 0)


async def fail_attempt(store: Store, request: FailAttempt) -> None:
    """Commit the failure; a repeat, or one of a superseded try, changes nothing."""
    fragment, raw = (store.payloads.seal(one.body) if one else None for one in (request.fragment, request.raw))
    async with store.transaction("fail_attempt") as connection:
        await store.payloads.write(connection, [one for one in (fragment, raw) if one])
        key = {"operation_id": request.operation_id, "attempt_no": request.attempt_no}
        if request.usage:
            await _count_usage(connection, request, request.usage)
        await connection.execute(FAIL, key | _failure(request, fragment))
        await connection.execute(KEEP_HASH, key | {"request_hash": request.request_hash})
        if request.verdict:
            ended = {"verdict": request.verdict.model_dump_json(), "raw_id": raw.payload_id if raw else None}
            await connection.execute(END, key | ended)


def _failure(request: FailAttempt, fragment: Sealed | None) -> dict[str, Any]:
    return {
        "error": json.dumps({"code": request.code, "reason": request.reason, "status": request.status}),
        "fragment_id": fragment.payload_id if fragment else None,
        "usage": request.usage.model_dump_json() if request.usage else None,
        "cost": request.cost,
    }


async def _count_usage(connection: AsyncConnection, request: FailAttempt, usage: Usage) -> None:
    """Before the attempt leaves `calling`, and under the Run's lock, so that it is counted once."""
    key = {"operation_id": request.operation_id, "attempt_no": request.attempt_no}
    await connection.execute(LOCK_RUN, key)
    await connection.execute(COUNT_USAGE, key | usage_numbers(usage, request.cost))

"""A try at a model call failed: the fact, what it cost, and the fragment that came before the break (SPEC L2, A5)."""

import json
from uuid import UUID

from sqlalchemy import text

from context.steps import FailAttempt, Failures
from storage.database import fetch_one
from storage.store import Store

FAIL = text("""
    UPDATE attempts SET state = 'failed', ended_at = now(), error = CAST(:error AS jsonb), fragment_id = :fragment_id
    WHERE operation_id = :operation_id AND attempt_no = :attempt_no AND state = 'calling'
""")
KEEP_HASH = text("""
    UPDATE operations SET request_hash = coalesce(request_hash, :request_hash) WHERE operation_id = :operation_id
""")
END = text("""
    UPDATE operations SET state = 'failed', verdict = CAST(:verdict AS jsonb), updated_at = now()
    WHERE operation_id = :operation_id AND attempts = :attempt_no AND verdict IS NULL
""")
COUNT = text("""
    SELECT count(*) FILTER (WHERE state = 'failed') AS failed,
           coalesce(extract(epoch FROM now() - min(started_at)), 0)::float AS elapsed
    FROM attempts WHERE operation_id = :operation_id
""")


async def failures(store: Store, operation_id: UUID) -> Failures:
    """What was tried before, to decide whether one more try is allowed."""
    async with store.reading() as connection:
        row = await fetch_one(connection, COUNT, operation_id=operation_id)
    return Failures(row["failed"], row["elapsed"]) if row else Failures(0, 0)


async def fail_attempt(store: Store, request: FailAttempt) -> None:
    """Commit the failure; a repeat, or one of a superseded try, changes nothing."""
    error = json.dumps({"code": request.code, "reason": request.reason, "status": request.status})
    fragment = store.payloads.seal(request.fragment.body) if request.fragment else None
    async with store.transaction("fail_attempt") as connection:
        await store.payloads.write(connection, [fragment] if fragment else [])
        key = {"operation_id": request.operation_id, "attempt_no": request.attempt_no}
        await connection.execute(FAIL, key | {"error": error, "fragment_id": fragment.payload_id if fragment else None})
        await connection.execute(KEEP_HASH, key | {"request_hash": request.request_hash})
        if request.verdict:
            await connection.execute(END, key | {"verdict": request.verdict.model_dump_json()})

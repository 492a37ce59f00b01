"""A tool's result becomes fact the moment it comes: raw, and as the message the model will get (SPEC T2, T5).

One statement. The batch is delivered later, whole and in order, by `prepare_request`. The Operation may know of fewer
attempts than this one: the row of a try that need not be on disk is gone after a crash of the database.
"""

import json
from typing import Any

from context.steps import RecordToolResult
from storage.payloads import Sealed, distinct
from storage.store import Store
from storage.tables import artifacts, payloads
from storage.writes import WriteSet

SETTLE = """
    UPDATE operations o SET state = :state, raw_id = :raw_id, result_id = :result_id, whole_id = :whole_id,
           raw_media_type = :raw_media_type, transforms = CAST(:transforms AS jsonb),
           verdict = CAST(:verdict AS jsonb), attempts = coalesce(:attempt_no, o.attempts + 1), updated_at = now()
    FROM runs r
    WHERE o.operation_id = :operation_id AND o.attempts <= coalesce(:attempt_no, o.attempts) AND o.verdict IS NULL
      AND r.run_id = o.run_id AND r.status = 'running' AND r.execution_no = :execution_no
    RETURNING o.attempts
"""
END_ATTEMPT = """
    INSERT INTO attempts (operation_id, attempt_no, state, ended_at)
    SELECT :operation_id, attempts, :attempt_state, now() FROM settled
    ON CONFLICT (operation_id, attempt_no) DO UPDATE SET state = :attempt_state, ended_at = now()
"""
NOTE_LATE = """
    INSERT INTO audit_log (audit_id, action, subject)
    SELECT gen_random_uuid(), 'late_tool_result', CAST(:operation_id AS text)
    WHERE NOT EXISTS (SELECT 1 FROM settled)
      AND NOT EXISTS (SELECT 1 FROM operations WHERE operation_id = :operation_id AND verdict IS NOT NULL
                      AND attempts <= coalesce(:attempt_no, attempts))
    RETURNING 1
"""
COUNTED = """
    SELECT NOT EXISTS (SELECT 1 FROM late) AND
           CASE WHEN :fast THEN set_config('synchronous_commit', 'off', true) ELSE '' END IS NOT NULL
"""


async def record_tool_result(store: Store, request: RecordToolResult) -> bool:
    """Commit the result. False: it came too late to count, which is noted in the audit log only (SPEC R5)."""
    writes = WriteSet()
    message = store.payloads.seal(request.message.body, {request.estimator_id: request.message.tokens or 0})
    raw = store.payloads.seal(request.raw.body) if request.raw else None
    whole = store.payloads.seal(request.whole.body) if request.whole else None
    kept = [(media_type, store.payloads.seal(one.body)) for media_type, one in request.artifacts]
    sealed = [one for one in (raw, message, whole, *(body for _, body in kept)) if one is not None]
    writes.insert(payloads, distinct(sealed), skip_existing=True)
    rows = [_artifact_row(request, ordinal, *one) for ordinal, one in enumerate(kept, start=1)]
    writes.insert(artifacts, rows, skip_existing=True)
    writes.sql(
        SETTLE,
        tag="settled",
        state=request.state,
        raw_id=raw.payload_id if raw else None,
        result_id=message.payload_id,
        whole_id=whole.payload_id if whole else None,
        raw_media_type=request.raw_media_type,
        transforms=json.dumps(request.transforms) if request.transforms else None,
        verdict=json.dumps({"status": request.status}),
        execution_no=request.execution_no,
    )
    writes.sql(END_ATTEMPT, attempt_state="failed" if request.state == "unknown" else "succeeded")
    writes.sql(NOTE_LATE, tag="late")
    writes.answer(COUNTED)
    fast = request.attempt_no is None
    writes.bind(operation_id=request.operation_id, attempt_no=request.attempt_no, fast=fast)
    async with store.single("record_tool_result") as connection:
        return bool(await writes.send(connection))


def _artifact_row(request: RecordToolResult, ordinal: int, media_type: str, body: Sealed) -> dict[str, Any]:
    place = {"operation_id": request.operation_id, "ordinal": ordinal}
    return place | {"media_type": media_type, "payload_id": body.payload_id}

"""A tool's result becomes fact the moment it comes: raw, and as the message the model will get (SPEC T2, T5).

One statement, on disk when it returns, for a harmless call too: what is finished is never made again (SPEC 0). The
batch is delivered later, whole and in order, by `prepare_request`. The Operation may know of fewer attempts than this
one: the row of a try that need not be on disk is gone after a crash of the database.
"""

from context.steps import RecordToolResult
from storage.store import Store
from storage.tool_results import sealed_result, write_result
from storage.writes import WriteSet

NOTE_LATE = """
    INSERT INTO audit_log (audit_id, action, subject)
    SELECT gen_random_uuid(), 'late_tool_result', CAST(:settled_id AS text)
    WHERE NOT EXISTS (SELECT 1 FROM settled)
      AND NOT EXISTS (SELECT 1 FROM operations WHERE operation_id = :settled_id AND verdict IS NOT NULL
                      AND attempts <= coalesce(:attempt_no, attempts))
    RETURNING 1
"""
COUNTED = "SELECT NOT EXISTS (SELECT 1 FROM late)"


async def record_tool_result(store: Store, request: RecordToolResult) -> bool:
    """Commit the result. False: it came too late to count, which is noted in the audit log only (SPEC R5)."""
    writes = WriteSet()
    write_result(writes, sealed_result(store.payloads, request))
    writes.sql(NOTE_LATE, tag="late")
    writes.answer(COUNTED)
    async with store.single("record_tool_result") as connection:
        return bool(await writes.send(connection))

"""What a call under way has used so far, which counts if its try never reports (SPEC L5, decision 0114).

One statement, which does not wait for the disk; nothing is counted on the Run before the try is closed. A try that has
ended, or was replaced, keeps what stands of it (SPEC R5).
"""

from decimal import Decimal
from uuid import UUID

from sqlalchemy import text

from context.replies import Usage
from storage.database import fetch_value
from storage.store import Store

NOTE = text("""
    UPDATE attempts SET usage = CAST(:usage AS jsonb), cost = :cost
    WHERE operation_id = :operation_id AND attempt_no = :attempt_no AND state = 'calling'
    RETURNING set_config('synchronous_commit', 'off', true)
""")


async def note_written(store: Store, operation_id: UUID, attempt_no: int, usage: Usage, cost: Decimal | None) -> None:
    """Commit what the try has used so far; a repeat changes nothing."""
    used = {"usage": usage.model_dump_json(), "cost": cost}
    async with store.single("note_written") as connection:
        await fetch_value(connection, NOTE, operation_id=operation_id, attempt_no=attempt_no, **used)

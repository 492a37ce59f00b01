"""Withdrawing an input that waits; that it was sent and withdrawn stays on record (SPEC S12).

If a request contained it that nobody answered to, the Run that asked goes on without it.
"""

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import text

from context.errors import InputNotPendingError, NotFoundError
from storage.database import fetch_one
from storage.locks import lock_session
from storage.store import Store
from storage.withdrawing import take_from_lists
from storage.writes import WriteSet

PLACE = text("""
    SELECT i.session_id, i.kind FROM user_inputs i JOIN sessions s USING (session_id)
    WHERE i.input_id = :input_id AND s.owner_id = :owner_id
""")
# The newest delivery is the one that no other points back to.
NEWEST = text("""
    SELECT d.delivery_id, d.run_id, d.state FROM input_deliveries d
    WHERE d.input_id = :input_id
      AND NOT EXISTS (SELECT 1 FROM input_deliveries n
                      WHERE n.input_id = d.input_id AND n.previous_delivery_id = d.delivery_id)
""")
WITHDRAW = "UPDATE input_deliveries SET state = 'withdrawn' WHERE delivery_id = :delivery_id"
# The only other trace of a withdrawal; whoever checks a session asks for it (SPEC M7).
NOTE = """
    INSERT INTO audit_log (audit_id, user_id, action, subject)
    SELECT gen_random_uuid(), CAST(:withdrawn_by AS uuid), 'input_withdrawn', CAST(CAST(:delivery_id AS uuid) AS text)
"""


@dataclass(frozen=True)
class WithdrawInput:
    input_id: UUID
    owner_id: UUID


@dataclass(frozen=True)
class WithdrawnInput:
    input_id: UUID
    delivery_id: UUID
    run_id: UUID | None
    state: str = "withdrawn"


async def withdraw_input(store: Store, request: WithdrawInput) -> WithdrawnInput:
    """Withdraw a pending supplement; a repeat finds it withdrawn.

    Raises NotFoundError, and InputNotPendingError for one that a request contains and for a Run's own question, without
    which the Run would have nothing to answer.
    """
    async with store.transaction("withdraw_input") as connection:
        place = await fetch_one(connection, PLACE, input_id=request.input_id, owner_id=request.owner_id)
        if place is None:
            raise NotFoundError.of("input", request.input_id)
        if place["kind"] == "question":
            raise InputNotPendingError("The question of a run cannot be withdrawn; stop the run instead.")
        await lock_session(connection, place["session_id"], request.owner_id)
        delivery = await fetch_one(connection, NEWEST, input_id=request.input_id)
        if delivery is None or delivery["state"] not in ("pending", "withdrawn"):
            raise InputNotPendingError
        writes = WriteSet()
        writes.sql(WITHDRAW, delivery_id=delivery["delivery_id"])
        if delivery["state"] == "pending":
            writes.sql(NOTE, withdrawn_by=request.owner_id)
            await take_from_lists(connection, writes, place["session_id"], request.input_id)
        await writes.send(connection)
        return WithdrawnInput(request.input_id, delivery["delivery_id"], delivery["run_id"])

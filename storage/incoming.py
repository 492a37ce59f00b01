"""The facts of one received input, put into a commit's writes: content, input, delivery, event, session heads.

Used by whatever commit receives text. The session and the Run are locked by the caller, so `input_seq` rises strictly.
"""

from typing import Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from context.messages import ChatMessage, message_bytes
from storage.event_log import EventLog
from storage.locks import LockedSession
from storage.store import Store, new_id
from storage.tables import input_deliveries, payloads, user_inputs
from storage.writes import WriteSet

InputKind = Literal["question", "supplement"]

MOVE_HEADS = """
    UPDATE sessions SET input_head = :input_head, run_head = :run_head WHERE session_id = :locked_session
"""

BIND_CARRIED = """
    UPDATE input_deliveries SET run_id = :starting_run
    WHERE session_id = :starting_session AND run_id IS NULL AND state = 'pending'
"""


class Receipt(BaseModel):
    """The ids of the facts that `receive_input` put into the writes."""

    model_config = ConfigDict(frozen=True)

    input_id: UUID
    input_seq: int
    kind: InputKind
    run_id: UUID
    delivery_id: UUID


class AcceptedInput(Receipt):
    """What the client is told: where its input went. `outbox_id` is the intent that now waits to be sent."""

    state: Literal["pending"] = "pending"
    outbox_id: UUID


def receive_input(
    store: Store,
    writes: WriteSet,
    events: EventLog,
    *,
    session: LockedSession,
    run_id: UUID,
    run_head: int,
    kind: InputKind,
    text: str,
) -> Receipt:
    """Add content, input and pending delivery to the writes and an event to the log, and move the session's heads.

    The event bears witness to what was accepted: its content id is that of the input for ever (SPEC M7).
    """
    seq = session.input_head + 1
    receipt = Receipt(input_id=new_id(), input_seq=seq, kind=kind, run_id=run_id, delivery_id=new_id())
    sealed = store.payloads.seal(message_bytes(ChatMessage(role="user", content=text)))
    place = {"session_id": session.session_id, "input_id": receipt.input_id, "input_seq": seq}
    writes.insert(payloads, [sealed.parameters()], skip_existing=True)
    writes.insert(user_inputs, [place | {"kind": kind, "payload_id": sealed.payload_id, "origin_run_id": run_id}])
    writes.insert(
        input_deliveries, [place | {"delivery_id": receipt.delivery_id, "run_id": run_id, "state": "pending"}]
    )
    writes.sql(MOVE_HEADS, input_head=seq, run_head=run_head, locked_session=session.session_id)
    ids = {"input_id": receipt.input_id, "delivery_id": receipt.delivery_id, "content_id": sealed.payload_id.hex()}
    events.add("input_accepted", input_seq=seq, kind=kind, **ids)
    return receipt


def bind_carried(writes: WriteSet, session_id: UUID, run_id: UUID) -> None:
    """Let the starting Run take along whatever waits in the session for the next one (SPEC S6)."""
    writes.sql(BIND_CARRIED, starting_run=run_id, starting_session=session_id)

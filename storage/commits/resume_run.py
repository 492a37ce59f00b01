"""Resuming: the next execution of a Run that failed or stopped, with the inputs that wait in its session (SPEC S9).

Loops, active time, release and contexts stay as they are: they are what the new execution starts from.
"""

from dataclasses import dataclass, field
from uuid import UUID

from pydantic import BaseModel, ConfigDict
from sqlalchemy import text

from context.errors import RunActiveError, RunNotResumableError, SessionArchivedError
from context.inputs import check_text
from context.intents import StartRun
from storage.client_keys import ClientKey, client_key, first_answer, remember
from storage.event_log import EventLog
from storage.incoming import Receipt, bind_carried, receive_input
from storage.locks import LockedRun, LockedSession, lock_active_run, lock_run
from storage.outbox import outbox_row
from storage.session_views import OUTDATE_RESUMED
from storage.store import Store
from storage.tables import outbox
from storage.writes import WriteSet

RESUMABLE = ("failed", "stopped")

AGENT = text("SELECT name FROM agents WHERE agent_id = :agent_id")
REQUEUE = """
    UPDATE runs SET status = 'queued', phase = 'opening', execution_no = :execution_no, event_head = :event_head,
                    started_at = NULL, stop_requested_at = NULL, ended_at = NULL, ended_no = NULL, end_reason = NULL,
                    error = NULL
    WHERE run_id = :resumed
"""
# So are the summaries that stand for such a call as it was, not called or with a result that no request carried, and
# those that were folded from them (SPEC K10). Those still to come are compared when they are published.
TAKE_BACK = """
    WITH RECURSIVE hit AS (
      SELECT p.snapshot_id FROM tool_batches b JOIN operations o ON o.batch_id = b.batch_id
        JOIN snapshot_pieces p ON p.piece IN ('call/' || o.operation_id, 'record/' || o.operation_id)
      WHERE b.run_id = :resumed AND NOT b.consumed
      UNION
      SELECT s.snapshot_id FROM snapshots s JOIN hit h ON s.previous_id = h.snapshot_id
      WHERE s.session_id = :of_session
    )
    UPDATE snapshots s SET outdated_at = now() FROM hit
    WHERE s.snapshot_id = hit.snapshot_id AND s.outdated_at IS NULL
"""


@dataclass(frozen=True)
class ResumeRun:
    """`text`, if any, becomes a supplement that the Run gets after its unfinished tools are settled."""

    run_id: UUID
    owner_id: UUID
    text: str | None = field(default=None, repr=False)
    client_key: str | None = field(default=None, repr=False)


class ResumedRun(BaseModel):
    """What the client is told; kept under its key for a repeat."""

    model_config = ConfigDict(frozen=True)

    run_id: UUID
    session_id: UUID
    execution_no: int
    input: Receipt | None
    outbox_id: UUID


async def resume_run(store: Store, request: ResumeRun) -> ResumedRun:
    """Queue the Run's next execution. With a client key a repeat gets the first answer (SPEC S5).

    Raises NotFoundError, RunActiveError (this Run or another one of the session is active; so for a repeat without a
    key), RunNotResumableError, SessionArchivedError, ClientKeyReusedError, ClientKeyInFlightError, and what
    `check_text` raises.
    """
    if request.text is not None:
        check_text(request.text)
    async with store.transaction("resume_run") as connection:
        session, run = await lock_run(connection, request.run_id, request.owner_id)
        key = _client_key(store, session.session_id, request)
        if key and (first := await first_answer(connection, key)):
            return ResumedRun.model_validate(first)
        if active := await lock_active_run(connection, session.session_id):
            raise RunActiveError(run_id=str(active.run_id))
        _check_resumable(session, run)
        agent = (await connection.execute(AGENT, {"agent_id": session.agent_id})).scalar_one()
        start = StartRun(run.run_id, run.execution_no + 1, session.session_id, agent, run.release_id)
        writes = WriteSet()
        receipt = _requeue(store, writes, session, run, request.text)
        intent = outbox_row(start)
        writes.insert(outbox, [intent])
        resumed = ResumedRun(
            run_id=run.run_id,
            session_id=session.session_id,
            execution_no=start.execution_no,
            input=receipt,
            outbox_id=intent["outbox_id"],
        )
        if key:
            remember(writes, key, resumed)
        await writes.send(connection)
        return resumed


def _client_key(store: Store, session_id: UUID, request: ResumeRun) -> ClientKey | None:
    body = ["resume", str(request.run_id), request.text or ""]
    return client_key(store, session_id, request.owner_id, request.client_key, body)


def _check_resumable(session: LockedSession, run: LockedRun) -> None:
    if run.status not in RESUMABLE:
        raise RunNotResumableError(status=run.status)
    if session.archived:
        raise SessionArchivedError


def _requeue(
    store: Store, writes: WriteSet, session: LockedSession, run: LockedRun, supplement: str | None
) -> Receipt | None:
    events = EventLog(run.run_id, run.event_head)
    receipt = None
    if supplement is not None:
        receipt = receive_input(
            store,
            writes,
            events,
            session=session,
            run_id=run.run_id,
            run_head=session.run_head,
            kind="supplement",
            text=supplement,
        )
    bind_carried(writes, session.session_id, run.run_id)
    events.write(writes)
    writes.sql(OUTDATE_RESUMED)
    writes.sql(REQUEUE, execution_no=run.execution_no + 1, resumed=run.run_id)
    writes.sql(TAKE_BACK, of_session=session.session_id)
    return receipt

"""Accepting an input: the input, its delivery and the intent to tell the workflow, before the client is told (SPEC S4).

Everything happens under the session's lock, so that an input either belongs to the Run that is active or starts one.
"""

from dataclasses import dataclass, field
from typing import Literal
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.errors import NotFoundError, RunActiveError, RunNotActiveError, SessionArchivedError
from context.inputs import check_text
from context.intents import SignalSupplement, StartRun
from storage.client_keys import ClientKey, client_key, first_answer, remember
from storage.database import fetch_one
from storage.event_log import EventLog
from storage.incoming import AcceptedInput, bind_carried, receive_input
from storage.locks import LockedRun, LockedSession, lock_active_run, lock_session
from storage.outbox import outbox_row
from storage.store import Store, new_id
from storage.tables import outbox, runs
from storage.writes import WriteSet


@dataclass(frozen=True)
class AcceptInput:
    """One text for a session. `auto`: a supplement if a Run is active, else a question."""

    session_id: UUID
    owner_id: UUID
    text: str = field(repr=False)
    mode: Literal["auto", "question", "supplement"] = "auto"
    client_key: str | None = field(default=None, repr=False)


RELEASE = text("""
    SELECT r.release_id, a.name AS agent
    FROM agents a JOIN agent_releases r ON r.agent_id = a.agent_id AND r.release_no = a.release_head
    WHERE a.agent_id = :agent_id
""")
MOVE_EVENT_HEAD = "UPDATE runs SET event_head = :event_head WHERE run_id = :supplemented"


async def accept_input(store: Store, request: AcceptInput) -> AcceptedInput:
    """Store the input and say which Run it went to. With a client key a repeat gets the first answer (SPEC S5).

    Raises NotFoundError, SessionArchivedError, RunActiveError (a question during a Run), RunNotActiveError (a
    supplement without one), ClientKeyReusedError, ClientKeyInFlightError, InputInvalidError, TooLargeError.
    """
    check_text(request.text)
    key = _client_key(store, request)
    async with store.transaction("accept_input") as connection:
        if key and (first := await first_answer(connection, key)):
            return AcceptedInput.model_validate(first)
        session = await lock_session(connection, request.session_id, request.owner_id)
        if session.archived:
            raise SessionArchivedError
        run = await lock_active_run(connection, request.session_id)
        writes = WriteSet()
        _check_mode(request.mode, run)
        if run is None:
            accepted = await _ask(store, connection, writes, session, request.text)
        else:
            accepted = _supplement(store, writes, session, run, request.text)
        if key:
            remember(writes, key, accepted)
        await writes.send(connection)
        return accepted


def _client_key(store: Store, request: AcceptInput) -> ClientKey | None:
    body = [request.mode, request.text]
    return client_key(store, request.session_id, request.owner_id, request.client_key, body)


def _check_mode(mode: str, run: LockedRun | None) -> None:
    """Until it has ended, a Run that is being stopped is active like any other: what it does not take is carried."""
    if mode == "question" and run is not None:
        raise RunActiveError(run_id=str(run.run_id))
    if mode == "supplement" and run is None:
        raise RunNotActiveError


async def _ask(
    store: Store, connection: AsyncConnection, writes: WriteSet, session: LockedSession, question: str
) -> AcceptedInput:
    """A new Run of the agent's newest release, which takes the carried inputs along, with this as its question."""
    release = await fetch_one(connection, RELEASE, agent_id=session.agent_id)
    if release is None:
        raise NotFoundError("The session's agent has no release.")
    session_id, run_id, run_no = session.session_id, new_id(), session.run_head + 1
    events = EventLog(run_id, 0)
    receipt = receive_input(
        store, writes, events, session=session, run_id=run_id, run_head=run_no, kind="question", text=question
    )
    run = {"run_id": run_id, "session_id": session_id, "run_no": run_no, "release_id": release["release_id"]}
    writes.insert(runs, [run | {"status": "queued", "phase": "opening", "event_head": 1}])
    bind_carried(writes, session_id, run_id)
    events.write(writes)
    intent = outbox_row(StartRun(run_id, 1, session_id, release["agent"], release["release_id"]))
    writes.insert(outbox, [intent])
    return AcceptedInput(**receipt.model_dump(), outbox_id=intent["outbox_id"])


def _supplement(
    store: Store, writes: WriteSet, session: LockedSession, run: LockedRun, supplement: str
) -> AcceptedInput:
    """One more input of the active Run, and a nudge to its workflow."""
    events = EventLog(run.run_id, run.event_head)
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
    events.write(writes)
    writes.sql(MOVE_EVENT_HEAD, supplemented=run.run_id)
    intent = outbox_row(SignalSupplement(run.run_id, receipt.input_id, receipt.input_seq))
    writes.insert(outbox, [intent])
    return AcceptedInput(**receipt.model_dump(), outbox_id=intent["outbox_id"])

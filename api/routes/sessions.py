"""Sessions: open, list, change; their inputs, messages and Runs."""

from typing import Annotated
from uuid import UUID

from fastapi import Query, Request

from api.auth import Caller
from api.client_keys import KeyHeader, client_key, key_of_this_request
from api.dispatching import dispatch_behind
from api.messages import shown_message
from api.openapi import refusals, router
from api.paging import INSTANCE, After, Cursor, Limit
from api.schemas import (
    AcceptedInput,
    CreatedSession,
    CreateSession,
    InputList,
    MessagePage,
    RunList,
    SendInput,
    SessionEntry,
    SessionList,
    UpdateSession,
    WithdrawnInput,
)
from api.wiring import Wired
from storage import reads
from storage.commits import accept_input as accepting
from storage.commits import create_session as creating
from storage.commits import update_session as updating
from storage.commits import withdraw_input as withdrawing

routes = router("sessions")

Instance = Annotated[str, Query(pattern=INSTANCE, description="`main`, or the id of a task of the session.")]


@routes.post("/sessions", status_code=201, responses=refusals(404, body=True))
async def create_session(wanted: CreateSession, caller: Caller, services: Wired) -> CreatedSession:
    """Open a session with an agent. It is private to whoever opens it."""
    request = creating.CreateSession(caller.space_id, caller.user_id, wanted.agent, wanted.title)
    return CreatedSession.model_validate(await creating.create_session(services.store, request))


@routes.get("/sessions", responses=refusals())
async def list_sessions(
    caller: Caller, services: Wired, include_archived: bool = False, limit: Limit = 50, cursor: Cursor = None
) -> SessionList:
    """Your sessions, newest first."""
    page = await reads.sessions(
        services.store, caller.user_id, include_archived=include_archived, limit=limit, cursor=cursor
    )
    return SessionList.model_validate(page)


@routes.get("/sessions/{session_id}", responses=refusals(404))
async def read_session(session_id: UUID, caller: Caller, services: Wired) -> SessionEntry:
    """One session."""
    return SessionEntry.model_validate(await reads.session(services.store, session_id, caller.user_id))


@routes.patch("/sessions/{session_id}", responses=refusals(404, 409, body=True))
async def update_session(session_id: UUID, wanted: UpdateSession, caller: Caller, services: Wired) -> SessionEntry:
    """Change or, with null, remove the title; archive or unarchive. Archiving during a Run is refused: RUN_ACTIVE."""
    title = wanted.title or "" if "title" in wanted.model_fields_set else None
    request = updating.UpdateSession(session_id, caller.user_id, title, wanted.archived)
    await updating.update_session(services.store, request)
    return SessionEntry.model_validate(await reads.session(services.store, session_id, caller.user_id))


@routes.post("/sessions/{session_id}/inputs", status_code=202, responses=refusals(404, 409, body=True))
async def send_input(
    session_id: UUID,
    wanted: SendInput,
    caller: Caller,
    services: Wired,
    request: Request,
    idempotency_key: KeyHeader = None,
) -> AcceptedInput:
    """Send a text: a question starts a Run, a supplement joins the active one. It is stored before this answers."""
    accepted = await accepting.accept_input(
        services.store,
        accepting.AcceptInput(
            session_id,
            caller.user_id,
            wanted.text,
            wanted.mode,
            client_key(wanted.client_key, idempotency_key) or key_of_this_request(request),
        ),
    )
    dispatch_behind(services, accepted.outbox_id)
    return AcceptedInput.model_validate(accepted)


@routes.get("/sessions/{session_id}/inputs", responses=refusals(404))
async def list_inputs(
    session_id: UUID, caller: Caller, services: Wired, limit: Limit = 50, cursor: Cursor = None
) -> InputList:
    """The session's inputs in the order they were received, each with its newest delivery."""
    page = await reads.session_inputs(services.store, session_id, caller.user_id, limit=limit, cursor=cursor)
    return InputList.model_validate(page)


@routes.get("/sessions/{session_id}/messages", responses=refusals(404))
async def list_messages(
    session_id: UUID,
    caller: Caller,
    services: Wired,
    after: After = 0,
    limit: Limit = 100,
    instance: Instance = "main",
) -> MessagePage:
    """Messages of one instance by session `seq`. An empty page keeps `next_after` where it was.

    An instance that the session does not have is not found; `main` is there from the beginning.
    """
    page = await reads.messages(services.store, session_id, caller.user_id, after=after, limit=limit, instance=instance)
    return MessagePage(items=[shown_message(row) for row in page.items], next_after=page.next_after)


@routes.get("/sessions/{session_id}/runs", responses=refusals(404))
async def list_runs(
    session_id: UUID, caller: Caller, services: Wired, limit: Limit = 50, cursor: Cursor = None
) -> RunList:
    """The session's Runs by `run_no`."""
    page = await reads.runs(services.store, session_id, caller.user_id, limit=limit, cursor=cursor)
    return RunList.model_validate(page)


@routes.delete("/inputs/{input_id}", responses=refusals(404, 409))
async def withdraw_input(input_id: UUID, caller: Caller, services: Wired) -> WithdrawnInput:
    """Withdraw an input that no request contains yet."""
    request = withdrawing.WithdrawInput(input_id, caller.user_id)
    return WithdrawnInput.model_validate(await withdrawing.withdraw_input(services.store, request))

"""Runs: how one stands, its events, and what a user may do to it."""

import re
from functools import partial
from typing import Annotated, Any
from uuid import UUID

from fastapi import Header, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from api.auth import Caller, StillValid
from api.client_keys import KeyHeader, client_key, key_of_this_request
from api.dispatching import dispatch_behind
from api.long_polls import held
from api.openapi import refusals, router
from api.paging import EVENT_ID, After, Cursor, Limit
from api.proof_schemas import InstanceList, ManifestList
from api.schemas import (
    CompactionList,
    InputList,
    OperationList,
    ReceivedInput,
    ResumedRun,
    ResumeRun,
    RunEntry,
    RunEventList,
)
from api.streams import check_known, event_page, event_stream
from api.wiring import Wired
from storage import reads
from storage.commits import request_stop as stopping
from storage.commits import resume_run as resuming

routes = router("runs")

WaitSeconds = Annotated[float, Query(ge=0, le=60, allow_inf_nan=False, description="Wait this long for the end.")]
LastEventId = Annotated[
    str | None, Header(pattern=EVENT_ID, description="`id` of the last event received; wins over `after`.")
]

EVENT: dict[str, Any] = {
    "type": "object",
    "required": ["data", "event", "id"],
    "properties": {
        "data": {
            "type": "string",
            "contentMediaType": "application/json",
            "contentSchema": {"$ref": "#/components/schemas/RunEvent"},
        },
        "event": {"type": "string", "description": "The event's type."},
        "id": {"type": "string", "description": "Its `run_seq`.", "pattern": "^[0-9]+$"},
    },
}
EVENT_STREAM: dict[str, Any] = {
    "description": "The events after the given one, as a stream that ends with the Run, or as a JSON list.",
    "content": {
        "text/event-stream": {"itemSchema": EVENT},
        "application/json": {"schema": {"$ref": "#/components/schemas/RunEventList"}},
    },
}


@routes.get("/runs/{run_id}", responses=refusals(404))
async def read_run(
    run_id: UUID, caller: Caller, is_allowed: StillValid, services: Wired, wait_s: WaitSeconds = 0
) -> RunEntry:
    """How the Run stands; with `wait_s` as soon as it has ended, or then. Revoking the key ends the wait."""
    run = await held(
        services,
        partial(reads.run, services.store, run_id, caller.user_id),
        is_news=lambda run: not run.is_active,
        wait_s=wait_s,
        is_allowed=is_allowed,
    )
    return RunEntry.model_validate(run)


@routes.get("/runs/{run_id}/events", responses=refusals(404) | {200: EVENT_STREAM}, response_model=RunEventList)
async def read_events(
    run_id: UUID,
    caller: Caller,
    is_allowed: StillValid,
    services: Wired,
    request: Request,
    after: After = 0,
    limit: Annotated[int, Query(ge=1, le=1_000, description="Events of a JSON list.")] = 1_000,
    last_event_id: LastEventId = None,
) -> Response:
    """The Run's events by `run_seq`: Server-Sent Events, or a list for `Accept: application/json`."""
    start = after if last_event_id is None else int(last_event_id)
    run = await reads.run(services.store, run_id, caller.user_id)
    check_known(start, run.event_head)
    if _wants_list(request):
        page = await event_page(services, run_id, caller.user_id, start, limit)
        return JSONResponse(page.model_dump(mode="json"))
    stream = event_stream(services, run_id, caller.user_id, start, is_allowed=is_allowed)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(stream, media_type="text/event-stream", headers=headers)


@routes.post("/runs/{run_id}/stop", status_code=202, responses=refusals(404))
async def stop_run(run_id: UUID, caller: Caller, services: Wired) -> RunEntry:
    """Stop the Run: nothing new starts. One that has ended stays as it is."""
    stopped = await stopping.request_stop(services.store, stopping.RequestStop(run_id, caller.user_id))
    dispatch_behind(services, stopped.outbox_id)
    return RunEntry.model_validate(await reads.run(services.store, run_id, caller.user_id))


@routes.post("/runs/{run_id}/resume", status_code=202, responses=refusals(404, 409, body=True))
async def resume_run(
    run_id: UUID,
    caller: Caller,
    services: Wired,
    request: Request,
    wanted: ResumeRun | None = None,
    idempotency_key: KeyHeader = None,
) -> ResumedRun:
    """Let a failed or stopped Run go on where it was, optionally with a supplement. With a key it can be repeated."""
    wanted = wanted or ResumeRun()
    key = client_key(wanted.client_key, idempotency_key) or key_of_this_request(request)
    asked = resuming.ResumeRun(run_id, caller.user_id, wanted.text, key)
    resumed = await resuming.resume_run(services.store, asked)
    dispatch_behind(services, resumed.outbox_id)
    run = RunEntry.model_validate(await reads.run(services.store, run_id, caller.user_id))
    received = ReceivedInput.model_validate(resumed.input) if resumed.input else None
    return ResumedRun(**run.model_dump(), input=received)


@routes.get("/runs/{run_id}/inputs", responses=refusals(404))
async def list_run_inputs(
    run_id: UUID, caller: Caller, services: Wired, limit: Limit = 50, cursor: Cursor = None
) -> InputList:
    """The inputs delivered or to be delivered to this Run, in the order they were received."""
    page = await reads.run_inputs(services.store, run_id, caller.user_id, limit=limit, cursor=cursor)
    return InputList.model_validate(page)


@routes.get("/runs/{run_id}/operations", responses=refusals(404))
async def list_operations(
    run_id: UUID, caller: Caller, services: Wired, limit: Limit = 50, cursor: Cursor = None
) -> OperationList:
    """The Run's model and tool calls in order."""
    page = await reads.operations(services.store, run_id, caller.user_id, limit=limit, cursor=cursor)
    return OperationList.model_validate(page)


@routes.get("/runs/{run_id}/manifests", responses=refusals(404))
async def list_manifests(
    run_id: UUID,
    caller: Caller,
    services: Wired,
    operation: Annotated[UUID | None, Query(description="Only the manifest of this model call.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> ManifestList:
    """What each request of the Run contained, and its budget; no content."""
    page = await reads.manifests(
        services.store, run_id, caller.user_id, operation_id=operation, limit=limit, cursor=cursor
    )
    return ManifestList.model_validate(page)


@routes.get("/runs/{run_id}/compactions", responses=refusals(404))
async def list_compactions(
    run_id: UUID, caller: Caller, services: Wired, limit: Limit = 50, cursor: Cursor = None
) -> CompactionList:
    """The Run's compactions: what each covers, what it cost, how far it came; no content."""
    page = await reads.compactions(services.store, run_id, caller.user_id, limit=limit, cursor=cursor)
    return CompactionList.model_validate(page)


@routes.get("/runs/{run_id}/instances", responses=refusals(404))
async def list_instances(run_id: UUID, caller: Caller, services: Wired) -> InstanceList:
    """The contexts of the Run: `main` for the root role, and one for each delegated task."""
    found = await reads.instances(services.store, run_id, caller.user_id)
    return InstanceList.model_validate({"items": found})


def _wants_list(request: Request) -> bool:
    """Whether the client asks for JSON by its name, and not at least as much for a stream."""
    asked = dict(_accepted(part) for part in ",".join(request.headers.getlist("accept")).split(","))
    return asked.get("application/json", 0) > asked.get("text/event-stream", 0)


def _accepted(part: str) -> tuple[str, float]:
    """A media type of an `Accept` header, and how much it is wanted, from 0 to 1."""
    media_type, _, parameters = part.strip().lower().partition(";")
    found = re.search(r"(?:^|;)\s*q=(0(?:\.\d{1,3})?|1)\b", parameters)
    return media_type.strip(), float(found[1]) if found else 1

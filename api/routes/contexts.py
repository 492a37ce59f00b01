"""Contexts at any of their revisions, and the check of a whole session."""

from typing import Annotated
from uuid import UUID

from fastapi import Query

from api.auth import Caller
from api.messages import chat_form
from api.openapi import refusals, router
from api.paging import After, Limit
from api.proof_schemas import ContextRecord, ContextView, RevisionList, SessionCheck, VerifiedBreak
from api.wiring import Wired
from storage import reads

routes = router("contexts")

Revision = Annotated[int | None, Query(ge=0, le=2**62, description="Effective revision; the newest without one.")]


@routes.get("/contexts/{context_id}/view", responses=refusals(404))
async def read_context_view(
    context_id: UUID, caller: Caller, services: Wired, revision: Revision = None, after: After = 0, limit: Limit = 50
) -> ContextView:
    """The context as it stood at a revision: its records in order, in their effective content."""
    found = await reads.context_view(
        services.store, context_id, caller.user_id, revision=revision, after=after, limit=limit
    )
    return ContextView(
        context_id=found.context_id,
        revision=found.revision,
        record_watermark=found.record_watermark,
        items=[_record(row) for row in found.items],
        next_after=found.next_after,
    )


@routes.get("/contexts/{context_id}/revisions", responses=refusals(404))
async def list_context_revisions(
    context_id: UUID, caller: Caller, services: Wired, after: After = 0, limit: Limit = 50
) -> RevisionList:
    """The context's revisions in order: how far its records went, and which commit made each."""
    found = await reads.context_revisions(services.store, context_id, caller.user_id, after=after, limit=limit)
    more = str(found[-1].revision) if len(found) == limit else None
    return RevisionList.model_validate({"items": found, "next": more})


@routes.get("/sessions/{session_id}/verify", responses=refusals(404))
async def verify_session(session_id: UUID, caller: Caller, services: Wired) -> SessionCheck:
    """Re-derive content, hash chains, the coverage of summaries and every request's hash; reports each break."""
    checked = await reads.verified(services.store, session_id, caller.user_id)
    broken = await services.not_as_sent(checked.requests)
    return SessionCheck(
        session_id=session_id,
        records=checked.records,
        contents=checked.contents,
        snapshots=checked.snapshots,
        requests=len(checked.requests),
        breaks=[
            *(VerifiedBreak.model_validate(one) for one in checked.breaks),
            *(VerifiedBreak(kind="request", subject=f"operation/{one}", place=None) for one in broken),
        ],
    )


def _record(row: reads.RecordRow) -> ContextRecord:
    return ContextRecord(
        context_seq=row.context_seq,
        record_id=row.record_id,
        kind=row.kind,
        message=chat_form(row.message),
        created_at=row.created_at,
    )

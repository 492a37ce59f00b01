"""Compactions that somebody asks for: of the active Run, or of an idle Session (SPEC K12); how one stands; its stop."""

from functools import partial
from typing import Annotated
from uuid import UUID, uuid5

from fastapi import Query, Request

from api.auth import Caller, StillValid
from api.client_keys import KeyHeader, client_key, key_of_this_request
from api.dispatching import dispatch_behind
from api.long_polls import held
from api.openapi import refusals, router
from api.schemas import CompactionAsked, CompactionEntry, CompactSession
from api.wiring import Services, Wired
from context.errors import UnavailableError
from storage import reads
from storage.commits import compact_session as compacting
from storage.commits.stop_compaction import StopCompaction, stop_compaction

routes = router("compactions")

WaitSeconds = Annotated[float, Query(ge=0, le=60, allow_inf_nan=False, description="Wait this long for the end.")]
Finished = Annotated[
    int | None,
    Query(ge=0, le=1_000_000, description="With `wait_s`: answer as soon as more blocks than these are done."),
]


@routes.post("/sessions/{session_id}/compact", status_code=202, responses=refusals(404, 409, body=True))
async def compact_session(
    session_id: UUID,
    caller: Caller,
    services: Wired,
    request: Request,
    wanted: CompactSession | None = None,
    idempotency_key: KeyHeader = None,
) -> CompactionAsked:
    """Compact the context: the active Run's before its next request, or an idle session's at once.

    An idle session has one such compaction at a time: whoever asks meanwhile gets that one. Questions go on.
    """
    key = client_key(wanted.client_key if wanted else None, idempotency_key) or key_of_this_request(request)
    asking = compacting.CompactSession(session_id, caller.user_id, key)
    asked = await compacting.compact_session(services.store, asking)
    if _is_to_be_told(asked) and await _told(services, asked, key) == "gone":
        asked = await compacting.compact_session(services.store, asking)  # the Run has ended meanwhile
        if _is_to_be_told(asked):  # or its workflow is lost
            raise UnavailableError
    if _is_to_be_told(asked):
        await compacting.keep_answer(services.store, asking, asked)
    dispatch_behind(services, asked.outbox_id)
    return CompactionAsked.model_validate(asked)


def _is_to_be_told(asked: compacting.CompactionAsked) -> bool:
    return asked.episode_id is None and not asked.is_known


async def _told(services: Services, asked: compacting.CompactionAsked, key: str) -> str:
    """Tell the workflow of the active Run; the same key tells it once."""
    return await services.compact(asked.run_id, once=uuid5(asked.run_id, key))


@routes.get("/compactions/{episode_id}", responses=refusals(404))
async def read_compaction(
    episode_id: UUID,
    caller: Caller,
    is_allowed: StillValid,
    services: Wired,
    wait_s: WaitSeconds = 0,
    finished: Finished = None,
) -> CompactionEntry:
    """How a compaction stands; with `wait_s` as soon as it has ended, or then. Revoking the key ends the wait."""
    found = await held(
        services,
        partial(reads.compaction, services.store, episode_id, caller.user_id),
        is_news=lambda found: _is_news(found, finished),
        wait_s=wait_s,
        is_allowed=is_allowed,
    )
    return CompactionEntry.model_validate(found)


@routes.post("/compactions/{episode_id}/stop", status_code=202, responses=refusals(404, 409))
async def stop_an_idle_compaction(episode_id: UUID, caller: Caller, services: Wired) -> CompactionEntry:
    """Stop the compaction of an idle session: no further call starts. One that has ended stays as it is."""
    outbox_id = await stop_compaction(services.store, StopCompaction(episode_id, caller.user_id))
    dispatch_behind(services, outbox_id)
    return CompactionEntry.model_validate(await reads.compaction(services.store, episode_id, caller.user_id))


def _is_news(found: reads.CompactionRow, finished: int | None) -> bool:
    return found.has_ended or (finished is not None and found.cursor > finished)

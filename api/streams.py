"""A Run's events as Server-Sent Events: replayed from where the client was, then live, closed at the Run's end.

Each event's id is its `run_seq`, so that a client that cuts the stream anywhere and comes back with `Last-Event-ID`
gets the same sequence. Rows are read only when the feed says that there are some; nothing polls.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from uuid import UUID

from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event

from api.patience import with_patience
from api.schemas import RunEvent, RunEventList
from api.wiring import Services
from context.errors import InputInvalidError, UnavailableError
from storage import reads

PAGE = 500
RUN_ENDED = "run_ended"


def check_known(after: int, head: int) -> None:
    """Raises InputInvalidError for a place beyond the Run's newest event: the client mixes up two Runs."""
    if after > head:
        raise InputInvalidError("This run has no event of that id yet.", after=after, newest=head)


async def event_stream(
    services: Services, run_id: UUID, owner_id: UUID, after: int, *, is_allowed: Callable[[], Awaitable[bool]]
) -> AsyncIterator[bytes]:
    """The bytes of the stream. Ends with the Run; if process or database go away before, the client comes back.

    It ends with its key too, which is looked at before each piece: a Run can go on for days (SPEC Y1).
    """
    try:
        while await with_patience(is_allowed):
            run = await with_patience(lambda: reads.run(services.store, run_id, owner_id))
            newest = None
            async for event in _events_after(services, run_id, owner_id, after):
                newest, after = event.type, event.run_seq
                yield encoded(event)
            if not run.is_active and after >= run.event_head:
                return
            if newest == RUN_ENDED:
                continue  # the Run was read before its end: look again, since nothing may follow
            if services.closing.is_set():
                return
            if not await services.event_or_closing(run_id, after, services.options.sign_of_life_s):
                yield KEEPALIVE_COMMENT
    except UnavailableError:
        return


async def _events_after(services: Services, run_id: UUID, owner_id: UUID, after: int) -> AsyncIterator[RunEvent]:
    while True:
        read = partial(reads.run_events, services.store, run_id, owner_id, after=after, limit=PAGE)
        page = await with_patience(read)
        for event in page:
            after = event.run_seq
            yield shown(event)
        if len(page) < PAGE:
            return


async def event_page(services: Services, run_id: UUID, owner_id: UUID, after: int, limit: int) -> RunEventList:
    """The events after a place as a list; `next` is what to pass as `after` for more."""
    rows = await reads.run_events(services.store, run_id, owner_id, after=after, limit=limit)
    more = str(rows[-1].run_seq) if len(rows) == limit else None
    return RunEventList(items=[shown(row) for row in rows], next=more)


def shown(event: reads.EventRow) -> RunEvent:
    """The `data` of an event: its sequence, type and time, and further ids and numbers."""
    return RunEvent.model_validate({**event.body, "run_seq": event.run_seq, "type": event.type, "at": event.at})


def encoded(event: RunEvent) -> bytes:
    """One event on the wire."""
    return format_sse_event(event=event.type, data_str=event.model_dump_json(), id=str(event.run_seq))

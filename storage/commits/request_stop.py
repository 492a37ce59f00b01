"""Asking a Run to stop: the wish is recorded before anybody acts on it, so that nothing new starts after (SPEC S8).

A Run that no worker has opened yet ends with that, whether or not there is a worker (decision 0112).
"""

from dataclasses import dataclass
from uuid import UUID

from context.intents import CancelRun
from context.steps import FinishRun
from storage.commits.finish_run import end_run
from storage.locks import lock_run
from storage.outbox import SEND_AGAIN, outbox_row
from storage.store import Store
from storage.tables import outbox
from storage.writes import WriteSet

STOP = "UPDATE runs SET stop_requested_at = now() WHERE run_id = :stopped AND stop_requested_at IS NULL"


@dataclass(frozen=True)
class RequestStop:
    run_id: UUID
    owner_id: UUID


@dataclass(frozen=True)
class StopRequested:
    """The Run's state after the request; `outbox_id` is None for one that had ended before, which is left as it was."""

    run_id: UUID
    status: str
    outbox_id: UUID | None


async def request_stop(store: Store, request: RequestStop) -> StopRequested:
    """Record the stop of an active Run; a repeat finds it recorded. Raises NotFoundError."""
    async with store.transaction("request_stop") as connection:
        _, run = await lock_run(connection, request.run_id, request.owner_id)
        if not run.is_active:
            return StopRequested(request.run_id, run.status, None)
        intent = outbox_row(CancelRun(request.run_id, run.execution_no))
        writes = WriteSet()
        writes.sql(STOP, stopped=request.run_id)
        writes.insert(outbox, [intent], skip_existing=True)
        writes.sql(SEND_AGAIN, sent_again=intent["outbox_id"])
        await writes.send(connection)
        status = run.status
        if status == "queued":
            place = {"run_id": request.run_id, "execution_no": run.execution_no}
            status = (await end_run(connection, FinishRun(**place, status="stopped", end_reason="user_stop"))).status
        return StopRequested(request.run_id, status, intent["outbox_id"])

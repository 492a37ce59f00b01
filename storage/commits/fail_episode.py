"""An episode ends without a summary: nothing of view, snapshot or baselines moves, what was done stays (SPEC K8).

A call that is under way is over with it. If it was cancelled while its Run goes on, the request that waited for it is
judged and frozen next (decision 0106); if it failed, that request is not sent.
"""

import json
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.episodes import FailEpisode
from context.errors import SupersededError
from context.ids import block_operation_id
from context.steps import PreparedRequest
from storage.database import fetch_one, fetch_value
from storage.episodes import LOCK, LockedEpisode
from storage.event_log import EventLog
from storage.freezing import keep_manifest, tell_built
from storage.lost_tries import settling
from storage.store import Store
from storage.writes import WriteSet

FAIL = """
    UPDATE compaction_episodes SET status = :status, failure = CAST(:failure AS jsonb), ended_at = now()
    WHERE episode_id = :episode_id
"""
CLOSE_BLOCK = text("""
    UPDATE operations SET state = 'cancelled', updated_at = now()
    WHERE operation_id = :under_way AND state = 'calling'
""")
UNDER_WAY = "a.operation_id = :under_way AND a.state = 'calling'"
SETTLE = text(f"WITH {settling(run='SELECT run_id FROM runs WHERE run_id = :run_id', which=UNDER_WAY)} SELECT 1")
# The request that waited has its list all the same, as its manifest (SPEC A8).
KEEP_LIST = """
    UPDATE operations o SET view_id = e.view_id, view_length = e.view_length FROM compaction_episodes e
    WHERE e.episode_id = :episode_id AND o.operation_id = e.operation_id AND o.view_id IS NULL
"""
PREPARED = text("SELECT prepared FROM operations WHERE operation_id = :operation_id")
MARK = "UPDATE role_contexts SET material_mark = view_length WHERE context_id = :context_id"
MOVE_RUN = "UPDATE runs SET event_head = :event_head WHERE run_id = :run_id"


async def fail_episode(store: Store, request: FailEpisode) -> bool:
    """End the episode; one that has ended stays as it is (False). It may be ended whoever owns its Run now."""
    async with store.transaction("fail_episode") as connection:
        row = await fetch_one(connection, LOCK, episode_id=request.episode_id)
        if row is None:
            raise SupersededError
        return await end_episode(connection, LockedEpisode(**row), request)


async def end_episode(connection: AsyncConnection, episode: LockedEpisode, request: FailEpisode) -> bool:
    """The same within another commit, which has locked the episode."""
    if not episode.runs and episode.status != "queued":
        return False
    await end_call(connection, episode.run_id, block_operation_id(request.episode_id, episode.cursor))
    await _writes(request, episode, await _waiting(connection, episode)).send(connection)
    return True


async def end_call(connection: AsyncConnection, run_id: UUID, under_way: UUID) -> None:
    """Close a block's call that is under way, and count what was sent (decision 0107). The Run is locked."""
    await fetch_value(connection, SETTLE, run_id=run_id, under_way=under_way)
    await connection.execute(CLOSE_BLOCK, {"under_way": under_way})


def write_end(writes: WriteSet, events: EventLog, request: FailEpisode) -> None:
    """Put the end of an episode into the commit's writes."""
    failure = {"code": request.code, "reason": request.reason, "block": request.block}
    writes.sql(FAIL, status=request.status, failure=json.dumps(failure), episode_id=request.episode_id)
    events.add("compaction_finished", episode_id=request.episode_id, outcome=request.status, **failure)


async def _waiting(connection: AsyncConnection, episode: LockedEpisode) -> PreparedRequest | None:
    """The request that waits for the episode; None for that of an idle Session."""
    prepared = await fetch_value(connection, PREPARED, operation_id=episode.operation_id)
    return PreparedRequest.model_validate(prepared) if prepared else None


def _writes(request: FailEpisode, episode: LockedEpisode, waiting: PreparedRequest | None) -> WriteSet:
    writes, events = WriteSet(), EventLog(episode.run_id, episode.event_head)
    write_end(writes, events, request)
    if request.status == "failed" and waiting is not None:
        note = f"compaction:{request.status}"
        tell_built(events, episode.operation_id, episode.loops, waiting, [note])
        writes.sql(MARK, context_id=episode.context_id)
        writes.sql(KEEP_LIST)
        keep_manifest(writes, request.episode_id, note)
    events.write(writes)
    writes.sql(MOVE_RUN, run_id=episode.run_id)
    return writes

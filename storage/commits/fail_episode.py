"""An episode ends without a summary: nothing of view, snapshot or baselines moves, what was done stays (SPEC K8)."""

import json

from context.episodes import FailEpisode
from context.errors import SupersededError
from storage.database import fetch_one
from storage.episodes import LOCK, LockedEpisode
from storage.event_log import EventLog
from storage.store import Store
from storage.writes import WriteSet

FAIL = """
    UPDATE compaction_episodes SET status = :status, failure = CAST(:failure AS jsonb), ended_at = now()
    WHERE episode_id = :episode_id
"""
CLOSE_BLOCKS = """
    UPDATE operations o SET state = 'cancelled', updated_at = now() FROM idle_blocks b
    WHERE b.episode_id = :episode_id AND o.operation_id = b.operation_id AND o.state = 'calling'
"""
CLOSE_ATTEMPTS = """
    UPDATE attempts a SET state = 'superseded', ended_at = now() FROM idle_blocks b
    WHERE b.episode_id = :episode_id AND a.operation_id = b.operation_id AND a.state = 'calling'
"""
MARK = "UPDATE role_contexts SET material_mark = view_length WHERE context_id = :context_id"
MOVE_RUN = "UPDATE runs SET event_head = :event_head WHERE run_id = :run_id"


async def fail_episode(store: Store, request: FailEpisode) -> bool:
    """End the episode; one that has ended stays as it is (False). It may be ended whoever owns its Run now."""
    async with store.transaction("fail_episode") as connection:
        row = await fetch_one(connection, LOCK, episode_id=request.episode_id)
        if row is None:
            raise SupersededError
        episode = LockedEpisode(**row)
        if not episode.runs and episode.status != "queued":
            return False
        await _writes(request, episode).send(connection)
        return True


def _writes(request: FailEpisode, episode: LockedEpisode) -> WriteSet:
    writes, events = WriteSet(), EventLog(episode.run_id, episode.event_head)
    failure = {"code": request.code, "reason": request.reason, "block": request.block}
    writes.sql(FAIL, status=request.status, failure=json.dumps(failure), episode_id=episode.episode_id)
    if episode.is_idle:
        writes.sql(CLOSE_BLOCKS)
        writes.sql(CLOSE_ATTEMPTS)
    else:
        writes.sql(MARK, context_id=episode.context_id)
    events.add("compaction_finished", episode_id=episode.episode_id, outcome=request.status, **failure)
    events.write(writes)
    writes.sql(MOVE_RUN, run_id=episode.run_id)
    return writes

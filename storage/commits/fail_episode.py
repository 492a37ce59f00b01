"""An episode ends without a summary: nothing of view, snapshot or baselines moves, what was done stays (SPEC K8)."""

import json

from context.episodes import FailEpisode
from context.errors import SupersededError
from storage.database import fetch_one
from storage.episodes import LOCK, LockedEpisode
from storage.event_log import EventLog
from storage.lost_tries import CLOSE
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
CLOSE_TRIES = CLOSE.format(
    which="o.operation_id IN (SELECT operation_id FROM idle_blocks WHERE episode_id = :episode_id)"
    " AND a.state = 'calling'"
)
# The request that waited was measured, and is never sent: it has its list and its manifest all the same (SPEC A8).
KEEP_LIST = """
    UPDATE operations o SET view_id = e.view_id, view_length = e.view_length FROM compaction_episodes e
    WHERE e.episode_id = :episode_id AND o.operation_id = e.operation_id AND o.view_id IS NULL
"""
KEEP_MANIFEST = """
    INSERT INTO manifests (operation_id, estimated_input_tokens, input_limit, counting_method, exact, transforms,
      validation, notes)
    SELECT e.operation_id, e.estimated, n.input_limit, e.estimator_id, false,
      (SELECT coalesce(jsonb_agg(DISTINCT v.transform ORDER BY v.transform), '[]') FROM view_items v
       WHERE v.view_id = e.view_id AND v.pos < e.view_length AND v.transform IS NOT NULL),
      CASE WHEN e.estimated > n.input_limit THEN 'budget_exceeded' ELSE 'build_failed' END,
      jsonb_build_array('compaction:' || CAST(:status AS text))
    FROM compaction_episodes e JOIN operations o USING (operation_id)
      CROSS JOIN LATERAL (SELECT CAST(o.prepared ->> 'input_limit' AS bigint) AS input_limit) n
    WHERE e.episode_id = :episode_id ON CONFLICT DO NOTHING
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
        writes.sql(CLOSE_TRIES)
    else:
        writes.sql(MARK, context_id=episode.context_id)
        writes.sql(KEEP_LIST)
        writes.sql(KEEP_MANIFEST)
    events.add("compaction_finished", episode_id=episode.episode_id, outcome=request.status, **failure)
    events.write(writes)
    writes.sql(MOVE_RUN, run_id=episode.run_id)
    return writes

"""A block is finished: its answer, the summary so far, and the cursor, in one transaction (SPEC K6, R2)."""

from typing import Any

from context.episodes import BlockVerdict, FinishBlock
from context.errors import SupersededError
from context.ids import block_operation_id
from storage.episodes import LockedEpisode, lock_episode
from storage.event_log import EventLog
from storage.payloads import Sealed, distinct
from storage.store import Store
from storage.tables import payloads
from storage.writes import WriteSet

SETTLE_OPERATION = """
    UPDATE operations SET state = 'accepted', raw_id = :raw_id, result_id = :summary_id, updated_at = now(),
           verdict = CAST(:verdict AS jsonb), request_hash = coalesce(request_hash, :request_hash)
    WHERE operation_id = :operation_id
"""
SETTLE_ATTEMPT = """
    UPDATE attempts SET state = 'succeeded', first_output_at = coalesce(first_output_at, now()), ended_at = now(),
           usage = CAST(:usage AS jsonb), cost = :cost
    WHERE operation_id = :operation_id AND attempt_no = :attempt_no
"""
MOVE_CURSOR = """
    UPDATE compaction_episodes SET cursor = :finished, summary_id = :summary_id, truncated = truncated OR :truncated
    WHERE episode_id = :episode_id
"""
COUNT_USAGE = """
    UPDATE runs SET event_head = :event_head,
           input_tokens = input_tokens + :input_tokens, output_tokens = output_tokens + :output_tokens,
           cached_tokens = cached_tokens + :cached_tokens, usage_unknown = usage_unknown + :usage_unknown,
           cost = CASE WHEN CAST(:cost AS numeric) IS NULL THEN cost ELSE coalesce(cost, 0) + :cost END
    WHERE run_id = :run_id
"""


async def finish_block(store: Store, request: FinishBlock) -> BlockVerdict:
    """Commit the block; a repeat finds it finished. Raises SupersededError for a late owner, block or episode."""
    raw, summary = store.payloads.seal(request.raw.body), store.payloads.seal(request.summary.body)
    async with store.transaction("finish_block") as connection:
        episode = await lock_episode(connection, request.episode)
        if episode.cursor > request.block:
            return BlockVerdict(kind="done")
        if not episode.runs or episode.cursor < request.block:
            raise SupersededError
        await _writes(request, episode, raw, summary).send(connection)
        return BlockVerdict(kind="done")


def _writes(request: FinishBlock, episode: LockedEpisode, raw: Sealed, summary: Sealed) -> WriteSet:
    writes, events = WriteSet(), EventLog(episode.run_id, episode.event_head)
    writes.insert(payloads, distinct([raw, summary]), skip_existing=True)
    for statement in (SETTLE_OPERATION, SETTLE_ATTEMPT, MOVE_CURSOR, COUNT_USAGE):
        writes.sql(statement)
    done = {"done": request.block + 1, "blocks": episode.blocks}
    events.add("compaction_progress", episode_id=episode.episode_id, **done)
    events.write(writes)
    writes.bind(
        operation_id=block_operation_id(episode.episode_id, request.block),
        episode_id=episode.episode_id,
        run_id=episode.run_id,
        finished=request.block + 1,
        attempt_no=request.attempt_no,
        request_hash=request.request_hash,
        raw_id=raw.payload_id,
        summary_id=summary.payload_id,
        truncated=request.truncated,
        verdict=BlockVerdict(kind="done").model_dump_json(),
        **_usage(request),
    )
    return writes


def _usage(request: FinishBlock) -> dict[str, Any]:
    usage = request.usage
    return {
        "usage": usage.model_dump_json(),
        "cost": request.cost,
        "input_tokens": usage.input_tokens or 0,
        "output_tokens": usage.output_tokens or 0,
        "cached_tokens": usage.cached_tokens or 0,
        "usage_unknown": int(usage.input_tokens is None or usage.output_tokens is None),
    }

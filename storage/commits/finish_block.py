"""A block is finished: its answer, the summary so far, and the cursor, in one transaction (SPEC K6, R2)."""

from decimal import Decimal

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.episodes import BlockVerdict, FinishBlock
from context.errors import AttemptSupersededError, SupersededError
from context.ids import block_operation_id
from context.spending import spent
from storage.counting import ADD_USAGE, usage_numbers
from storage.database import fetch_value
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
COUNT_NOTHING = "UPDATE runs SET event_head = :event_head WHERE run_id = :run_id"
COUNT_USAGE = f"UPDATE runs SET event_head = :event_head, {ADD_USAGE} WHERE run_id = :run_id"
ATTEMPTS = text("SELECT attempts FROM operations WHERE operation_id = :operation_id")
VERDICT = text("SELECT verdict FROM operations WHERE operation_id = :operation_id")


async def finish_block(store: Store, request: FinishBlock) -> BlockVerdict:
    """Commit the block; a repeat finds it finished.

    Raises SupersededError for a late owner, block or episode, and AttemptSupersededError for a late attempt (SPEC W5).
    """
    raw, summary = store.payloads.seal(request.raw.body), store.payloads.seal(request.summary.body)
    async with store.transaction("finish_block") as connection:
        episode = await lock_episode(connection, request.episode)
        if episode.cursor > request.block:
            return await _standing(connection, request)
        if not episode.runs or episode.cursor < request.block:
            raise SupersededError
        operation_id = block_operation_id(request.episode.episode_id, request.block)
        if await fetch_value(connection, ATTEMPTS, operation_id=operation_id) > request.attempt_no:
            raise AttemptSupersededError  # it was counted as lost when the next one began
        over = {"over_budget": True} if _is_over_budget(request, episode) else {}
        verdict = BlockVerdict(kind="done", **over)
        await _writes(request, episode, verdict, raw, summary).send(connection)
        return verdict


async def _standing(connection: AsyncConnection, request: FinishBlock) -> BlockVerdict:
    operation_id = block_operation_id(request.episode.episode_id, request.block)
    return BlockVerdict.model_validate(await fetch_value(connection, VERDICT, operation_id=operation_id))


def _is_over_budget(request: FinishBlock, episode: LockedEpisode) -> bool:
    """Whether this call takes the Run that waits for it over a limit (SPEC L5). Unknown cost is not over."""
    if episode.operation_id is None:
        return False
    usage = request.usage
    tokens = episode.run_tokens + (usage.input_tokens or 0) + (usage.output_tokens or 0)
    cost = (episode.run_cost or Decimal(0)) + (request.cost or 0)
    used = spent(tokens=tokens, cost=cost, max_total_tokens=request.max_total_tokens, max_cost=request.max_cost)
    return used is not None


def _writes(
    request: FinishBlock, episode: LockedEpisode, verdict: BlockVerdict, raw: Sealed, summary: Sealed
) -> WriteSet:
    writes, events = WriteSet(), EventLog(episode.run_id, episode.event_head)
    writes.insert(payloads, distinct([raw, summary]), skip_existing=True)
    # What an idle Session's compaction used is its Session's: no Run, ended before, gets dearer (SPEC L5).
    count = COUNT_NOTHING if episode.is_idle else COUNT_USAGE
    for statement in (SETTLE_OPERATION, SETTLE_ATTEMPT, MOVE_CURSOR, count):
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
        verdict=verdict.model_dump_json(exclude_defaults=True),
        usage=request.usage.model_dump_json(),
        **usage_numbers(request.usage, request.cost),
    )
    return writes

"""The block plan of an episode becomes fact, once: whoever comes second finds the first one's (SPEC K6, K7)."""

from sqlalchemy import text

from context.episodes import EpisodePlan, EpisodeRef, Plan
from storage.episodes import PLAN, lock_episode
from storage.store import Store

KEEP = text("""
    UPDATE compaction_episodes SET plan_id = :plan_id, blocks = :blocks WHERE episode_id = :episode_id
""")


async def plan_episode(store: Store, ref: EpisodeRef, plan: Plan) -> EpisodePlan:
    """Commit the plan. Raises SupersededError if nobody waits for the episode any more."""
    async with store.transaction("plan_episode") as connection:
        episode = await lock_episode(connection, ref)
        if episode.blocks is not None:
            return EpisodePlan(blocks=episode.blocks, cursor=episode.cursor)
        sealed = store.payloads.seal(PLAN.dump_json(plan))
        await store.payloads.write(connection, [sealed])
        kept = {"plan_id": sealed.payload_id, "blocks": len(plan.blocks), "episode_id": ref.episode_id}
        await connection.execute(KEEP, kept)
        return EpisodePlan(blocks=len(plan.blocks), cursor=episode.cursor)

"""The commits and reads of a compaction, bound to one store: its activities are given this, and import no storage."""

from collections.abc import Sequence
from uuid import UUID

from context.episodes import (
    BlockMaterial,
    BlockVerdict,
    CompactionVerdict,
    EpisodePlan,
    EpisodeRef,
    FailEpisode,
    FinishBlock,
    ListedResults,
    OpenEpisode,
    Plan,
    PrepareBlock,
    PublishSnapshot,
    SourceItem,
)
from context.errors import CorruptPayloadError
from context.material import piece_of
from context.steps import RequestTerms
from context.transcripts import Source, earlier_summary, source_of
from storage.commits.fail_episode import fail_episode
from storage.commits.finish_block import finish_block
from storage.commits.open_idle_episode import open_idle_episode
from storage.commits.plan_episode import plan_episode
from storage.commits.prepare_block import prepare_block
from storage.commits.publish_snapshot import publish_snapshot
from storage.covered_results import results_to_list
from storage.episodes import PLAN, folded_text, open_episode, progress, sources
from storage.requests import FrozenRequest
from storage.store import Store


class EpisodeCommits:
    """One method per commit or read; the meaning stands with the function it calls."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def episode(self, episode_id: UUID) -> OpenEpisode:
        return await open_episode(self._store, episode_id)

    async def sources(self, episode_id: UUID, positions: Sequence[int]) -> tuple[SourceItem, ...]:
        return await sources(self._store, episode_id, positions)

    async def folded_text(self, episode_id: UUID) -> str | None:
        return await folded_text(self._store, episode_id)

    async def open_idle(self, ref: EpisodeRef, terms: RequestTerms) -> None:
        await open_idle_episode(self._store, ref, terms)

    async def plan(self, ref: EpisodeRef, plan: Plan) -> EpisodePlan:
        return await plan_episode(self._store, ref, plan)

    async def material(self, episode: OpenEpisode, block: int) -> BlockMaterial:
        """What the request of a block is made from, the same however often it is read."""
        stored = await progress(self._store, episode.episode_id)
        if stored.plan is None:
            raise CorruptPayloadError("A block is to be summarised before there is a plan.")
        plan = PLAN.validate_json(stored.plan)
        chosen, summary = plan.blocks[block], stored.summary
        folded = await self.folded_text(episode.episode_id) if block == 0 and episode.folds is not None else None
        if block == 0 and plan.carries_on:
            summary = folded
        positions = sorted({plan.positions[part.piece] for part in chosen.parts})
        found = await self.sources(episode.episode_id, positions)
        return BlockMaterial(chosen, {piece_of(one.item): _source(one, folded) for one in found}, summary)

    async def summary(self, episode_id: UUID) -> str | None:
        return (await progress(self._store, episode_id)).summary

    async def results_to_list(self, episode_id: UUID, terms: RequestTerms) -> ListedResults:
        limits = {"beside": terms.beside, "trigger": terms.budget.trigger}
        return await results_to_list(self._store, episode_id, **limits)

    async def prepare_block(self, request: PrepareBlock) -> FrozenRequest | BlockVerdict:
        return await prepare_block(self._store, request)

    async def finish_block(self, request: FinishBlock) -> BlockVerdict:
        return await finish_block(self._store, request)

    async def publish(self, request: PublishSnapshot) -> CompactionVerdict:
        return await publish_snapshot(self._store, request)

    async def fail(self, request: FailEpisode) -> None:
        await fail_episode(self._store, request)


def _source(one: SourceItem, folded: str | None) -> Source:
    if one.item.kind == "summary":
        return earlier_summary(piece_of(one.item), folded or "")
    return source_of(one.item, one.message)

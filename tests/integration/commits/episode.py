"""A compaction as commits that can be sent: once, twice, by two writers. Of a Run that waits, or of an idle Session."""

from dataclasses import dataclass, replace
from uuid import UUID, uuid4

from context.blocks import Block, Part
from context.episodes import (
    IDLE,
    BlockVerdict,
    CompactionVerdict,
    EpisodePlan,
    EpisodeRef,
    FailEpisode,
    FinishBlock,
    Plan,
    PrepareBlock,
    PublishSnapshot,
)
from context.ids import block_operation_id, model_operation_id, root_context_id
from context.material import piece_of
from context.messages import ChatMessage
from context.replies import Usage
from context.steps import (
    BeginAttempt,
    Begun,
    Content,
    FreezeRequest,
    OpenRun,
    PreparedRequest,
    PrepareRequest,
    Settled,
    Stopping,
)
from context.summaries import summary_message
from storage.commits.begin_attempt import begin_attempt
from storage.commits.compact_session import CompactionAsked, CompactSession, compact_session
from storage.commits.fail_episode import fail_episode
from storage.commits.finish_block import finish_block
from storage.commits.freeze_request import freeze_request
from storage.commits.open_idle_episode import open_idle_episode
from storage.commits.open_run import open_run
from storage.commits.plan_episode import plan_episode
from storage.commits.prepare_block import prepare_block
from storage.commits.prepare_request import prepare_request
from storage.commits.publish_snapshot import publish_snapshot
from storage.episodes import open_episode, sources
from storage.requests import FrozenRequest
from storage.store import Store
from tests.integration.commits.life import HASH, counted
from tests.integration.storage.played import COUNTER, TERMS, play
from tests.integration.storage.world import World, rows, say

EAGER = replace(TERMS, recent_runs=0, compaction=replace(TERMS.compaction, keep_recent=0))
"""Everything that is over can be summarised."""
BLOCKS = 2


@dataclass(frozen=True)
class Episode:
    """An open episode of two blocks."""

    ref: EpisodeRef
    world: World
    run_id: UUID

    async def plan(self, store: Store) -> EpisodePlan:
        """The covered pieces, dealt to two blocks."""
        found = await open_episode(store, self.ref.episode_id)
        items = await sources(store, self.ref.episode_id, found.covered)
        pieces = [piece_of(one.item) for one in items]
        half = len(pieces) // BLOCKS
        blocks = [Block(tuple(Part(one, 0, 1, 1) for one in part), 10) for part in (pieces[:half], pieces[half:])]
        positions = {piece_of(one.item): one.position for one in items}
        return await plan_episode(store, self.ref, Plan(tuple(blocks), positions, carries_on=False))

    async def prepare(self, store: Store, block: int = 0) -> FrozenRequest | BlockVerdict:
        messages = (
            ChatMessage(role="system", content="Summarise."),
            ChatMessage(role="user", content=f"block {block}"),
        )
        request = PrepareBlock(
            episode=self.ref,
            block=block,
            messages=tuple(counted(one) for one in messages),
            estimator_id=COUNTER.estimator_id,
            exact=False,
            model="demo-1",
            estimated=100,
            input_limit=1_000,
            max_output_tokens=100,
        )
        return await prepare_block(store, request)

    async def begin(self, store: Store, block: int = 0) -> Begun | Settled | Stopping:
        operation_id = block_operation_id(self.ref.episode_id, block)
        return await begin_attempt(store, BeginAttempt(operation_id, self.ref.execution_no, HASH))

    async def finish(self, store: Store, block: int = 0, *, says: str = "SUMMARY", attempt: int = 1) -> BlockVerdict:
        request = FinishBlock(
            episode=self.ref,
            block=block,
            attempt_no=attempt,
            request_hash=HASH,
            raw=Content(b"raw"),
            summary=Content(f"{says} {block}".encode()),
            truncated=False,
            usage=Usage(input_tokens=50, output_tokens=10, cached_tokens=0),
            cost=None,
        )
        return await finish_block(store, request)

    async def publish(self, store: Store) -> CompactionVerdict:
        terms = EAGER
        request = PublishSnapshot(
            episode=self.ref,
            message=counted(summary_message("SUMMARY 1")),
            estimator_id=COUNTER.estimator_id,
            fixed=terms.beside,
            terms=terms.compaction,
        )
        return await publish_snapshot(store, request)

    async def fail(self, store: Store) -> bool:
        request = FailEpisode(
            episode_id=self.ref.episode_id, status="failed", code="COMPACTION_FAILED", reason="empty", block=1
        )
        return await fail_episode(store, request)

    async def cancel(self, store: Store) -> bool:
        request = FailEpisode(
            episode_id=self.ref.episode_id, status="cancelled", code="COMPACTION_FAILED", reason="cancelled"
        )
        return await fail_episode(store, request)

    async def freeze(self, store: Store, *, ended_outside: str | None = None) -> PreparedRequest:
        """The request of the Run that waited for it."""
        request = FreezeRequest(
            context_id=root_context_id(self.run_id),
            release_id=self.world.release_id,
            execution_no=self.ref.execution_no,
            operation_id=model_operation_id(self.run_id, "root", 1),
            loop=1,
            ended_outside=ended_outside,
        )
        return await freeze_request(store, request, EAGER)

    async def up_to(self, store: Store, blocks: int) -> None:
        """Planned, and so many blocks finished."""
        await self.plan(store)
        for block in range(blocks):
            await self.prepare(store, block)
            await self.finish(store, block)


async def ask(store: Store, world: World, client_key: str | None = None) -> CompactionAsked:
    """Ask for a compaction of the world's session."""
    return await compact_session(store, CompactSession(world.session_id, world.owner_id, client_key))


async def idle_episode(store: Store, world: World) -> Episode:
    """Of an idle Session with two Runs; open."""
    for _ in range(2):
        await play(store, world, f"What is the weather? {uuid4()} {'word ' * 300}")
    asked = await ask(store, world)
    assert asked.episode_id is not None
    ref = EpisodeRef(episode_id=asked.episode_id, release_id=world.release_id, execution_no=IDLE)
    await open_idle_episode(store, ref, EAGER)
    return Episode(ref, world, asked.run_id)


async def episode_of_a_run(store: Store, world: World) -> Episode:
    """Of the third Run of a Session, whose first request waits for it; open."""
    for _ in range(2):
        await play(store, world, f"What is the weather? {uuid4()} {'word ' * 300}")
    run_id = (await say(store, world, "And now?")).run_id
    opened = await open_run(store, OpenRun(run_id=run_id, execution_no=1))
    prepared = await prepare_request(
        store,
        PrepareRequest(
            context_id=opened.context_id,
            release_id=world.release_id,
            execution_no=1,
            operation_id=model_operation_id(run_id, "root", 1),
            loop=1,
            batch_id=None,
            asked="manual",
        ),
        EAGER,
    )
    assert prepared.compact is not None
    return Episode(EpisodeRef(episode_id=prepared.compact, release_id=world.release_id, execution_no=1), world, run_id)


async def standing(store: Store, episode: Episode) -> dict[str, object]:
    """How the episode stands."""
    [row] = await rows(
        store,
        "SELECT status, outcome, cursor, failure FROM compaction_episodes WHERE episode_id = :id",
        id=episode.ref.episode_id,
    )
    return row

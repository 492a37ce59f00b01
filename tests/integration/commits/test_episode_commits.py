"""Each commit of a compaction sent twice, and by two at once: an old worker's attempt and the new one's (K7, R5).

For a Run that waits, whose execution is the fence, and for an idle Session, whose episode is (SPEC K12).
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from context.episodes import BlockVerdict
from context.errors import SupersededError
from context.steps import Begun, Settled, Stopping
from storage.commits.open_idle_episode import open_idle_episode
from storage.commits.request_stop import RequestStop, request_stop
from storage.commits.resume_run import ResumeRun, resume_run
from storage.commits.stop_compaction import StopCompaction, stop_compaction
from storage.store import Store
from tests.integration.commits.episode import BLOCKS, EAGER, Episode, ask, episode_of_a_run, idle_episode, standing
from tests.integration.commits.life import everything, refused, sent_by_two, sent_twice
from tests.integration.storage.played import play
from tests.integration.storage.world import World, count, end_run, rows, say

Build = Callable[[Store, World], Awaitable[Episode]]


@pytest.fixture(params=[episode_of_a_run, idle_episode], ids=["of a run", "of an idle session"])
async def episode(request: pytest.FixtureRequest, store: Store, world: World) -> Episode:
    """An open episode, once for a Run and once for an idle Session."""
    build: Build = request.param
    return await build(store, world)


async def test_a_plan_is_made_once_whoever_sends_it(store: Store, rival: Store, episode: Episode) -> None:
    """SPEC K6, K7."""
    plan = await sent_by_two(store, rival, episode.plan)
    assert (plan.blocks, plan.cursor) == (BLOCKS, 0)


async def test_a_block_is_frozen_once_whoever_sends_it(store: Store, rival: Store, episode: Episode) -> None:
    """SPEC A8, K7: one Operation, one manifest, one permit for the first try."""
    await episode.plan(store)
    first, second = await asyncio.gather(episode.prepare(store), episode.prepare(rival))
    assert first == second
    await sent_twice(store, episode.prepare)
    assert await count(store, "operations", "purpose = 'compaction'") == 1
    assert await count(store, "attempts a JOIN operations o USING (operation_id)", "o.purpose = 'compaction'") == 1


async def test_a_finished_block_moves_the_cursor_once(store: Store, rival: Store, episode: Episode) -> None:
    """SPEC K6, R2, R5: the summary of whoever came first stands, and its usage counts once."""
    await episode.plan(store)
    await episode.prepare(store)
    assert (await sent_by_two(store, rival, episode.finish)).kind == "done"
    late = await episode.finish(rival, says="ANOTHER")
    assert late.kind == "done"
    assert (await standing(store, episode))["cursor"] == 1
    assert await count(store, "run_events", "type = 'compaction_progress'") == 1
    assert await episode.begin(store) == Settled()


async def test_a_block_cannot_be_finished_before_its_turn(store: Store, episode: Episode) -> None:
    """SPEC K6: blocks fold in order."""
    await episode.plan(store)
    await episode.prepare(store)
    assert await refused(episode.finish(store, 1)) is SupersededError
    assert (await standing(store, episode))["cursor"] == 0


async def test_each_further_try_at_a_block_has_a_number(store: Store, rival: Store, episode: Episode) -> None:
    """SPEC W5."""
    await episode.plan(store)
    await episode.prepare(store)
    tries = await asyncio.gather(episode.begin(store), episode.begin(rival))
    begun = [one for one in tries if isinstance(one, Begun)]
    assert sorted(one.attempt_no for one in begun) == [2, 3]


async def test_a_summary_is_published_once_whoever_sends_it(store: Store, rival: Store, episode: Episode) -> None:
    """SPEC K9, R5."""
    await episode.up_to(store, BLOCKS)
    first, second = await asyncio.gather(episode.publish(store), episode.publish(rival))
    assert first.outcome == second.outcome == "activated"
    before = await everything(store)
    assert (await episode.publish(rival)).outcome == "activated"
    assert await everything(store) == before
    assert await count(store, "snapshots") == 1
    assert await count(store, "run_events", "type = 'compaction_finished'") == 1


async def test_nothing_is_published_before_the_last_block(store: Store, episode: Episode) -> None:
    """SPEC K7: a summary that is written but not whole is no snapshot."""
    await episode.up_to(store, BLOCKS - 1)
    assert await refused(episode.publish(store)) is SupersededError
    assert await count(store, "snapshots") == 0


async def test_an_episode_that_failed_takes_nothing_any_more(store: Store, rival: Store, episode: Episode) -> None:
    """SPEC K8, R5: it fails once; a late block and a late publication change nothing."""
    await episode.up_to(store, 1)
    await episode.prepare(store, 1)
    failed = await asyncio.gather(episode.fail(store), episode.fail(rival))
    assert sorted(failed) == [False, True]
    before = await everything(store)
    assert await refused(episode.finish(rival, 1)) is SupersededError
    assert (await episode.publish(rival)).status == "failed"
    prepared = await episode.prepare(rival, 1)
    assert isinstance(prepared, BlockVerdict)
    assert prepared.kind == "failed"
    assert await everything(store) == before


async def test_a_block_and_the_end_of_its_episode_at_once_leave_one_truth(
    store: Store, rival: Store, episode: Episode
) -> None:
    """SPEC R5: either the block came first and is finished, or the end did and the block is refused."""
    await episode.up_to(store, 1)
    await episode.prepare(store, 1)
    finished, _ = await asyncio.gather(episode.finish(rival, 1), episode.fail(store), return_exceptions=True)
    row = await standing(store, episode)
    assert row["status"] == "failed"
    assert row["cursor"] == (1 if isinstance(finished, SupersededError) else BLOCKS)


# --- of a Run --------------------------------------------------------------------------------------------------------


async def test_an_episode_belongs_to_the_execution_that_waits_for_it(store: Store, world: World) -> None:
    """SPEC R5: once the Run has ended, or goes on as its next execution, the old one's commits are refused."""
    episode = await episode_of_a_run(store, world)
    await episode.up_to(store, 1)
    await episode.prepare(store, 1)
    await end_run(store, episode.run_id)
    assert (await standing(store, episode))["status"] == "cancelled"
    await resume_run(store, ResumeRun(episode.run_id, world.owner_id))
    late: list[Callable[[Store], Awaitable[Any]]] = [
        episode.plan,
        lambda writer: episode.finish(writer, 1),
        episode.publish,
    ]
    before = await everything(store)
    for commit in late:
        assert await refused(commit(store)) is SupersededError
    assert await episode.begin(store, 1) == Settled()  # the end has cancelled it
    assert await everything(store) == before


async def test_no_block_of_a_run_begins_after_its_stop(store: Store, world: World) -> None:
    """SPEC S8."""
    episode = await episode_of_a_run(store, world)
    await episode.plan(store)
    await episode.prepare(store)
    await request_stop(store, RequestStop(episode.run_id, world.owner_id))
    assert await episode.begin(store) == Stopping()
    await episode.finish(store)  # what was in flight is recorded
    assert await episode.prepare(store, 1) == BlockVerdict(kind="stopping")


@pytest.mark.parametrize(("reason", "status"), [("cancelled", "cancelled"), ("lost", "failed")])
async def test_an_episode_that_was_ended_from_outside_leaves_its_request_to_its_size(
    store: Store, rival: Store, world: World, reason: str, status: str
) -> None:
    """SPEC K8, R5: recorded once whoever sends it; the call under way is over, and what comes late is refused."""
    episode = await episode_of_a_run(store, world)
    await episode.up_to(store, 1)
    await episode.prepare(store, 1)
    if reason == "cancelled":
        await episode.cancel(store)
    frozen = await sent_by_two(store, rival, lambda writer: episode.freeze(writer, ended_outside=reason))
    assert (frozen.refused, frozen.compact) == (None, None)
    row = await standing(store, episode)
    assert (row["status"], row["failure"]) == (status, {"code": "COMPACTION_FAILED", "reason": reason, "block": None})
    assert await count(store, "run_events", "type = 'compaction_finished'") == 1
    assert await count(store, "operations", "purpose = 'compaction' AND state = 'cancelled'") == 1
    assert await refused(episode.finish(rival, 1)) is SupersededError
    assert (await episode.publish(rival)).status == status
    assert await count(store, "operations", "purpose = 'business' AND state = 'calling'") == 1


async def test_what_was_published_before_its_workflow_was_ended_is_used(store: Store, world: World) -> None:
    """SPEC K7, K9: a published summary is a fact, whatever becomes of the workflow then."""
    episode = await episode_of_a_run(store, world)
    await episode.up_to(store, BLOCKS)
    await episode.publish(store)
    before = await standing(store, episode)
    assert (await episode.freeze(store, ended_outside="lost")).refused is None
    assert await standing(store, episode) == before
    assert await count(store, "manifests", "notes = '[\"compaction:activated\"]'") == 1


async def test_what_failed_before_its_workflow_was_ended_stays_failed(store: Store, world: World) -> None:
    """SPEC K8: no summary could be made, and that is why the request is not sent."""
    episode = await episode_of_a_run(store, world)
    await episode.fail(store)
    before = await everything(store)
    assert (await episode.freeze(store, ended_outside="lost")).refused == "COMPACTION_FAILED"
    assert await everything(store) == before


async def test_no_request_is_frozen_after_the_stop_of_its_run(store: Store, world: World) -> None:
    """SPEC S8: its compaction may have been ended in the same moment; there is no permit, and no failure of the Run."""
    episode = await episode_of_a_run(store, world)
    await episode.cancel(store)
    await request_stop(store, RequestStop(episode.run_id, world.owner_id))
    before = await everything(store)
    frozen = await episode.freeze(store, ended_outside="cancelled")
    assert (frozen.stopping, frozen.refused, frozen.compact) == (True, None, None)
    assert await everything(store) == before


# --- of an idle Session ----------------------------------------------------------------------------------------------


async def test_two_who_ask_at_once_get_one_compaction(store: Store, rival: Store, world: World) -> None:
    """SPEC K12, S5: one open episode of a Session; a client key finds its own answer."""
    await play(store, world)
    first, second = await asyncio.gather(ask(store, world, "one"), ask(rival, world, "two"))
    assert first.episode_id == second.episode_id is not None
    assert await count(store, "compaction_episodes") == 1
    assert await count(store, "outbox", "kind = 'compact'") == 1
    again = await ask(rival, world, "one")
    assert (again.episode_id, again.is_known) == (first.episode_id, True)


async def test_what_is_opened_by_two_is_opened_once(store: Store, rival: Store, world: World) -> None:
    """SPEC K7, K12: the source list is frozen once."""
    episode = await idle_episode(store, world)
    frozen = await count(store, "view_items")
    await asyncio.gather(*(open_idle_episode(writer, episode.ref, EAGER) for writer in (store, rival)))
    assert await count(store, "view_items") == frozen
    assert await count(store, "run_events", "type = 'compaction_started'") == 1


async def test_neither_a_new_run_nor_a_resume_touches_an_idle_sessions_episode(store: Store, world: World) -> None:
    """SPEC K12, S1: it blocks nothing, and nothing of a Run ends it; a Run's figures stay as they were."""
    episode = await idle_episode(store, world)
    used = "SELECT input_tokens, output_tokens FROM runs WHERE run_id = :run_id"
    before = await rows(store, used, run_id=episode.run_id)
    await episode.plan(store)
    await episode.prepare(store)
    question = await say(store, world, "Meanwhile?")
    await end_run(store, question.run_id)
    await resume_run(store, ResumeRun(question.run_id, world.owner_id))
    assert isinstance(await episode.begin(store), Begun)
    await episode.finish(store, attempt=2)
    await episode.prepare(store, 1)
    await episode.finish(store, 1)
    assert (await episode.publish(store)).outcome == "activated"
    assert await rows(store, used, run_id=episode.run_id) == before
    last = "(SELECT max(seq) FROM context_records c JOIN runs r USING (run_id) WHERE r.run_no = 2)"
    assert await count(store, "sessions", f"base_run_no = 2 AND run_head = 3 AND base_seq = {last}") == 1


async def test_no_block_of_an_idle_session_begins_after_its_stop(store: Store, rival: Store, world: World) -> None:
    """SPEC S8, K12: the stop is recorded once; the session is free as soon as the episode has ended."""
    episode = await idle_episode(store, world)
    await episode.plan(store)
    await episode.prepare(store)
    stop = StopCompaction(episode.ref.episode_id, world.owner_id)
    await sent_by_two(store, rival, lambda writer: stop_compaction(writer, stop))
    assert await episode.begin(store) == Stopping()
    await episode.fail(store)
    assert await count(store, "operations", "purpose = 'compaction' AND state = 'cancelled'") == 1
    assert await stop_compaction(store, stop) is None
    assert (await ask(store, world)).episode_id != episode.ref.episode_id

"""Intents: sent by whoever committed them, or by the relay, until they have arrived (SPEC W7)."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import UUID

import pytest

from context.errors import UnavailableError
from context.intents import (
    CancelCompaction,
    CancelRun,
    Carried,
    Intent,
    SignalSupplement,
    StartCompaction,
    StartRun,
)
from context.steps import OpenRun
from storage.commits.compact_session import CompactSession, compact_session
from storage.commits.open_run import open_run
from storage.commits.request_stop import RequestStop, request_stop
from storage.commits.resume_run import ResumeRun, resume_run
from storage.commits.stop_compaction import StopCompaction, stop_compaction
from storage.outbox import Relay, dispatch
from storage.store import Store
from tests.integration.storage.played import play
from tests.integration.storage.world import KEYS, Crash, CrashAt, World, count, end_run, execute, say


@dataclass
class Post:
    """A sender that notes what it carries; `answers` are used up first, then everything arrives."""

    answers: list[Carried | type[Exception]] = field(default_factory=list)
    carried: list[Intent] = field(default_factory=list)

    async def start(self, intent: StartRun) -> Carried:
        return self._carry(intent)

    async def signal(self, intent: SignalSupplement) -> Carried:
        return self._carry(intent)

    async def cancel(self, intent: CancelRun) -> Carried:
        return self._carry(intent)

    async def start_compaction(self, intent: StartCompaction) -> Carried:
        return self._carry(intent)

    async def cancel_compaction(self, intent: CancelCompaction) -> Carried:
        return self._carry(intent)

    def _carry(self, intent: Intent) -> Carried:
        self.carried.append(intent)
        answer = self.answers.pop(0) if self.answers else "sent"
        if isinstance(answer, str):
            return answer
        raise answer


async def _make_due(store: Store) -> None:
    await execute(store, "UPDATE outbox SET due_at = now() - interval '1 minute' WHERE sent_at IS NULL")


async def _unsent(store: Store) -> int:
    return await count(store, "outbox", "sent_at IS NULL")


async def test_each_intent_arrives_as_it_was_meant(store: Store, world: World) -> None:
    """W7, W3a: ids and numbers, nothing else."""
    post = Post()
    question = await say(store, world, "q")
    supplement = await say(store, world, "s")
    for outbox_id in (question.outbox_id, supplement.outbox_id):
        assert await dispatch(store, post, outbox_id) == "sent"
    stop = await request_stop(store, RequestStop(question.run_id, world.owner_id))
    assert stop.outbox_id is not None
    assert await dispatch(store, post, stop.outbox_id) == "sent"
    assert post.carried == [
        StartRun(question.run_id, 1, world.session_id, "scout", world.release_id),
        SignalSupplement(question.run_id, supplement.input_id, 2),
        CancelRun(question.run_id, 1),
    ]
    assert post.carried[0].workflow_id == f"run/{question.run_id}"


async def test_what_was_sent_is_not_sent_again(store: Store, world: World) -> None:
    """SPEC W7."""
    post = Post()
    question = await say(store, world, "q")
    assert await dispatch(store, post, question.outbox_id) == "sent"
    assert await dispatch(store, post, question.outbox_id) == "sent"
    assert await Relay(store, post).sweep() == 0
    assert len(post.carried) == 1


async def test_a_sender_that_is_away_leaves_the_intent_to_the_relay(store: Store, world: World) -> None:
    """W7, R8."""
    post = Post(answers=[UnavailableError, UnavailableError])
    question = await say(store, world, "q")
    assert await dispatch(store, post, question.outbox_id) == "later"
    await _make_due(store)
    assert await Relay(store, post).sweep() == 0
    assert await Relay(store, post).sweep() == 0, "it backs off"
    await _make_due(store)
    assert await Relay(store, post).sweep() == 1
    assert await _unsent(store) == 0


async def test_what_waited_long_is_sent_soon_after_the_server_is_back(store: Store, world: World) -> None:
    """W7, S8: a stop reaches its Run within seconds, however long Temporal was away."""
    question = await say(store, world, "q")
    await execute(store, "UPDATE outbox SET tries = 50")
    assert await dispatch(store, Post(answers=[UnavailableError]), question.outbox_id) == "later"
    assert await count(store, "outbox", "sent_at IS NULL AND due_at < now() + interval '5 s'") == 1


async def test_a_lost_database_leaves_the_intent_to_the_relay(store: Store, world: World) -> None:
    """W7: the commit was acknowledged, so dispatching never fails its caller."""
    gone = Store.open("postgresql://nobody@127.0.0.1:1/none", KEYS)
    assert await dispatch(gone, Post(), UUID(int=1)) == "later"
    await gone.aclose()


async def test_a_crash_between_sending_and_noting_sends_again(store: Store, world: World, database_url: str) -> None:
    """W7: repeated rather than lost."""
    post = Post()
    question = await say(store, world, "q")
    dying = Store.open(database_url, KEYS, faults=CrashAt("settle_intent.before_commit"))
    with pytest.raises(Crash):
        await dispatch(dying, post, question.outbox_id)
    await dying.aclose()
    await _make_due(store)
    assert await Relay(store, post).sweep() == 1
    assert len(post.carried) == 2


async def test_a_start_waits_while_the_old_execution_is_closing(store: Store, world: World) -> None:
    """W3a: tried again soon, not after a back-off."""
    post = Post(answers=["closing"])
    question = await say(store, world, "q")
    assert await dispatch(store, post, question.outbox_id) == "later"
    assert await count(store, "outbox", "sent_at IS NULL AND due_at < now() + interval '0.5 s'") == 1


async def test_a_signal_waits_for_the_start_it_belongs_to(store: Store, world: World) -> None:
    """W2: none is lost, not even one that overtakes the start."""
    question, supplement = await say(store, world, "q"), await say(store, world, "s")
    assert await dispatch(store, Post(answers=["gone"]), supplement.outbox_id) == "later"
    assert await dispatch(store, Post(), question.outbox_id) == "sent"
    assert await dispatch(store, Post(answers=["gone"]), supplement.outbox_id) == "sent"
    assert await _unsent(store) == 0


async def test_what_an_ended_run_left_behind_is_not_sent(store: Store, world: World) -> None:
    """W3a: no execution is opened that has nothing to do; the rows are settled all the same."""
    question = await say(store, world, "q")
    await say(store, world, "s")
    await open_run(store, OpenRun(run_id=question.run_id, execution_no=1))
    await request_stop(store, RequestStop(question.run_id, world.owner_id))
    await end_run(store, question.run_id, "stopped")
    await _make_due(store)
    post = Post()
    assert await Relay(store, post).sweep() == 3
    assert post.carried == []
    assert await _unsent(store) == 0


async def test_of_a_run_that_was_stopped_before_it_opened_only_the_cancellation_is_sent(
    store: Store, world: World
) -> None:
    """S8, W3a: its start may have arrived, in which case its execution closes as the Run did."""
    question = await say(store, world, "q")
    await say(store, world, "s")
    await request_stop(store, RequestStop(question.run_id, world.owner_id))
    await _make_due(store)
    post = Post()
    assert await Relay(store, post).sweep() == 3
    assert post.carried == [CancelRun(question.run_id, 1)]
    assert await _unsent(store) == 0


async def test_a_stop_that_is_asked_for_again_is_sent_again(store: Store, world: World) -> None:
    """S8, W7: somebody may have set the workflow back, or Temporal a backup, since the first one arrived."""
    question = await say(store, world, "q")
    await open_run(store, OpenRun(run_id=question.run_id, execution_no=1))
    post = Post()
    for _ in range(2):
        stop = await request_stop(store, RequestStop(question.run_id, world.owner_id))
        assert stop.outbox_id is not None
        assert await dispatch(store, post, stop.outbox_id) == "sent"
    assert post.carried == [CancelRun(question.run_id, 1)] * 2


async def test_only_the_newest_executions_start_is_sent(store: Store, world: World) -> None:
    """W3a."""
    question = await say(store, world, "q")
    await end_run(store, question.run_id)
    resumed = await resume_run(store, ResumeRun(question.run_id, world.owner_id))
    await _make_due(store)
    post = Post()
    await Relay(store, post).sweep()
    assert [(type(one), one.execution_no) for one in post.carried if isinstance(one, StartRun)] == [
        (StartRun, resumed.execution_no)
    ]


async def test_a_start_that_has_arrived_is_not_sent_again(store: Store, world: World) -> None:
    """W7: the Run runs, so its start was received, whatever was noted."""
    question = await say(store, world, "q")
    await open_run(store, OpenRun(run_id=question.run_id, execution_no=1))
    post = Post()
    assert await dispatch(store, post, question.outbox_id) == "sent"
    assert post.carried == []


async def test_a_new_intent_is_left_to_its_committer_at_first(store: Store, world: World) -> None:
    """SPEC W7."""
    await say(store, world, "q")
    assert await Relay(store, Post()).sweep() == 0


async def test_a_lease_by_a_clock_that_was_ahead_holds_nothing_up(store: Store, world: World) -> None:
    """W7, S13: no lease is that long, so the database's clock went back."""
    await say(store, world, "q")
    await execute(store, "UPDATE outbox SET tries = 1, due_at = now() + interval '20 seconds'")
    assert await Relay(store, Post()).sweep() == 0
    await execute(store, "UPDATE outbox SET due_at = now() + interval '1 hour'")
    assert await Relay(store, Post()).sweep() == 1


async def test_relays_side_by_side_share_the_work(store: Store, world: World) -> None:
    """Leased with SKIP LOCKED: each intent is carried once."""
    await say(store, world, "q")
    for n in range(40):
        await say(store, world, f"s{n}")
    await _make_due(store)
    post = Post()
    sent = await asyncio.gather(*(Relay(store, post).sweep() for _ in range(4)))
    assert sum(sent) == len(post.carried) == 41


async def test_a_running_relay_repairs_what_its_committer_left(store: Store, world: World) -> None:
    """W7: a crash between commit and signal is repaired without a person."""
    await say(store, world, "q")
    post = Post(answers=[UnavailableError])
    relay = asyncio.create_task(Relay(store, post, poll_s=0.02).run())
    while await _unsent(store):
        await asyncio.sleep(0.02)
    relay.cancel()
    with suppress(asyncio.CancelledError):
        await relay
    assert len(post.carried) == 2


async def test_the_compaction_of_an_idle_session_starts_as_it_was_meant(store: Store, world: World) -> None:
    """W7, K12: by whoever asked, or by the relay if that died; an ended one is not started."""
    played = await play(store, world)
    asked = await compact_session(store, CompactSession(world.session_id, world.owner_id))
    assert asked.episode_id is not None
    assert asked.outbox_id is not None
    post = Post(answers=[UnavailableError])
    assert await dispatch(store, post, asked.outbox_id) == "later"
    await execute(store, "UPDATE outbox SET sent_at = now() WHERE kind = 'start'")
    await _make_due(store)
    assert await Relay(store, post).sweep() == 1
    meant = StartCompaction(played.run_id, asked.episode_id, world.session_id, "scout", world.release_id)
    assert post.carried == [meant, meant]
    assert meant.workflow_id == f"compaction/{asked.episode_id}"


async def test_a_stopped_compaction_is_cancelled_and_cancelled_again_if_asked_again(store: Store, world: World) -> None:
    """W7, S8, K12: of one that a worker has begun."""
    await play(store, world)
    asked = await compact_session(store, CompactSession(world.session_id, world.owner_id))
    assert asked.episode_id is not None
    await execute(store, "UPDATE compaction_episodes SET status = 'running'")
    post = Post()
    for _ in range(2):
        outbox_id = await stop_compaction(store, StopCompaction(asked.episode_id, world.owner_id))
        assert outbox_id is not None
        assert await dispatch(store, post, outbox_id) == "sent"
    assert [type(intent) for intent in post.carried] == [CancelCompaction] * 2


async def test_a_compaction_that_was_stopped_before_it_began_is_not_started_any_more(
    store: Store, world: World
) -> None:
    """W7, S8, K12: a workflow that was started all the same is cancelled, and looked for no longer than that."""
    await play(store, world)
    asked = await compact_session(store, CompactSession(world.session_id, world.owner_id))
    assert asked.episode_id is not None
    assert asked.outbox_id is not None
    outbox_id = await stop_compaction(store, StopCompaction(asked.episode_id, world.owner_id))
    assert outbox_id is not None
    post = Post(answers=["gone", "gone"])
    assert await dispatch(store, post, outbox_id) == "later"
    assert await dispatch(store, post, asked.outbox_id) == "sent"
    assert await dispatch(store, post, outbox_id) == "sent"
    assert [type(intent) for intent in post.carried] == [CancelCompaction] * 2
    assert await stop_compaction(store, StopCompaction(asked.episode_id, world.owner_id)) is None

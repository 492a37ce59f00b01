"""Runs whose workflow is gone: who is asked about, and what is made of the answer (SPEC S13)."""

from dataclasses import dataclass, field
from uuid import UUID

import pytest

from context.errors import UnavailableError
from context.standing import Standing
from context.steps import OpenRun
from storage.commits.compact_session import CompactSession, compact_session
from storage.commits.create_session import CreateSession, create_session
from storage.commits.open_run import open_run
from storage.commits.request_stop import RequestStop, request_stop
from storage.commits.resume_run import ResumeRun, resume_run
from storage.reconciling import Reconciler, silent_compactions, silent_runs
from storage.store import Store
from tests.integration.storage.played import play
from tests.integration.storage.world import World, end_run, execute, rows, say


class OfRuns:
    """A watch that is asked about Runs only."""

    async def standing_of_compaction(self, episode_id: UUID) -> Standing:
        raise AssertionError("there is no compaction to ask about")


@dataclass
class Told(OfRuns):
    """A watch that says what it was told to say, and notes what it was asked."""

    answer: Standing | type[Exception]
    asked: list[tuple[UUID, int]] = field(default_factory=list)

    async def standing(self, run_id: UUID, execution_no: int) -> Standing:
        self.asked.append((run_id, execution_no))
        if isinstance(self.answer, str):
            return self.answer
        raise self.answer


async def send_everything(store: Store) -> None:
    await execute(store, "UPDATE outbox SET sent_at = now() WHERE sent_at IS NULL")


async def look(store: Store, answer: Standing | type[Exception]) -> int:
    return await Reconciler(store, Told(answer), quiet_s=0).round()


async def the_run(store: Store) -> dict[str, object]:
    [run] = await rows(store, "SELECT status, end_reason, error, phase FROM runs")
    return run


async def open_execution(store: Store, run_id: UUID, execution_no: int = 1) -> None:
    await send_everything(store)
    await open_run(store, OpenRun(run_id=run_id, execution_no=execution_no))


@pytest.mark.parametrize("standing", ["terminated", "timed_out", "missing", "failed", "completed"])
async def test_a_run_without_its_workflow_ends_as_lost(store: Store, world: World, standing: Standing) -> None:
    """S13, S2: failed, with the reason, and the session is free again."""
    question = await say(store, world, "q")
    await open_execution(store, question.run_id)
    assert await look(store, standing) == 1
    run = await the_run(store)
    assert (run["status"], run["end_reason"], run["phase"]) == ("failed", "lost", "ended")
    assert isinstance(run["error"], dict)
    assert run["error"]["code"] == "RUN_LOST"
    assert await say(store, world, "q2", mode="question")


async def test_a_terminated_workflow_is_called_terminated_outside(store: Store, world: World) -> None:
    """S13: the truth is told."""
    question = await say(store, world, "q")
    await open_execution(store, question.run_id)
    await look(store, "terminated")
    error = (await the_run(store))["error"]
    assert isinstance(error, dict)
    assert "terminated outside" in error["message"]


async def test_a_cancelled_workflow_whose_end_was_lost_is_a_stop(store: Store, world: World) -> None:
    """W3a: Canceled means stopped."""
    question = await say(store, world, "q")
    await open_execution(store, question.run_id)
    await look(store, "canceled")
    run = await the_run(store)
    assert (run["status"], run["end_reason"], run["error"]) == ("stopped", "user_stop", None)


async def test_supplements_of_a_lost_run_are_carried(store: Store, world: World) -> None:
    """S6: as at any other end."""
    question = await say(store, world, "q")
    supplement = await say(store, world, "s")
    await open_execution(store, question.run_id)
    await look(store, "terminated")
    found = await rows(
        store, "SELECT state, previous_delivery_id FROM input_deliveries WHERE input_seq = 2 ORDER BY delivery_id"
    )
    assert {row["state"] for row in found} == {"carried", "pending"}
    assert supplement.delivery_id in {row["previous_delivery_id"] for row in found}


async def test_a_run_whose_workflow_is_open_goes_on(store: Store, world: World) -> None:
    """S13: silence alone is no end."""
    question = await say(store, world, "q")
    await open_execution(store, question.run_id)
    assert await look(store, "open") == 0
    assert (await the_run(store))["status"] == "running"


async def test_a_run_is_left_alone_while_temporal_is_away(store: Store, world: World) -> None:
    """S13, W7: not to know is no evidence."""
    question = await say(store, world, "q")
    await open_execution(store, question.run_id)
    assert await look(store, UnavailableError) == 0
    assert (await the_run(store))["status"] == "running"


async def test_a_run_whose_start_waits_to_be_sent_is_not_asked_about(store: Store, world: World) -> None:
    """S13, W7: it has no workflow yet, and will have one."""
    question = await say(store, world, "q")
    assert await silent_runs(store, quiet_s=0) == []
    await send_everything(store)
    assert [run.run_id for run in await silent_runs(store, quiet_s=0)] == [question.run_id]


async def test_a_run_that_was_heard_of_is_not_asked_about(store: Store, world: World) -> None:
    """S13."""
    question = await say(store, world, "q")
    await open_execution(store, question.run_id)
    assert await silent_runs(store, quiet_s=60) == []
    await execute(store, "UPDATE run_events SET at = now() - interval '2 minutes'")
    assert [run.run_id for run in await silent_runs(store, quiet_s=60)] == [question.run_id]


async def test_a_sign_of_life_from_a_clock_that_was_ahead_counts_for_nothing(store: Store, world: World) -> None:
    """S13: the database's clock went back by an hour, as in a fail-over; a lost Run is noticed all the same."""
    question = await say(store, world, "q")
    await open_execution(store, question.run_id)
    await execute(store, "UPDATE run_events SET at = now() + interval '1 hour'")
    assert [run.run_id for run in await silent_runs(store)] == [question.run_id]
    assert await look(store, "open") == 0
    await execute(store, "UPDATE runs SET started_at = now() + interval '1 hour'")
    assert await look(store, "missing") == 1
    assert await rows(store, "SELECT active_ms FROM runs") == [{"active_ms": 0}], "no time is given back"


async def test_an_answer_about_an_older_execution_ends_nothing(store: Store, world: World) -> None:
    """S13, W3a: while it was asked, the Run ended and was resumed."""
    question = await say(store, world, "q")
    await open_execution(store, question.run_id)
    reconciler = Reconciler(store, ResumedMeanwhile(store, world, question.run_id), quiet_s=0)
    assert await reconciler.round() == 0
    assert (await the_run(store))["status"] == "queued"


@dataclass
class ResumedMeanwhile(OfRuns):
    """Answers late: the Run has been stopped and resumed by then."""

    store: Store
    world: World
    run_id: UUID

    async def standing(self, run_id: UUID, execution_no: int) -> Standing:
        await request_stop(self.store, RequestStop(self.run_id, self.world.owner_id))
        await end_run(self.store, self.run_id, "stopped")
        await resume_run(self.store, ResumeRun(self.run_id, self.world.owner_id))
        return "canceled"


async def test_an_ended_run_keeps_its_end(store: Store, world: World) -> None:
    """S2: a Run ends once."""
    question = await say(store, world, "q")
    await open_execution(store, question.run_id)
    watch = EndedMeanwhile(store, question.run_id)
    assert await Reconciler(store, watch, quiet_s=0).round() == 0
    assert (await the_run(store))["status"] == "timed_out"


@dataclass
class EndedMeanwhile(OfRuns):
    """Answers late: the Run has ended by itself."""

    store: Store
    run_id: UUID

    async def standing(self, run_id: UUID, execution_no: int) -> Standing:
        await end_run(self.store, self.run_id, "timed_out")
        return "failed"


async def test_a_run_whose_end_cannot_be_written_keeps_no_other_from_ending(
    store: Store, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """S13: one damaged row, and each worker would end with an error of its own for ever; it is named instead."""
    damaged = await say(store, world, "q")
    await open_execution(store, damaged.run_id)
    await execute(store, "UPDATE runs SET event_head = 0")
    session = await create_session(store, CreateSession(world.space_id, world.owner_id, "scout"))
    other = await say(store, world, "q", session_id=session.session_id)
    await open_execution(store, other.run_id)
    reconciler = Reconciler(store, Told("missing"), quiet_s=0)
    assert [await reconciler.round(), await reconciler.round()] == [1, 0]
    assert await rows(store, "SELECT run_id FROM runs WHERE status = 'failed'") == [{"run_id": other.run_id}]
    assert [str(damaged.run_id) in record.getMessage() for record in caplog.records] == [True]


# --- compactions of idle Sessions ------------------------------------------------------------------------------------


@dataclass
class OfCompactions:
    """A watch over compactions that says what it was told to say."""

    answer: Standing | type[Exception]

    async def standing(self, run_id: UUID, execution_no: int) -> Standing:
        raise AssertionError("there is no active Run to ask about")

    async def standing_of_compaction(self, episode_id: UUID) -> Standing:
        if isinstance(self.answer, str):
            return self.answer
        raise self.answer


@pytest.mark.parametrize(
    ("standing", "status", "reason"),
    [
        ("terminated", "failed", "lost"),
        ("missing", "failed", "lost"),
        ("failed", "failed", "lost"),
        ("canceled", "cancelled", "cancelled"),
    ],
)
async def test_a_compaction_without_its_workflow_is_ended_and_frees_its_session(
    store: Store, world: World, standing: Standing, status: str, reason: str
) -> None:
    """S13, K12: with the reason; the next one can be asked for."""
    await play(store, world)
    asked = await compact_session(store, CompactSession(world.session_id, world.owner_id))
    assert await silent_compactions(store, quiet_s=0) == [], "its start waits to be sent"
    await send_everything(store)
    assert await silent_compactions(store, quiet_s=60) == []
    await execute(store, "UPDATE run_events SET at = at + interval '1 hour'")
    assert len(await silent_compactions(store, quiet_s=60)) == 1, "a clock that went back"
    await execute(store, "UPDATE run_events SET at = at - interval '1 hour'")
    assert await Reconciler(store, OfCompactions("open"), quiet_s=0).round() == 0
    assert await Reconciler(store, OfCompactions(UnavailableError), quiet_s=0).round() == 0
    assert await Reconciler(store, OfCompactions(standing), quiet_s=0).round() == 1
    [ended] = await rows(store, "SELECT status, failure FROM compaction_episodes")
    assert (ended["status"], ended["failure"]["reason"]) == (status, reason)
    again = await compact_session(store, CompactSession(world.session_id, world.owner_id))
    assert again.episode_id not in (None, asked.episode_id)

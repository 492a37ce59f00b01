"""Stopping, resuming and withdrawing: what is recorded, what is refused, and what is carried."""

import asyncio
from uuid import UUID

import pytest

from context.errors import (
    ClientKeyReusedError,
    InputNotPendingError,
    NotFoundError,
    RunActiveError,
    RunNotResumableError,
    SessionArchivedError,
    SupersededError,
)
from context.steps import OpenRun
from storage.commits.open_run import open_run
from storage.commits.request_stop import RequestStop, request_stop
from storage.commits.resume_run import ResumeRun, resume_run
from storage.commits.update_session import UpdateSession, update_session
from storage.commits.withdraw_input import WithdrawInput, withdraw_input
from storage.incoming import AcceptedInput
from storage.store import Store
from tests.integration.storage.world import World, count, end_run, execute, outcomes, rows, say


async def _run(store: Store, run_id: UUID) -> dict[str, object]:
    return (await rows(store, "SELECT * FROM runs WHERE run_id = :run_id", run_id=run_id))[0]


async def opened(store: Store, world: World) -> AcceptedInput:
    """The question of a Run that a worker has opened."""
    question = await say(store, world, "q")
    await open_run(store, OpenRun(run_id=question.run_id, execution_no=1))
    return question


async def test_a_stop_is_recorded_with_the_intent_to_cancel(store: Store, world: World) -> None:
    """S8, W7: sent twice and at once it is one stop and one intent."""
    question = await opened(store, world)
    stops = await asyncio.gather(*(request_stop(store, RequestStop(question.run_id, world.owner_id)) for _ in range(5)))
    assert len({stop.outbox_id for stop in stops}) == 1
    assert (await _run(store, question.run_id))["stop_requested_at"] is not None
    assert await count(store, "outbox", "kind = 'cancel'") == 1


async def test_the_first_stop_keeps_its_time(store: Store, world: World) -> None:
    """S8."""
    question = await opened(store, world)
    await request_stop(store, RequestStop(question.run_id, world.owner_id))
    first = (await _run(store, question.run_id))["stop_requested_at"]
    await request_stop(store, RequestStop(question.run_id, world.owner_id))
    assert (await _run(store, question.run_id))["stop_requested_at"] == first


async def test_a_run_that_nobody_has_opened_ends_with_the_stop(store: Store, world: World) -> None:
    """S8, S6: there is nothing to wait for; what had come to it is carried, and whoever opens it comes too late."""
    question, supplement = await say(store, world, "q"), await say(store, world, "s")
    stop = await request_stop(store, RequestStop(question.run_id, world.owner_id))
    run = await _run(store, question.run_id)
    assert (stop.status, run["status"], run["end_reason"], run["error"]) == ("stopped", "stopped", "user_stop", None)
    assert await count(store, "input_deliveries", "state = 'carried' AND input_id = :id", id=supplement.input_id) == 1
    with pytest.raises(SupersededError):
        await open_run(store, OpenRun(run_id=question.run_id, execution_no=1))
    following = await say(store, world, "next", mode="question")
    assert following.run_id != question.run_id


async def test_stopping_an_ended_run_leaves_it_as_it_was(store: Store, world: World) -> None:
    """S2: an end stands."""
    question = await say(store, world, "q")
    await end_run(store, question.run_id, "succeeded")
    stop = await request_stop(store, RequestStop(question.run_id, world.owner_id))
    assert (stop.status, stop.outbox_id) == ("succeeded", None)
    assert (await _run(store, question.run_id))["stop_requested_at"] is None


async def test_a_resume_sent_again_with_its_key_gets_the_first_answer(store: Store, world: World) -> None:
    """SPEC S5, S9: though the Run is active by then; another body under that key is refused."""
    run_id = (await say(store, world, "q")).run_id
    await end_run(store, run_id, "failed")
    wanted = ResumeRun(run_id, world.owner_id, "Go on.", "key-1")
    first = await resume_run(store, wanted)
    assert await resume_run(store, wanted) == first
    with pytest.raises(ClientKeyReusedError):
        await resume_run(store, ResumeRun(run_id, world.owner_id, "Something else.", "key-1"))
    with pytest.raises(RunActiveError):
        await resume_run(store, ResumeRun(run_id, world.owner_id, "Go on.", "key-2"))


@pytest.mark.parametrize("status", ["failed", "stopped"])
async def test_a_failed_or_stopped_run_goes_on_as_the_next_execution(store: Store, world: World, status: str) -> None:
    """S9, W3a: same Run, release and loops; what spoke of its end is gone."""
    question = await say(store, world, "q")
    await request_stop(store, RequestStop(question.run_id, world.owner_id))
    await execute(store, "UPDATE runs SET loops = 3, active_ms = 900")
    await end_run(store, question.run_id, status)
    resumed = await resume_run(store, ResumeRun(question.run_id, world.owner_id))
    run = await _run(store, question.run_id)
    assert (resumed.execution_no, run["execution_no"], run["status"]) == (2, 2, "queued")
    assert (run["loops"], run["active_ms"], run["release_id"]) == (3, 900, world.release_id)
    assert [run[name] for name in ("ended_at", "end_reason", "error", "stop_requested_at")] == [None] * 4
    (intent,) = await rows(store, "SELECT body FROM outbox WHERE outbox_id = :id", id=resumed.outbox_id)
    assert intent["body"]["execution_no"] == 2


async def test_a_resume_takes_its_supplement_and_the_carried_inputs_along(store: Store, world: World) -> None:
    """S6, S9: each once, in received order."""
    question = await say(store, world, "q")
    late = await say(store, world, "late")
    await end_run(store, question.run_id)
    resumed = await resume_run(store, ResumeRun(question.run_id, world.owner_id, text="and this"))
    assert resumed.input is not None
    assert (resumed.input.kind, resumed.input.input_seq) == ("supplement", 3)
    bound = await rows(
        store,
        """SELECT input_id FROM input_deliveries
           WHERE run_id = :run AND state = 'pending' AND input_seq > 1 ORDER BY input_seq""",
        run=question.run_id,
    )
    assert [row["input_id"] for row in bound] == [late.input_id, resumed.input.input_id]
    events = await rows(store, "SELECT type FROM run_events ORDER BY run_seq")
    assert [event["type"] for event in events] == ["input_accepted", "input_accepted", "run_ended", "input_accepted"]


@pytest.mark.parametrize("status", ["succeeded", "timed_out", "exhausted"])
async def test_another_end_cannot_be_resumed(store: Store, world: World, status: str) -> None:
    """S9: refused, and its text is not stored."""
    question = await say(store, world, "q")
    await end_run(store, question.run_id, status)
    with pytest.raises(RunNotResumableError):
        await resume_run(store, ResumeRun(question.run_id, world.owner_id, text="go on"))
    assert await count(store, "user_inputs") == 1


async def test_a_run_is_not_resumed_beside_another_active_one(store: Store, world: World) -> None:
    """S1, S9."""
    first = await say(store, world, "q1")
    await end_run(store, first.run_id)
    second = await say(store, world, "q2")
    with pytest.raises(RunActiveError) as refused:
        await resume_run(store, ResumeRun(first.run_id, world.owner_id))
    assert refused.value.numbers["run_id"] == str(second.run_id)


async def test_resumes_and_questions_at_once_leave_one_active_run(store: Store, world: World) -> None:
    """S1: twenty writers, one winner."""
    first = await say(store, world, "q1")
    await end_run(store, first.run_id)
    resumes = [resume_run(store, ResumeRun(first.run_id, world.owner_id)) for _ in range(10)]
    questions = [say(store, world, f"q{n}", mode="question") for n in range(10)]
    done, refused = await outcomes([*resumes, *questions])
    assert len(done) == 1
    assert {type(error) for error in refused} == {RunActiveError}
    assert await count(store, "runs", "status = 'queued'") == 1


async def test_a_run_of_an_archived_session_is_not_resumed(store: Store, world: World) -> None:
    """M3."""
    question = await say(store, world, "q")
    await end_run(store, question.run_id)
    await update_session(store, UpdateSession(world.session_id, world.owner_id, archived=True))
    with pytest.raises(SessionArchivedError):
        await resume_run(store, ResumeRun(question.run_id, world.owner_id))


async def test_a_pending_supplement_can_be_withdrawn_and_stays_on_record(store: Store, world: World) -> None:
    """S12: a repeat finds it withdrawn."""
    await say(store, world, "q")
    supplement = await say(store, world, "s")
    for _ in range(2):
        withdrawn = await withdraw_input(store, WithdrawInput(supplement.input_id, world.owner_id))
        assert (withdrawn.state, withdrawn.delivery_id) == ("withdrawn", supplement.delivery_id)
    assert await count(store, "user_inputs") == 2


async def test_a_carried_input_can_be_withdrawn_and_starts_nothing_later(store: Store, world: World) -> None:
    """S6, S12."""
    first = await say(store, world, "q1")
    supplement = await say(store, world, "s")
    await end_run(store, first.run_id)
    withdrawn = await withdraw_input(store, WithdrawInput(supplement.input_id, world.owner_id))
    assert withdrawn.delivery_id != supplement.delivery_id
    second = await say(store, world, "q2")
    assert await count(store, "input_deliveries", "run_id = :run", run=second.run_id) == 1


@pytest.mark.parametrize("state", ["claimed", "delivered"])
async def test_an_input_that_a_request_contains_cannot_be_withdrawn(store: Store, world: World, state: str) -> None:
    """S12."""
    await say(store, world, "q")
    supplement = await say(store, world, "s")
    await execute(store, "UPDATE input_deliveries SET state = :state", state=state)
    with pytest.raises(InputNotPendingError):
        await withdraw_input(store, WithdrawInput(supplement.input_id, world.owner_id))


async def test_a_runs_question_cannot_be_withdrawn(store: Store, world: World) -> None:
    """S12: the Run would have nothing to answer."""
    question = await say(store, world, "q")
    with pytest.raises(InputNotPendingError):
        await withdraw_input(store, WithdrawInput(question.input_id, world.owner_id))


async def test_another_person_can_neither_stop_nor_resume_nor_withdraw(store: Store, world: World) -> None:
    """Y1, E: as if there were nothing."""
    question = await say(store, world, "q")
    supplement = await say(store, world, "s")
    with pytest.raises(NotFoundError):
        await request_stop(store, RequestStop(question.run_id, world.stranger_id))
    with pytest.raises(NotFoundError):
        await resume_run(store, ResumeRun(question.run_id, world.stranger_id))
    with pytest.raises(NotFoundError):
        await withdraw_input(store, WithdrawInput(supplement.input_id, world.stranger_id))

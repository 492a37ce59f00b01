"""Stopping a Run and letting it go on (SPEC S8, S9, S11, W2, W3a, R5, R6)."""

import asyncio
import time
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import text as sql
from temporalio.client import WorkflowExecutionStatus

from storage.commits.request_stop import RequestStop, request_stop
from tests.acceptance.test_ends import closed_as
from tests.acceptance.test_history import texts
from tests.acceptance.test_tool_batches import results, settled
from tests.support import replies
from tests.support.faults import Pauses
from tests.support.model_server import ModelServer, Scripted
from tests.support.run_tools import traced
from tests.support.run_world import Json, RunWorld, Servers, python_tool, running_world
from workflows.lost_runs import TemporalWatch

HELD = replies.text("never").but(hold="never")


async def until_traced(trace: Path) -> None:
    """Wait until a tool has left a line."""
    async with asyncio.timeout(20):
        while not traced(trace):
            await asyncio.sleep(0.01)


async def until_started(world: RunWorld, run_id: str) -> None:
    """Wait until Temporal has the Run's workflow."""
    async with asyncio.timeout(20):
        while await TemporalWatch(world.temporal).standing(UUID(run_id), 1) == "missing":
            await asyncio.sleep(0.01)


async def owner_of(world: RunWorld, session: str) -> UUID:
    query = sql("SELECT owner_id FROM sessions WHERE session_id = :session_id")
    async with world.store.reading() as connection:
        found: UUID = (await connection.execute(query, {"session_id": session})).scalar_one()
        return found


async def stopped(world: RunWorld, run_id: str) -> Json:
    """Stop the Run by the API; how it ended."""
    await world.stop(run_id)
    return await world.ended(run_id, within_s=5)


# --- stop ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("effect", ["read_only", "side_effect"])
@pytest.mark.parametrize("by", ["api", "temporal"])
async def test_a_tool_that_ignores_the_stop_delays_it_for_less_than_five_seconds(
    world: RunWorld, tmp_path: Path, effect: str, by: str
) -> None:
    """SPEC S8, W2, W3a: stopped within 5 s and Canceled, whoever cancels; a Run of the same session can follow."""
    trace = tmp_path / "trace"
    await world.publish(tools=[python_tool("ignore_the_stop", effect)])
    world.model.add(replies.calls(("ignore_the_stop", {"seconds": 7, "trace": str(trace)})), "next")
    session = await world.open_session()
    run_id = await world.start("q", session)
    await until_traced(trace)
    began = time.monotonic()
    await (world.stop(run_id) if by == "api" else world.workflow(run_id).cancel())
    run = await world.ended(run_id, within_s=5)
    assert (run["status"], run["end_reason"], run["answer"], run["error"]) == ("stopped", "user_stop", None, None)
    assert time.monotonic() - began < 5
    assert await closed_as(world, run_id) == WorkflowExecutionStatus.CANCELED
    assert (await world.ask("q2", session))["status"] == "succeeded"
    assert traced(trace) == ["began"], "the tool is still at it, and nobody waits"


async def test_nothing_new_starts_once_a_stop_is_recorded(world: RunWorld, tmp_path: Path) -> None:
    """SPEC S8: of three calls with one place, the two that have not begun never begin."""
    trace = tmp_path / "trace"
    await world.publish(tools=[python_tool("wait_for", "side_effect")], limits={"max_parallel_tools": 1})
    wait = ("wait_for", {"path": str(tmp_path / "never"), "trace": str(trace)})
    world.model.add(replies.calls(wait, wait, wait))
    run_id = await world.start()
    await until_traced(trace)
    assert (await stopped(world, run_id))["status"] == "stopped"
    (tmp_path / "never").touch()
    assert traced(trace) == ["waiting"]
    assert len(world.model.requests) == 1
    states = [one["state"] for one in await world.operations(run_id) if one["purpose"] == "tool"]
    assert states == ["unknown", "cancelled", "cancelled"]


async def test_no_harmless_call_that_waits_for_its_place_begins_after_a_stop(servers: Servers, tmp_path: Path) -> None:
    """SPEC S8: the first of three has its result, the stop is recorded, the others never begin."""
    trace = tmp_path / "trace"
    look = [("look", {"key": key, "trace": str(trace)}) for key in ("a", "b", "c")]
    async with ModelServer([replies.calls(*look)], strict="plain") as model, running_world(servers, model) as world:
        await world.publish(tools=["look"], limits={"max_parallel_tools": 1})
        session = await world.open_session()

        async def overtake() -> None:
            [run] = await world.items(f"/sessions/{session}/runs")
            await world.stop(run["run_id"])

        async with world.worker(Pauses("record_tool_result.after_commit", overtake)):
            run = await world.ask("q", session)
        states = [one["state"] for one in await world.operations(run["run_id"]) if one["purpose"] == "tool"]
    assert (run["status"], traced(trace), states) == ("stopped", ["a"], ["accepted", "cancelled", "cancelled"])


async def test_a_run_stopped_before_any_worker_saw_it_ends_stopped(world: RunWorld) -> None:
    """SPEC S8, W2: stop right behind the question; whichever is first, the end is an end."""
    world.model.add("quick", "quick")
    run_id = await world.start()
    run = await stopped(world, run_id)
    assert run["status"] in ("stopped", "succeeded")
    assert (run["status"] == "succeeded") == (run["answer"] is not None)


@pytest.mark.parametrize("told", [True, False], ids=["cancelled", "cancelled_later"])
async def test_without_a_worker_a_stop_frees_the_session_at_once(servers: Servers, told: bool) -> None:
    """SPEC S8, W3a: the next question is taken; whichever worker comes closes the old workflow as Canceled."""
    async with ModelServer(["fine", "resumed"], strict="plain") as model, running_world(servers, model) as world:
        session = await world.open_session()
        run_id = await world.start("q1", session)
        await until_started(world, run_id)
        if told:
            assert (await world.stop(run_id))["status"] == "stopped"
        else:
            await request_stop(world.store, RequestStop(UUID(run_id), await owner_of(world, session)))
        second = await world.start("q2", session)
        async with world.worker():
            assert (await world.ended(second))["answer"] == "fine"
            assert await closed_as(world, run_id) == WorkflowExecutionStatus.CANCELED
            await world.resume(run_id)
            assert (await world.ended(run_id))["answer"] == "resumed"
        assert (await world.get(f"/sessions/{session}/verify"))["breaks"] == []


async def test_inputs_that_a_stopped_run_did_not_get_are_carried(world: RunWorld) -> None:
    """SPEC S8, S6: the supplement that no answer followed goes to the next question, linked."""
    session = await world.open_session()
    world.model.add(HELD, "fine")
    run_id = await world.start("q1", session)
    await world.model.wait_for_requests(1)
    await world.send("MARK-S", session, mode="supplement")
    await stopped(world, run_id)
    [left] = [one for one in await world.inputs(run_id) if one["kind"] == "supplement"]
    assert left["state"] == "carried"
    second = await world.ask("q2", session)
    assert texts(world.sent[1])[-2:] == ["MARK-S", "q2"]
    [taken] = [one for one in await world.inputs(second["run_id"]) if one["kind"] == "supplement"]
    assert taken["previous_delivery_id"] == left["delivery_id"]


# --- resume ----------------------------------------------------------------------------------------------------------


async def test_a_resume_is_the_next_execution_under_the_same_workflow_id(world: RunWorld) -> None:
    """SPEC W3a, S9: one Run, two executions: the first Canceled, the second Completed."""
    world.model.add(HELD, "resumed")
    run_id = await world.start()
    await world.model.wait_for_requests(1)
    before = await stopped(world, run_id)
    await world.resume(run_id)
    run = await world.ended(run_id)
    assert (run["status"], run["answer"], run["execution_no"]) == ("succeeded", "resumed", 2)
    same = ("run_id", "run_no", "release_id", "workflow_id", "session_id")
    assert {name: run[name] for name in same} == {name: before[name] for name in same}
    await closed_as(world, run_id)
    executions = [one async for one in world.temporal.list_workflows(f"WorkflowId = 'run/{run_id}'")]
    assert {one.status for one in executions} <= {WorkflowExecutionStatus.CANCELED, WorkflowExecutionStatus.COMPLETED}
    assert [event["type"] for event in await world.events(run_id)].count("run_started") == 2


async def test_a_resume_right_behind_a_stop_starts_as_soon_as_the_old_execution_has_closed(world: RunWorld) -> None:
    """SPEC W3a: ten times stop and resume without a pause between them; none is lost, none starts twice."""
    world.model.add(*[HELD] * 5, "at last")
    run_id = await world.start()
    for turn in range(1, 6):
        await world.model.wait_for_requests(turn)
        await stopped(world, run_id)
        await world.resume(run_id)
    run = await world.ended(run_id)
    assert (run["status"], run["answer"], run["execution_no"]) == ("succeeded", "at last", 6)


async def test_unfinished_tools_are_settled_first_and_the_supplement_follows(world: RunWorld, tmp_path: Path) -> None:
    """SPEC S9, A4, R3: the harmless call that was cut off is made again, the finished one is not."""
    trace, gate = tmp_path / "trace", tmp_path / "gate"
    await world.publish(tools=["look", python_tool("wait_for", "idempotent")])
    waits = ("wait_for", {"path": str(gate), "trace": str(tmp_path / "waits")}, "c2")
    world.model.add(replies.calls(("look", {"key": "a", "trace": str(trace)}, "c1"), waits), "done")
    session = await world.open_session()
    run_id = await world.start("q", session)
    await settled(world, run_id, "look")
    await stopped(world, run_id)
    gate.touch()
    await world.resume(run_id, "and in metric units")
    run = await world.ended(run_id)
    assert (run["status"], run["answer"], run["loops"]) == ("succeeded", "done", 2)
    assert results(world.sent[1]) == ["found a", "it is there"]
    assert [message["role"] for message in world.sent[1]][-4:] == ["assistant", "tool", "tool", "user"]
    assert world.sent[1][-1]["content"] == "and in metric units"
    assert traced(trace) == ["a"]


async def test_an_effect_that_a_stop_cut_off_is_unknown_and_not_repeated_by_a_resume(
    world: RunWorld, tmp_path: Path
) -> None:
    """SPEC S9, T4: it may have happened; the model is told so, and the tool is not called again."""
    trace = tmp_path / "trace"
    await world.publish(tools=[python_tool("wait_for", "side_effect")])
    world.model.add(replies.calls(("wait_for", {"path": str(tmp_path / "never"), "trace": str(trace)})), "careful")
    run_id = await world.start()
    await until_traced(trace)
    await stopped(world, run_id)
    await world.resume(run_id)
    assert (await world.ended(run_id))["answer"] == "careful"
    assert results(world.sent[1])[0].startswith("Unknown")
    assert traced(trace) == ["waiting"]


async def test_a_call_that_never_began_is_made_by_the_resume(world: RunWorld, tmp_path: Path) -> None:
    """SPEC S9: 'not executed' is no end for a call whose Run goes on."""
    trace, gate = tmp_path / "trace", tmp_path / "gate"
    tools = [python_tool("wait_for", "read_only"), python_tool("book", "side_effect")]
    await world.publish(tools=tools, limits={"max_parallel_tools": 1})
    waits = ("wait_for", {"path": str(gate), "trace": str(tmp_path / "waits")})
    world.model.add(replies.calls(waits, ("book", {"key": "b", "trace": str(trace)})), "done")
    run_id = await world.start()
    await until_traced(tmp_path / "waits")
    await stopped(world, run_id)
    assert traced(trace) == []
    gate.touch()
    await world.resume(run_id)
    assert (await world.ended(run_id))["status"] == "succeeded"
    assert results(world.sent[1]) == ["it is there", "booked b"]
    assert traced(trace) == ["b"]


async def test_only_the_loops_that_are_left_are_left(world: RunWorld) -> None:
    """SPEC S9, R6: a loop is used once its call is finished; the one that the stop cut off is still there."""
    await world.publish(tools=["now"], limits={"max_loops": 3})
    more = replies.calls(("now", {}))
    world.model.add(more, more, HELD, more)
    run_id = await world.start()
    await world.model.wait_for_requests(3)
    assert (await stopped(world, run_id))["status"] == "stopped"
    await world.resume(run_id)
    run = await world.ended(run_id)
    assert (run["status"], run["end_reason"], run["loops"]) == ("exhausted", "loops", 3)
    assert len(world.model.requests) == 4


async def test_a_run_that_failed_in_its_last_loop_can_go_on(world: RunWorld) -> None:
    """SPEC S9: the call never came to an end, so the loop is still there; and the supplement is in its request."""
    await world.publish(limits={"max_loops": 1})
    world.model.add(replies.error(401, "no"), "thank you")
    run = await world.ask("q")
    assert (run["status"], run["end_reason"]) == ("failed", "model_auth")
    await world.resume(run["run_id"], "the key is right now")
    resumed = await world.ended(run["run_id"])
    assert (resumed["status"], resumed["answer"], resumed["loops"]) == ("succeeded", "thank you", 1)
    assert texts(world.sent[1])[-2:] == ["q", "the key is right now"]


async def test_the_deadline_counts_active_time_only(world: RunWorld) -> None:
    """SPEC S9, R6: what was used before the stop is gone, what passed between stop and resume is not."""
    await world.publish(limits={"deadline_s": 3})
    world.model.add(HELD, HELD)
    run_id = await world.start()
    await world.model.wait_for_requests(1)
    await asyncio.sleep(1.2)
    await stopped(world, run_id)
    await asyncio.sleep(2)
    await world.resume(run_id)
    run = await world.ended(run_id)
    assert (run["status"], run["error"]["code"]) == ("timed_out", "DEADLINE_EXCEEDED")
    events = (await world.workflow(run_id).fetch_history()).events
    deadline = next(one for one in events if one.HasField("timer_started_event_attributes"))
    assert 0 < deadline.timer_started_event_attributes.start_to_fire_timeout.ToTimedelta().total_seconds() <= 1.8


@pytest.mark.parametrize("text", [None, "and then?"])
async def test_an_answer_that_a_stop_overtook_is_not_asked_for_again(servers: Servers, text: str | None) -> None:
    """SPEC R2, S9: a resume ends with the stored answer; with a supplement there is one more loop for it."""
    async with ModelServer(["the answer", "more"], strict="plain") as model, running_world(servers, model) as world:
        session = await world.open_session()

        async def overtake() -> None:
            [run] = await world.items(f"/sessions/{session}/runs")
            assert (await stopped(world, run["run_id"]))["status"] == "stopped"

        async with world.worker(Pauses("accept_model.after_commit", overtake)):
            run = await world.ask("q", session)
            await world.resume(run["run_id"], text)
            resumed = await world.ended(run["run_id"])
    assert (run["status"], resumed["status"], resumed["end_reason"]) == ("stopped", "succeeded", "answered")
    assert resumed["answer"] == ("more" if text else "the answer")
    assert len(model.requests) == (2 if text else 1)
    if text:
        assert texts(world.sent[1])[-2:] == ["the answer", text]


@pytest.mark.parametrize(
    ("end", "limits"),
    [("succeeded", {}), ("timed_out", {"deadline_s": 1}), ("exhausted", {"max_loops": 1})],
)
async def test_a_run_with_another_end_is_not_resumable(world: RunWorld, end: str, limits: Json) -> None:
    """SPEC S9: 409 with the reason, and the text that came along is not stored."""
    await world.publish(tools=["now"], limits=limits)
    script: dict[str, Scripted] = {"succeeded": "yes", "timed_out": HELD, "exhausted": replies.calls(("now", {}))}
    world.model.add(script[end])
    run = await world.ask()
    assert run["status"] == end
    refused = await world.post(f"/runs/{run['run_id']}/resume", {"text": "go on"}, status=409)
    assert refused["code"] == "RUN_NOT_RESUMABLE"
    assert len(await world.items(f"/sessions/{run['session_id']}/inputs")) == 1


async def test_a_run_is_not_resumed_beside_an_active_one(world: RunWorld) -> None:
    """SPEC S1, S9: neither beside another one nor twice."""
    session = await world.open_session()
    world.model.add(HELD, HELD)
    first = await world.start("q1", session)
    await world.model.wait_for_requests(1)
    assert (await world.post(f"/runs/{first}/resume", None, status=409))["code"] == "RUN_ACTIVE"
    await stopped(world, first)
    second = await world.start("q2", session)
    refused = await world.post(f"/runs/{first}/resume", {"text": "no"}, status=409)
    assert (refused["code"], refused["run_id"]) == ("RUN_ACTIVE", second)
    await stopped(world, second)


async def test_a_resumed_run_does_not_see_the_runs_that_came_later(world: RunWorld) -> None:
    """SPEC S9, S11: A, B, C, then A goes on: nothing of B and C in it; D sees all, each text once, in a legal order."""
    await world.publish(context={"recent_runs": 3})
    session = await world.open_session()
    world.model.add(HELD, "answer b", "answer c", "answer a", "answer d")
    first = await world.start("question a", session)
    await world.model.wait_for_requests(1)
    await stopped(world, first)
    await world.ask("question b", session)
    await world.ask("question c", session)
    await world.resume(first, "more of a")
    resumed = await world.ended(first)
    assert (resumed["answer"], resumed["run_no"]) == ("answer a", 1)
    assert texts(world.sent[3])[1:] == ["question a", "more of a"]
    await world.ask("question d", session)
    facts = [text for text in texts(world.sent[4])[1:] if not text.startswith("[AgentLoom]")]
    of_a = ["question a", "more of a", "answer a"]
    assert facts == [*of_a, "question b", "answer b", "question c", "answer c", "question d"]

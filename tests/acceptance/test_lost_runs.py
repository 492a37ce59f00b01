"""Runs whose workflow disappears, or is set back, from outside (SPEC S13, R5, R2; case C108)."""

import asyncio
from pathlib import Path
from uuid import UUID

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest, ResetWorkflowExecutionRequest

from storage.reconciling import Reconciler, silent_runs
from tests.acceptance.test_history import texts
from tests.support import replies
from tests.support.model_server import ModelServer
from tests.support.run_tools import traced
from tests.support.run_world import RunWorld, Servers, python_tool, running_world
from workflows.lost_runs import TemporalWatch


async def waiting_for_the_model(world: RunWorld, session: str) -> str:
    """A Run whose model call is under way and will not end by itself."""
    world.model.add(replies.text("too late").but(hold="late"))
    run_id = await world.start("q1", session)
    await world.model.wait_for_requests(1)
    return run_id


async def test_a_terminated_workflow_frees_its_session(world: RunWorld) -> None:
    """Case C108, SPEC S13, S6: ended with the truth within 30 s; what it did not get goes to the next question."""
    session = await world.open_session()
    run_id = await waiting_for_the_model(world, session)
    sent = await world.send("MARK-S", session, mode="supplement")
    await world.workflow(run_id).terminate("somebody in the Temporal UI")
    lost = await world.ended(run_id)
    assert (lost["status"], lost["end_reason"], lost["answer"]) == ("failed", "lost", None)
    assert lost["error"]["code"] == "RUN_LOST"
    assert "terminated outside" in lost["error"]["message"]
    world.model.add("fine")
    second = await world.ask("q2", session)
    assert (second["status"], second["workflow_id"] != lost["workflow_id"]) == ("succeeded", True)
    assert texts(world.sent[-1])[-2:] == ["MARK-S", "q2"]
    [taken] = [one for one in await world.inputs(second["run_id"]) if one["kind"] == "supplement"]
    assert (taken["input_id"], taken["state"]) == (sent["input_id"], "delivered")


async def test_a_lost_run_can_be_resumed_and_its_late_result_changes_nothing(world: RunWorld) -> None:
    """SPEC R5, S9: the call that was under way is answered in vain; the Run goes on as its next execution."""
    session = await world.open_session()
    run_id = await waiting_for_the_model(world, session)
    folder = world.servers.folder / "work" / run_id
    folder.mkdir(parents=True)
    await world.workflow(run_id).terminate("gone")
    assert (await world.ended(run_id))["end_reason"] == "lost"
    while folder.exists():  # SPEC T10
        await asyncio.sleep(0.01)
    before = await world.messages(session)
    world.model.release("late")
    world.model.add("resumed")
    await world.resume(run_id)
    run = await world.ended(run_id)
    assert (run["status"], run["answer"], run["execution_no"], run["error"]) == ("succeeded", "resumed", 2, None)
    contents = [message["message"]["content"] for message in await world.messages(session)]
    assert contents == [message["message"]["content"] for message in before] + ["resumed"]


async def test_a_deleted_workflow_frees_its_session_too(world: RunWorld) -> None:
    """SPEC S13: Temporal knows nothing of it any more, and that is what is said."""
    session = await world.open_session()
    run_id = await waiting_for_the_model(world, session)
    await world.temporal.workflow_service.delete_workflow_execution(
        DeleteWorkflowExecutionRequest(
            namespace=world.temporal.namespace, workflow_execution=WorkflowExecution(workflow_id=f"run/{run_id}")
        )
    )
    lost = await world.ended(run_id)
    assert (lost["status"], lost["end_reason"], lost["error"]["code"]) == ("failed", "lost", "RUN_LOST")


@pytest.mark.parametrize("how", ["terminated", "cancelled"])
async def test_a_workflow_that_closed_while_no_worker_was_there_is_noticed_by_the_next_one(
    servers: Servers, how: str
) -> None:
    """SPEC S13, W2: whoever comes next finds the Run and says how it ended; a cancellation is a stop."""
    async with ModelServer(strict="plain") as model, running_world(servers, model) as world:
        async with world.worker():
            run_id = await waiting_for_the_model(world, await world.open_session())
        handle = world.workflow(run_id)
        await (handle.terminate("gone") if how == "terminated" else handle.cancel())
        async with world.worker():
            run = await world.ended(run_id)
    assert (run["status"], run["end_reason"]) == {
        "terminated": ("failed", "lost"),
        "cancelled": ("stopped", "user_stop"),
    }[how]


async def test_a_run_that_is_set_back_in_the_temporal_ui_repeats_nothing_that_is_finished(
    world: RunWorld, tmp_path: Path
) -> None:
    """SPEC R2, R3, W5: *Reset* to the first task; what is finished is found, the call that was cut off is made anew."""
    trace = tmp_path / "trace"
    await world.publish(tools=[python_tool("book", "side_effect")])
    held = replies.text("never").but(hold="never")
    world.model.add(replies.calls(("book", {"key": "a", "trace": str(trace)})), held, "done")
    run_id = await world.start()
    await world.model.wait_for_requests(2)
    handle = world.workflow(run_id)
    tasks = [
        event.event_id
        for event in (await handle.fetch_history()).events
        if event.HasField("workflow_task_completed_event_attributes")
    ]
    execution = WorkflowExecution(workflow_id=handle.id, run_id=(await handle.describe()).run_id)
    await world.temporal.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=world.temporal.namespace,
            workflow_execution=execution,
            workflow_task_finish_event_id=tasks[0],
            reason="somebody in the Temporal UI",
            request_id="once",
        )
    )
    run = await world.ended(run_id)
    assert (run["status"], run["answer"], run["execution_no"], traced(trace)) == ("succeeded", "done", 1, ["a"])
    assert len(world.model.requests) == 3
    assert world.model.requests[1].body == world.model.requests[2].body
    assert (await world.get(f"/sessions/{run['session_id']}/verify"))["breaks"] == []


async def test_runs_that_are_only_silent_go_on(world: RunWorld) -> None:
    """SPEC S13: a model that takes its time is no lost workflow."""
    world.model.add(replies.text("at last").but(hold="answer"))
    run_id = await world.start()
    await world.model.wait_for_requests(1)
    assert [run.run_id for run in await silent_runs(world.store, quiet_s=0)] == [UUID(run_id)]
    assert await Reconciler(world.store, TemporalWatch(world.temporal), quiet_s=0).round() == 0
    assert (await world.get(f"/runs/{run_id}"))["status"] == "running"
    world.model.release("answer")
    assert (await world.ended(run_id))["answer"] == "at last"

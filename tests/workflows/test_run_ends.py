"""How an execution closes, for each way a Run can end (SPEC W2, W3a, S2, S8)."""

import asyncio
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus
from temporalio.exceptions import ApplicationError, ChildWorkflowError, TimeoutType
from temporalio.exceptions import TimeoutError as TimedOut

from tests.workflows.conftest import Stage, closing
from tests.workflows.fakes import Held, ScriptedRun, tools
from workflows.endings import why_ended

COMPLETED, FAILED, CANCELED = (
    WorkflowExecutionStatus.COMPLETED,
    WorkflowExecutionStatus.FAILED,
    WorkflowExecutionStatus.CANCELED,
)


async def test_an_answer_ends_the_run_in_four_steps(stage: Stage) -> None:
    """DESIGN 3: open, prepare, call, finish; nothing twice although every task replays."""
    run = ScriptedRun()
    async with stage.playing(run):
        assert await closing(await stage.start()) == (COMPLETED, None)
    assert run.asked == ["open_run", "prepare", "call_model", "finish_run"]
    assert [end["end_reason"] for end in run.finished] == ["answered"]


async def test_each_batch_leads_to_one_more_loop_that_carries_it(stage: Stage) -> None:
    """SPEC T2: the next preparation is told which batch it delivers."""
    run = ScriptedRun([tools("one", "two"), tools("three")])
    async with stage.playing(run):
        assert await closing(await stage.start()) == (COMPLETED, None)
    assert [request["loop"] for request in run.prepared] == [1, 2, 3]
    batches = [request["batch_id"] for request in run.prepared]
    assert batches == [None, run.prepared[0]["operation_id"], run.prepared[1]["operation_id"]]
    assert run.asked.count("call_tool") == 3


async def test_a_cancellation_during_a_model_call_is_a_stop(stage: Stage) -> None:
    """SPEC S8, W2: the call is cancelled, the Run finished as stopped, the workflow Canceled."""
    held = Held()
    run = ScriptedRun([held])
    async with stage.playing(run):
        handle = await stage.start()
        await held.reached.wait()
        await handle.cancel()
        assert await closing(handle) == (CANCELED, None)
        async with asyncio.timeout(15):
            while not held.cancelled:
                await asyncio.sleep(0.01)
    assert [end["status"] for end in run.finished] == ["stopped"]


async def test_a_cancellation_before_anything_began_is_a_stop(stage: Stage) -> None:
    """SPEC S8: no model is called; the Run still gets its end."""
    run = ScriptedRun()
    handle = await stage.start()
    await handle.cancel()
    async with stage.playing(run):
        assert await closing(handle) == (CANCELED, None)
    assert "call_model" not in run.asked
    assert [end["status"] for end in run.finished] == ["stopped"]


async def test_a_cancellation_during_a_batch_is_a_stop(stage: Stage) -> None:
    """SPEC S8: no further model call starts."""
    waiting = Held({"kind": "settled"})

    async def tool(call: dict[str, Any]) -> dict[str, Any]:
        return await waiting()

    run = ScriptedRun([tools("slow", "slow")], tool=tool)
    async with stage.playing(run):
        handle = await stage.start()
        await waiting.reached.wait()
        await handle.cancel()
        assert await closing(handle) == (CANCELED, None)
    assert run.asked.count("call_model") == 1


async def test_an_activity_that_saw_the_stop_first_waits_for_the_cancellation(stage: Stage) -> None:
    """SPEC S8: the database knew of the stop before the cancellation came; nothing goes on meanwhile."""
    run = ScriptedRun([{"kind": "stopping"}])
    async with stage.playing(run):
        handle = await stage.start()
        async with asyncio.timeout(10):
            while "call_model" not in run.asked:
                await asyncio.sleep(0.01)
        await handle.cancel()
        assert await closing(handle) == (CANCELED, None)
    assert run.asked.count("call_model") == 1


async def test_the_deadline_ends_a_run_in_mid_call(stage: Stage) -> None:
    """SPEC S2, W3a: timed_out, Failed with the code as type."""
    held = Held()
    run = ScriptedRun([held], terms={"deadline_s": 1})
    async with stage.playing(run):
        assert await closing(await stage.start()) == (FAILED, "DEADLINE_EXCEEDED")
    assert [end["status"] for end in run.finished] == ["timed_out"]


async def test_time_used_by_earlier_executions_counts(stage: Stage) -> None:
    """SPEC R6, S9: only what is left of the deadline."""
    run = ScriptedRun([Held()], terms={"deadline_s": 3600}, opened={"active_ms": 3_599_500})
    async with stage.playing(run):
        assert await closing(await stage.start()) == (FAILED, "DEADLINE_EXCEEDED")


@pytest.mark.parametrize(
    ("verdict", "status", "kind"),
    [
        ({"kind": "failed", "end_reason": "model_auth", "code": "MODEL_FAILED"}, "failed", "MODEL_FAILED"),
        ({"kind": "unusable", "end_reason": "output_cut"}, "failed", "MODEL_FAILED"),
        (tools("t") | {"over_budget": True}, "exhausted", "BUDGET_EXHAUSTED"),
    ],
)
async def test_a_call_without_an_answer_closes_with_its_code(
    stage: Stage, verdict: dict[str, Any], status: str, kind: str
) -> None:
    """SPEC W3a: the error code is the failure's type."""
    run = ScriptedRun([verdict])
    async with stage.playing(run):
        assert await closing(await stage.start()) == (FAILED, kind)
    assert [end["status"] for end in run.finished] == [status]


async def test_an_execution_that_finds_its_budget_used_up_calls_nothing(stage: Stage) -> None:
    """SPEC L5, S9: what earlier executions used counts, and calls that were cut off count too."""
    run = ScriptedRun([tools("t")], terms={"spent": True})
    async with stage.playing(run):
        assert await closing(await stage.start()) == (FAILED, "BUDGET_EXHAUSTED")
    assert run.asked == ["open_run", "finish_run"]


async def test_an_answer_stands_although_the_budget_is_used_up(stage: Stage) -> None:
    """SPEC S7, L5: only the end was missing; nothing more is served."""
    run = ScriptedRun(terms={"spent": True}, opened={"answered": True})
    async with stage.playing(run):
        assert await closing(await stage.start()) == (COMPLETED, None)
    assert [(end["end_reason"], end.get("loop_budget", 0)) for end in run.finished] == [("answered", 0)]


async def test_no_loop_is_begun_beyond_the_budget(stage: Stage) -> None:
    """SPEC S2, R6: the loops of earlier executions count, and tools nobody would read are not run."""
    run = ScriptedRun([tools("t")] * 5, terms={"max_loops": 4}, opened={"loops": 2})
    async with stage.playing(run):
        assert await closing(await stage.start()) == (FAILED, "LOOPS_EXHAUSTED")
    assert (run.asked.count("call_model"), run.asked.count("call_tool")) == (2, 1)


async def test_an_input_that_came_too_late_may_have_one_more_loop(stage: Stage) -> None:
    """SPEC S7: the database says that it has not ended."""
    run = ScriptedRun(terms={"continue_late_input": True}, go_on=1)
    async with stage.playing(run):
        assert await closing(await stage.start()) == (COMPLETED, None)
    assert run.asked.count("call_model") == 2


async def test_an_answer_that_was_stored_before_only_needs_its_end(stage: Stage) -> None:
    """SPEC R2: an execution that takes over asks no model."""
    run = ScriptedRun(opened={"answered": True})
    async with stage.playing(run):
        assert await closing(await stage.start()) == (COMPLETED, None)
    assert run.asked == ["open_run", "finish_run"]


async def test_calls_left_by_an_earlier_execution_are_settled_first(stage: Stage) -> None:
    """SPEC S9, R3: only then the request that carries their batch."""
    batch = tools("rest")
    opened = {"batch_id": "01890a5d-ac96-774b-bcce-b302099a8057", "loops": 1}
    run = ScriptedRun(terms={"unsettled": batch["tools"]}, opened=opened)
    async with stage.playing(run):
        assert await closing(await stage.start()) == (COMPLETED, None)
    assert run.asked == ["open_run", "call_tool", "prepare", "call_model", "finish_run"]
    assert (run.prepared[0]["batch_id"], run.prepared[0]["loop"]) == (opened["batch_id"], 2)


@pytest.mark.parametrize("at_once", [1, 3])
async def test_no_more_tools_at_once_than_allowed(stage: Stage, at_once: int) -> None:
    """SPEC T2: the limit of the release."""
    running, most = 0, 0

    async def tool(call: dict[str, Any]) -> dict[str, Any]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.05)
        running -= 1
        return {"kind": "settled"}

    run = ScriptedRun([tools(*["t"] * 6)], terms={"max_parallel_tools": at_once}, tool=tool)
    async with stage.playing(run):
        assert await closing(await stage.start()) == (COMPLETED, None)
    assert most <= at_once
    assert run.asked.count("call_tool") == 6


def test_a_compaction_that_timed_out_is_lost_like_one_that_was_terminated() -> None:
    """SPEC K8, W2: somebody set its workflow a time limit; nothing says that the Run was to stop."""
    names = {"namespace": "default", "workflow_id": "c", "run_id": "r", "workflow_type": "CompactionWorkflow"}
    ended = ChildWorkflowError("ended", **names, initiated_event_id=1, started_event_id=2, retry_state=None)
    ended.__cause__ = TimedOut("late", type=TimeoutType.START_TO_CLOSE, last_heartbeat_details=[])
    assert why_ended(ended) == "lost"


async def test_a_run_that_another_owner_has_taken_over_closes_with_that(stage: Stage) -> None:
    """SPEC R5: no retry for ever, and nothing else is asked."""
    superseded = ApplicationError("taken over", type="SUPERSEDED", non_retryable=True)
    run = ScriptedRun([superseded])
    async with stage.playing(run):
        status, _ = await closing(await stage.start())
    assert status == FAILED


@pytest.mark.parametrize("step", ["open_run", "prepare", "call_model"])
async def test_a_step_that_fails_for_good_ends_the_run_with_its_code(stage: Stage, step: str) -> None:
    """SPEC S2, W3a: local steps too, whose failures Temporal does not wrap; no Run is left for the reconciler."""
    corrupt = ApplicationError("damaged", type="PAYLOAD_CORRUPT", non_retryable=True)
    run = ScriptedRun([corrupt]) if step == "call_model" else ScriptedRun(broken={step: corrupt})
    async with stage.playing(run):
        assert await closing(await stage.start()) == (FAILED, "PAYLOAD_CORRUPT")
    assert run.asked[-2:] == [step, "finish_run"]
    [end] = run.finished
    assert (end["status"], end["end_reason"], end["code"]) == ("failed", "internal", "PAYLOAD_CORRUPT")

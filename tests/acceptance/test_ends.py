"""How Runs end, in the API and in Temporal alike (SPEC S2, S8, W3a, E)."""

import asyncio
import contextlib
import time
from pathlib import Path

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError

from tests.support import replies
from tests.support.run_tools import traced
from tests.support.run_world import Json, RunWorld, python_tool


async def closed_as(world: RunWorld, run_id: str) -> WorkflowExecutionStatus | None:
    """The close status of the Run's workflow."""
    handle = world.workflow(run_id)
    with contextlib.suppress(WorkflowFailureError):
        await handle.result()
    return (await handle.describe()).status


async def test_an_answer_completes_the_workflow(world: RunWorld) -> None:
    """SPEC W3a: succeeded is Completed; the outcome is a search attribute."""
    world.model.add("yes")
    run = await world.ask()
    assert await closed_as(world, run["run_id"]) == WorkflowExecutionStatus.COMPLETED
    found = await world.workflow(run["run_id"]).describe()
    values = {pair.key.name: pair.value for pair in found.typed_search_attributes}
    assert values["AgentLoomOutcome"] == "succeeded"
    assert values["AgentLoomAgent"] == "scout"
    assert values["AgentLoomSession"] == run["session_id"]


async def test_a_run_out_of_time_is_timed_out(world: RunWorld) -> None:
    """SPEC S2, W3a: deadline, in the API and as the failure's type."""
    await world.publish(limits={"deadline_s": 1})
    world.model.add(replies.text("never").but(hold="never"))
    run = await world.ask()
    assert (run["status"], run["end_reason"], run["error"]["code"]) == ("timed_out", "deadline", "DEADLINE_EXCEEDED")
    assert run["error"]["numbers"] == {"deadline_s": 1}
    assert "limits.deadline_s" in run["error"]["message"]
    assert await failure_type(world, run) == "DEADLINE_EXCEEDED"


async def failure_type(world: RunWorld, run: Json) -> str | None:
    """The type of the failure that the workflow closed with."""
    with pytest.raises(WorkflowFailureError) as caught:
        await world.workflow(run["run_id"]).result()
    assert await closed_as(world, run["run_id"]) == WorkflowExecutionStatus.FAILED
    return getattr(caught.value.cause, "type", None)


async def test_a_run_without_loops_left_is_exhausted(world: RunWorld) -> None:
    """SPEC S2: no answer is made up at the limit."""
    await world.publish(tools=["now"], limits={"max_loops": 1})
    world.model.add(replies.calls(("now", {})))
    run = await world.ask()
    assert (run["status"], run["end_reason"], run["answer"]) == ("exhausted", "loops", None)
    assert run["error"]["numbers"] == {"max_loops": 1}
    assert "limits.max_loops" in run["error"]["message"]
    assert await failure_type(world, run) == "LOOPS_EXHAUSTED"


@pytest.mark.parametrize("limit", [{"max_total_tokens": 60}, {"max_cost": 0.0001}])
async def test_a_run_over_its_budget_is_exhausted(world: RunWorld, limit: Json) -> None:
    """SPEC L5: what was spent is known after the first answer; nothing more is asked."""
    await world.publish(tools=["now"], limits=limit, model={"price": {"input": 10, "output": 10, "cached": 1}})
    world.model.add(replies.calls(("now", {})), "not reached")
    run = await world.ask()
    assert (run["status"], run["error"]["code"], len(world.model.requests)) == ("exhausted", "BUDGET_EXHAUSTED", 1)
    assert run["usage"]["input_tokens"] == 50
    numbers = run["error"]["numbers"]
    used = (60, 60) if "max_total_tokens" in limit else ("0.0001", run["usage"]["cost"])
    assert (numbers["limit"], numbers["used"], "limits." in run["error"]["message"]) == (*used, True)


async def test_a_question_larger_than_the_window_is_refused_with_numbers(world: RunWorld) -> None:
    """SPEC E, B1, Y6: never sent; the message has numbers and none of the words."""
    await world.publish(model={"context_window": 4096, "max_output_tokens": 512})
    run = await world.ask("MARK-long " * 1000)
    assert (run["status"], run["error"]["code"]) == ("failed", "CONTEXT_PROTECTED_INPUT_TOO_LARGE")
    assert (world.model.requests, run["end_reason"]) == ([], "context_too_large")
    assert "MARK" not in str(run["error"])
    [manifest] = await world.manifests(run["run_id"])
    assert manifest["validation"] == "budget_exceeded"
    assert manifest["estimated_input_tokens"] > manifest["input_limit"] == 4096 - 512 - 256


async def test_a_result_that_no_summary_can_make_fit_ends_the_run(world: RunWorld) -> None:
    """SPEC K2, K3: a result the model has not answered yet can't be summarised; over B there is nothing else to do."""
    await world.publish(tools=["repeat"], model={"context_window": 4096, "max_output_tokens": 512})
    world.model.add(replies.calls(("repeat", {"text": "0123456789", "times": 400})))
    run = await world.ask("short")
    assert (run["status"], run["error"]["code"]) == ("failed", "CONTEXT_PROTECTED_INPUT_TOO_LARGE")
    assert len(world.model.requests) == 1


async def test_a_stop_during_a_model_call_cancels_it(world: RunWorld) -> None:
    """SPEC S8, W3a: the connection is closed, the Run ends stopped and the workflow Canceled."""
    world.model.add(replies.text("never").but(hold="never"))
    run_id = await world.start()
    await world.model.wait_for_requests(1)
    began = time.monotonic()
    await world.stop(run_id)
    run = await world.ended(run_id)
    assert (run["status"], run["end_reason"], run["answer"]) == ("stopped", "user_stop", None)
    assert time.monotonic() - began < 5
    assert await closed_as(world, run_id) == WorkflowExecutionStatus.CANCELED


async def test_a_cancel_in_the_temporal_ui_is_a_stop(world: RunWorld) -> None:
    """SPEC W2: the same end as a stop by the API."""
    world.model.add(replies.text("never").but(hold="never"))
    run_id = await world.start()
    await world.model.wait_for_requests(1)
    await world.workflow(run_id).cancel()
    assert (await world.ended(run_id))["status"] == "stopped"


async def test_a_tool_that_ignores_the_stop_does_not_delay_it(world: RunWorld, tmp_path: Path) -> None:
    """SPEC S8, R5: stopped within 5 s; what the tool brings later changes nothing."""
    trace = tmp_path / "trace"
    await world.publish(tools=[python_tool("ignore_the_stop", "side_effect")])
    world.model.add(replies.calls(("ignore_the_stop", {"seconds": 6, "trace": str(trace)})))
    run_id = await world.start()
    async with asyncio.timeout(20):
        while not traced(trace):
            await asyncio.sleep(0.01)
    began = time.monotonic()
    await world.stop(run_id)
    run = await world.ended(run_id)
    assert (run["status"], time.monotonic() - began < 5) == ("stopped", True)
    [_, tool] = await world.operations(run_id)
    assert tool["state"] == "unknown"


async def test_a_stop_that_comes_too_late_changes_nothing(world: RunWorld) -> None:
    """SPEC S2: an end is an end."""
    world.model.add("done")
    run = await world.ask()
    await world.stop(run["run_id"])
    assert (await world.ended(run["run_id"]))["status"] == "succeeded"


async def test_working_files_live_as_long_as_their_run_and_in_no_other(world: RunWorld) -> None:
    """SPEC T10: what one call left another one finds; at the end the folder goes, also if the Run fails."""
    await world.publish(tools=["keep"], limits={"max_loops": 3})
    world.model.add(*(replies.calls(("keep", {"text": text})) for text in ("a", "bb", "too late")))
    assert (await world.ask())["status"] == "exhausted"
    assert [sent[-1]["content"] for sent in world.sent[1:]] == ["a", "a bb"]
    world.model.add(replies.calls(("keep", {"text": "ccc"})), "done")
    assert (await world.ask())["answer"] == "done"
    assert world.sent[-1][-1]["content"] == "ccc"
    assert list((world.servers.folder / "work").iterdir()) == []

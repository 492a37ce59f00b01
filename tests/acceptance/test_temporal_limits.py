"""What a Run leaves in Temporal stays small and free of content (SPEC W1, W3; cases of kind temporal)."""

import asyncio
import gc
import time
from itertools import pairwise
from statistics import median_high

import pytest
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowFailureError, WorkflowHistory

from tests.support import replies
from tests.support.replies import Reply
from tests.support.run_world import Json, RunWorld, python_tool
from workflows.names import RUN_WORKFLOW
from workflows.options import LONGEST_HISTORY


def steps(history: WorkflowHistory) -> list[tuple[int, int]]:
    """How many events and bytes each step added, from one model call to the next."""
    starts = [at for at, event in enumerate(history.events) if is_model_call(event)]
    pieces = [history.events[start:end] for start, end in pairwise(starts)]
    return [(len(piece), sum(event.ByteSize() for event in piece)) for piece in pieces]


def is_model_call(event: HistoryEvent) -> bool:
    return event.activity_task_scheduled_event_attributes.activity_type.name == "call_model"


async def history_of(world: RunWorld, tool: Json, arguments: Json, loops: int) -> WorkflowHistory:
    """The history of a Run with this many tool steps."""
    name = f"agent-{loops}"
    await world.publish(name, tools=[tool], limits={"max_loops": loops + 2}, model={"context_window": 500_000})
    world.model.add(*[replies.calls((tool["name"], arguments))] * loops, "done")
    run = await world.ask("MARK-question " * 50, await world.open_session(name))
    assert (run["status"], run["loops"]) == ("succeeded", loops + 1)
    return await world.workflow(run["run_id"]).fetch_history()


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        pytest.param(python_tool("echo"), {}, id="beside_the_model_call"),
        pytest.param(python_tool("pause", "idempotent"), {"seconds": 0}, id="with_a_row_of_its_own"),
    ],
)
async def test_a_step_writes_few_events_and_bytes_whatever_was_said(
    world: RunWorld, tool: Json, arguments: Json
) -> None:
    """SPEC W1, case C073: at most 16 events and 2 KB, however long the texts.

    Of most steps: a workflow task that timed out on a busy machine is no part of what a step writes.
    """
    history = await history_of(world, tool, arguments | {"text": "MARK-" + "x" * 5_000}, loops=12)
    events, size = (median_high(figures) for figures in zip(*steps(history), strict=True))
    assert (events <= 16, size <= 2048) == (True, True), (events, size)
    assert b"MARK" not in b"".join(event.SerializeToString() for event in history.events)


async def executions_of(world: RunWorld, run_id: str) -> list[WorkflowHistory]:
    """The histories of a Run's executions, the last one first."""
    found = [await world.workflow(run_id).fetch_history()]
    while earlier := found[-1].events[0].workflow_execution_started_event_attributes.continued_execution_run_id:
        handle = world.temporal.get_workflow_handle(f"run/{run_id}", run_id=earlier)
        found.append(await handle.fetch_history())
    return found


async def test_a_history_never_grows_longer_than_a_task_has_time_to_read(world: RunWorld) -> None:
    """SPEC W4, R1: a worker that takes a Run over reads its history again, and gives up what takes two seconds."""
    loops = 50
    await world.publish(tools=[python_tool("pause", "idempotent")], limits={"max_loops": loops + 2})
    world.model.add(*[replies.calls(("pause", {"seconds": 0, "text": "x"}))] * loops, "done")
    run = await world.ask()
    assert (run["status"], run["answer"], run["loops"]) == ("succeeded", "done", loops + 1)
    lengths = [len(history.events) for history in await executions_of(world, run["run_id"])]
    assert len(lengths) > 1
    assert max(lengths) < LONGEST_HISTORY + 30


async def test_a_result_of_eight_megabytes_makes_nobody_wait(world: RunWorld) -> None:
    """Case C075: no workflow task fails or times out, and other sessions get their model call meanwhile."""
    await world.publish(tools=["repeat"], model={"context_window": 200_000})
    big: Reply = replies.calls(("repeat", {"text": "0123456789", "times": 800_000}))
    others = 20
    sessions = [await world.open_session() for _ in range(others + 1)]
    world.model.add(big, *["done"] * (others + 1))
    began = time.time()
    runs = await asyncio.gather(*(world.start("go", session) for session in sessions))
    ends = [await world.ended(run_id) for run_id in runs]
    assert {run["status"] for run in ends} == {"succeeded"}
    assert world.model.requests[others].at - began < 5
    for run_id in runs:
        history = await world.workflow(run_id).fetch_history()
        kinds = {event.WhichOneof("attributes") for event in history.events}
        assert not kinds & {"workflow_task_failed_event_attributes", "workflow_task_timed_out_event_attributes"}


@pytest.mark.parametrize("start", [{"schema_version": 0}, {"run_id": "no id", "execution_no": 1}])
@pytest.mark.filterwarnings("ignore:coroutine '_WorkflowInstanceImpl:RuntimeWarning")  # the SDK's own, never awaited
async def test_a_start_that_makes_no_sense_fails_at_once(world: RunWorld, start: Json) -> None:
    """Case C081, SPEC W1: whoever starts a workflow by hand with nonsense gets a failed one, not one that hangs."""
    handle = await world.temporal.start_workflow(
        RUN_WORKFLOW, start, id=f"by-hand-{world.servers.task_queue}", task_queue=world.servers.task_queue
    )
    with pytest.raises(WorkflowFailureError) as failure:
        await asyncio.wait_for(handle.result(), 10)
    assert getattr(failure.value.cause, "type", None) == "CONFIGURATION_INVALID"
    gc.collect()


async def test_bursts_of_supplements_are_all_stored_once(world: RunWorld) -> None:
    """Case C083, SPEC S4, W2: more in flight than Temporal takes updates; each accepted or told to wait."""
    session = await world.open_session()
    world.model.add(replies.text("early").but(hold="burst"), "next")
    run_id = await world.start("q", session)
    await world.model.wait_for_requests(1)
    words = [f"supplement {n}" for n in range(60)]
    for first in range(0, len(words), 30):
        await asyncio.gather(*(world.send(text, session, mode="supplement") for text in words[first : first + 30]))
    world.model.release("burst")
    assert (await world.ended(run_id))["status"] == "succeeded"
    stored = await world.items(f"/sessions/{session}/inputs")
    assert [one["input_seq"] for one in stored] == list(range(1, 62))
    assert sorted(one["text"] for one in stored[1:]) == sorted(words)
    await world.ask("and now?", session)
    said = [message["content"] for message in world.sent[-1] if message["content"].startswith("supplement")]
    assert said == [one["text"] for one in stored[1:]]

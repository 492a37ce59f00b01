"""Signals and the state query (SPEC W1, W2, W3; cases C071, C083)."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import Client, WorkflowExecutionStatus

from stack import temporal
from stack.ports import any_free_port
from tests.support.servers import running_child
from tests.workflows.conftest import Handle, Stage, closing
from tests.workflows.fakes import ANSWER, Held, ScriptedRun, tools
from workflows.names import STATE_QUERY, SUPPLEMENT_SIGNAL
from workflows.registry import data_converter


async def nudge(handle: Handle, *numbers: int) -> None:
    """Signal these inputs, as the sender does."""
    for number in numbers:
        await handle.signal(SUPPLEMENT_SIGNAL, args=[str(uuid4()), number])


async def state(handle: Handle) -> dict[str, Any]:
    """The answer of the state query."""
    answer: dict[str, Any] = await handle.query(STATE_QUERY)
    return answer


async def details(handle: Handle) -> str:
    """The current details, as the Temporal UI asks for them."""
    metadata = await handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
    assert isinstance(metadata, WorkflowMetadata)
    return metadata.current_details


async def test_a_signal_before_the_first_task_is_kept(stage: Stage) -> None:
    """SPEC W2: the start and the signal may come in any order."""
    held = Held()
    run = ScriptedRun([held], cutoffs=[1])
    handle = await stage.start()
    await nudge(handle, 2)
    async with stage.playing(run):
        await held.reached.wait()
        assert (await state(handle))["pending"] == [2]
        held.gate.set()
        await closing(handle)


@pytest.mark.parametrize(
    "garbage", [[], ["garbage"], [99], [None], [[1]], [True], ["a", "b"], ["a", 1, 2], [{"text": "x"}]]
)
async def test_a_signal_sent_by_hand_that_is_no_nudge_is_dropped(stage: Stage, garbage: list[object]) -> None:
    """SPEC S4, S13: text that did not come through the database is refused, and the Run goes on."""
    held = Held()
    async with stage.playing(ScriptedRun([held], cutoffs=[1])):
        handle = await stage.start()
        await held.reached.wait()
        await handle.signal(SUPPLEMENT_SIGNAL, args=garbage)
        assert (await state(handle))["pending"] == []
        held.gate.set()
        await closing(handle)


async def test_a_signal_that_comes_twice_or_late_counts_once_or_not(stage: Stage) -> None:
    """SPEC W2: inputs that a request already contains are not pending."""
    held, more = Held(tools("t")), Held()
    run = ScriptedRun([held, more], cutoffs=[3, 6])
    async with stage.playing(run):
        handle = await stage.start()
        await held.reached.wait()
        await nudge(handle, 2, 5, 5, 4)
        assert (await state(handle))["pending"] == [4, 5]
        held.gate.set()
        await more.reached.wait()
        assert (await state(handle))["pending"] == []
        more.gate.set()
        await closing(handle)


async def test_a_signal_with_text_in_it_stops_nothing(stage: Stage) -> None:
    """SPEC S4, W2: what is no id and number is dropped; the Run goes on."""
    held = Held()
    run = ScriptedRun([held])
    async with stage.playing(run):
        handle = await stage.start()
        await held.reached.wait()
        await handle.signal(SUPPLEMENT_SIGNAL, args=["do this instead", "now"])
        assert (await state(handle))["pending"] == []
        held.gate.set()
        assert (await closing(handle))[0] == WorkflowExecutionStatus.COMPLETED


async def test_the_state_says_where_the_run_stands(stage: Stage) -> None:
    """SPEC W2, W3: phase, loop, cutoff, sizes; numbers and ids only."""
    held = Held()
    run = ScriptedRun([tools("t"), held], cutoffs=[1, 4], terms={"max_loops": 7})
    async with stage.playing(run):
        handle = await stage.start()
        await held.reached.wait()
        now = await state(handle)
        assert (now["phase"], now["loop"], now["max_loops"], now["cutoff"]) == ("calling_model", 2, 7, 4)
        assert (now["estimated"], now["input_limit"]) == (6120, 8000)
        assert now["operation_id"] == run.prepared[1]["operation_id"]
        held.gate.set()
        await closing(handle)


async def test_the_current_details_show_place_size_and_the_last_error(stage: Stage) -> None:
    """SPEC W3: what the Temporal UI shows of a Run that goes on after its provider refused a request as too long."""
    held = Held()
    overflow = {"kind": "failed", "end_reason": "context_too_large", "code": "MODEL_CONTEXT_LENGTH_EXCEEDED"}
    async with stage.playing(ScriptedRun([overflow, held], cutoffs=[1, 1], terms={"compact_once": True})):
        handle = await stage.start()
        await held.reached.wait()
        await nudge(handle, 7)
        assert (await details(handle)).split("  \n") == [
            "**calling model** · agent scout",
            "loop 1 of 10",
            "context 6120 / 8000 tokens (76 %)",
            "input cutoff 1",
            "supplements waiting: 1",
            "last error: MODEL_CONTEXT_LENGTH_EXCEEDED",
        ]
        held.gate.set()
        await closing(handle)


async def test_the_current_details_of_a_run_that_failed_name_its_error(stage: Stage) -> None:
    """SPEC W3: while a worker is there to say it."""
    unavailable = {"kind": "failed", "end_reason": "model_unavailable", "code": "MODEL_FAILED"}
    async with stage.playing(ScriptedRun([unavailable])):
        handle = await stage.start()
        await closing(handle)
        assert (await details(handle)).endswith("last error: MODEL_FAILED")


async def test_no_row_in_the_timeline_is_a_bare_name(stage: Stage) -> None:
    """SPEC W3: each activity, marker and timer has a summary with numbers and names."""
    run = ScriptedRun([tools("get_weather")])
    async with stage.playing(run):
        handle = await stage.start()
        await closing(handle)
    told = [
        event.user_metadata.summary.data.decode()
        async for event in handle.fetch_history_events()
        if event.WhichOneof("attributes")
        in (
            "activity_task_scheduled_event_attributes",
            "timer_started_event_attributes",
            "marker_recorded_event_attributes",
        )
    ]
    assert all(told)
    assert '"model call #1 · 6120/8000 tok (76 %)"' in told
    assert '"tool get_weather"' in told


@pytest.fixture(scope="module")
def short_histories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that suggests continue-as-new after a few events, as it does after thousands by default."""
    folder = tmp_path_factory.mktemp("short-histories")
    server = temporal.prepare(folder / "temporal.db", port=any_free_port(), ui_port=None)
    child = server.child(log_file=folder / "temporal.log")
    limit = ("--dynamic-config-value", "limit.historyCount.suggestContinueAsNew=25")
    with running_child(replace(child, command=child.command + limit)):
        yield server.address


async def test_nothing_is_lost_over_many_continuations(short_histories: str, task_queue: str, tmp_path: Path) -> None:
    """SPEC W4; case C071: bursts of signals between, before and after; loops, batch and deadline are handed on."""
    stage = Stage(await Client.connect(short_histories, data_converter=data_converter()), task_queue)
    loops, signals = 12, 200
    last = Held()
    run = ScriptedRun([*[tools("t")] * loops, last], cutoffs=[1] * (loops + 1), terms={"max_loops": 100})
    async with stage.playing(run):
        handle = await stage.start()
        latest = stage.client.get_workflow_handle(handle.id)
        for first in range(2, signals + 2, 50):
            await asyncio.gather(*(nudge(latest, number) for number in range(first, first + 50)))
        await last.reached.wait()
        now = await state(latest)
        assert now["pending"] == list(range(2, signals + 2))
        assert now["loop"] == loops + 1
        last.gate.set()
        assert (await closing(latest))[0] == WorkflowExecutionStatus.COMPLETED
    executions = [found async for found in stage.client.list_workflows(f'WorkflowId = "{handle.id}"')]
    assert len(executions) > 2
    # A workflow task that took too long is given again, and its local activities with it.
    assert "open_run" not in run.asked[run.asked.index("call_model") :]
    assert run.asked.count("call_model") == loops + 1
    prepared = list({request["operation_id"]: request for request in run.prepared}.values())
    assert [request["batch_id"] for request in prepared[1:]] == [request["operation_id"] for request in prepared[:-1]]


async def test_a_stop_after_a_continuation_is_a_stop(short_histories: str, task_queue: str) -> None:
    """SPEC W2, W4: cancelling the Run's workflow reaches whichever execution is open."""
    stage = Stage(await Client.connect(short_histories, data_converter=data_converter()), task_queue)
    last = Held(ANSWER)
    run = ScriptedRun([*[tools("t")] * 10, last])
    run.terms = {"max_loops": 50}
    async with stage.playing(run):
        handle = await stage.start()
        await last.reached.wait()
        latest = stage.client.get_workflow_handle(handle.id)
        await latest.cancel()
        assert (await closing(latest))[0] == WorkflowExecutionStatus.CANCELED
    assert [end["status"] for end in run.finished] == ["stopped"]

"""Carrying intents to a real Temporal server: what each becomes, and that none does harm twice (SPEC W7, W3a)."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from temporalio import workflow
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError
from temporalio.common import TypedSearchAttributes
from temporalio.exceptions import CancelledError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from context.errors import UnavailableError
from context.intents import CancelCompaction, CancelRun, SignalSupplement, StartCompaction, StartRun
from workflows import dispatch
from workflows.compaction import CompactionInput
from workflows.dispatch import TemporalSender
from workflows.lost_runs import TemporalWatch
from workflows.names import COMPACTION_WORKFLOW, RUN_WORKFLOW, STATE_QUERY, SUPPLEMENT_SIGNAL
from workflows.registry import data_converter
from workflows.run_types import RunInput


@workflow.defn(name=RUN_WORKFLOW)
class WaitingRun:
    """Stands in for a Run: remembers the inputs it was told of and waits to be cancelled."""

    def __init__(self) -> None:
        self._told: list[str] = []

    @workflow.run
    async def run(self, started: RunInput) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.signal(name=SUPPLEMENT_SIGNAL)
    def supplement(self, input_id: str, input_seq: int) -> None:
        self._told.append(f"{input_seq} {input_id}")

    @workflow.query(name=STATE_QUERY)
    def state(self) -> list[str]:
        return self._told


@workflow.defn(name=COMPACTION_WORKFLOW)
class WaitingCompaction:
    """Stands in for a compaction: waits to be cancelled."""

    @workflow.run
    async def run(self, started: CompactionInput) -> None:
        await workflow.wait_condition(lambda: False)


@pytest.fixture
async def client(temporal_address: str) -> Client:
    return await Client.connect(temporal_address, data_converter=data_converter())


@pytest.fixture
async def sender(client: Client, task_queue: str) -> AsyncIterator[TemporalSender]:
    async with Worker(
        client,
        task_queue=task_queue,
        workflows=[WaitingRun, WaitingCompaction],
        workflow_runner=UnsandboxedWorkflowRunner(),
    ):
        yield TemporalSender(client, task_queue=task_queue)


@pytest.fixture
def start() -> StartRun:
    return StartRun(uuid4(), 1, uuid4(), "helper", uuid4())


async def test_a_start_sent_twice_starts_one_execution_that_can_be_found(
    client: Client, sender: TemporalSender, start: StartRun
) -> None:
    """W7, W3: search attributes name session, agent and release."""
    assert await sender.start(start) == "sent"
    first = await client.get_workflow_handle(start.workflow_id).describe()
    assert await sender.start(start) == "sent"
    assert (await client.get_workflow_handle(start.workflow_id).describe()).run_id == first.run_id
    assert _ours(first.typed_search_attributes) == {
        "AgentLoomSession": str(start.session_id),
        "AgentLoomAgent": "helper",
        "AgentLoomRelease": str(start.release_id),
    }


async def test_the_next_execution_waits_until_the_one_before_has_closed(
    client: Client, sender: TemporalSender, start: StartRun
) -> None:
    """W3a: a resume is a new execution under the same id; the old one may still be closing."""
    assert await sender.start(start) == "sent"
    resumed = replace(start, execution_no=2)
    assert await sender.start(resumed) == "closing"
    assert await sender.cancel(CancelRun(start.run_id, 1)) == "sent"
    with pytest.raises(WorkflowFailureError) as ended:
        await client.get_workflow_handle(start.workflow_id).result()
    assert isinstance(ended.value.cause, CancelledError)
    assert await sender.start(resumed) == "sent"


async def test_a_late_cancellation_does_not_hit_the_execution_that_was_resumed(
    client: Client, sender: TemporalSender, start: StartRun
) -> None:
    """S8, W7: the relay may send an old stop after the resume."""
    assert await sender.start(replace(start, execution_no=2)) == "sent"
    assert await sender.cancel(CancelRun(start.run_id, 1)) == "gone"
    found = await client.get_workflow_handle(start.workflow_id).describe()
    assert found.status == WorkflowExecutionStatus.RUNNING


async def test_a_supplement_reaches_the_open_execution_and_nothing_else(
    client: Client, sender: TemporalSender, start: StartRun
) -> None:
    """S4: an id-only nudge."""
    told = SignalSupplement(start.run_id, UUID(int=7), 2)
    assert await sender.signal(told) == "gone"
    assert await sender.cancel(CancelRun(start.run_id, 1)) == "gone"
    assert await sender.compact(start.run_id) == "gone"
    await sender.start(start)
    assert await sender.signal(told) == "sent"
    assert await client.get_workflow_handle(start.workflow_id).query(STATE_QUERY) == [f"2 {UUID(int=7)}"]


async def test_a_run_that_no_worker_works_on_is_told_to_be_that(
    client: Client, start: StartRun, task_queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC K12, W2: an update needs a worker; Temporal itself can be reached."""
    monkeypatch.setattr(dispatch, "RPC_TIMEOUT", timedelta(milliseconds=500))
    nobodys = TemporalSender(client, task_queue=f"{task_queue}-nobody")
    await nobodys.start(start)
    with pytest.raises(UnavailableError, match="No worker"):
        await nobodys.compact(start.run_id)
    await client.get_workflow_handle(start.workflow_id).terminate()


async def test_an_idle_sessions_compaction_is_started_once_and_can_be_cancelled(
    client: Client, sender: TemporalSender
) -> None:
    """W7, W3, K12: also once it has closed; attributes name session, agent and release."""
    start = StartCompaction(uuid4(), uuid4(), uuid4(), "helper", uuid4())
    cancel = CancelCompaction(start.run_id, start.episode_id)
    assert await sender.cancel_compaction(cancel) == "gone"
    assert [await sender.start_compaction(start) for _ in range(2)] == ["sent", "sent"]
    handle = client.get_workflow_handle(start.workflow_id)
    described = await handle.describe()
    assert _ours(described.typed_search_attributes) == {
        "AgentLoomSession": str(start.session_id),
        "AgentLoomAgent": "helper",
        "AgentLoomRelease": str(start.release_id),
    }
    watch = TemporalWatch(client)
    assert await watch.standing_of_compaction(start.episode_id) == "open"
    assert await watch.standing_of_compaction(uuid4()) == "missing"
    assert await sender.cancel_compaction(cancel) == "sent"
    with pytest.raises(WorkflowFailureError):
        await handle.result()
    assert await watch.standing_of_compaction(start.episode_id) == "canceled"
    assert await sender.start_compaction(start) == "sent"
    assert (await handle.describe()).run_id == described.run_id


async def test_a_namespace_that_is_not_there_is_no_evidence_of_an_end(temporal_address: str, start: StartRun) -> None:
    """W7, S13: a server that comes up without it knows nothing yet; what was meant for a workflow waits."""
    client = await Client.connect(temporal_address, namespace="nowhere", data_converter=data_converter(), lazy=True)
    lost = TemporalSender(client, task_queue="nobody")
    for send in (
        lost.signal(SignalSupplement(start.run_id, UUID(int=7), 2)),
        lost.cancel(CancelRun(start.run_id, 1)),
        lost.cancel_compaction(CancelCompaction(start.run_id, uuid4())),
        lost.compact(start.run_id),
    ):
        with pytest.raises(UnavailableError):
            await send


async def test_a_server_that_is_away_is_one_error_without_foreign_text(start: StartRun) -> None:
    """W7, Y6: whatever was committed is sent later."""
    client = await Client.connect("127.0.0.1:1", lazy=True, data_converter=data_converter())
    away = TemporalSender(client, task_queue="nobody")
    for send in (
        away.start(start),
        away.signal(SignalSupplement(start.run_id, UUID(int=7), 2)),
        away.cancel(CancelRun(start.run_id, 1)),
    ):
        with pytest.raises(UnavailableError) as caught:
            await send
        assert caught.value.message == UnavailableError.sentence
        assert caught.value.__cause__ is None


def _ours(found: TypedSearchAttributes) -> dict[str, Any]:
    """Without those that the server adds once a worker has taken the workflow."""
    return {pair.key.name: pair.value for pair in found if pair.key.name.startswith("AgentLoom")}

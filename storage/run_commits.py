"""The commits and reads of a running Run, bound to one store: activities are given this, and import no storage."""

from decimal import Decimal
from uuid import UUID

from context.policy import Limits, Release
from context.replies import Usage
from context.steps import (
    Acceptance,
    AcceptModel,
    BeginAttempt,
    Begun,
    FailAttempt,
    Failures,
    FinishedRun,
    FinishRun,
    FreezeRequest,
    OpenedRun,
    OpenRun,
    PreparedRequest,
    PrepareRequest,
    RecordFirstOutput,
    RecordToolResult,
    RequestTerms,
    Settled,
    Stopping,
    ToolCallFacts,
)
from storage.batches import BatchCalls, batch_calls, may_begin
from storage.commits.accept_model import accept_model
from storage.commits.begin_attempt import begin_attempt, begin_tool_call
from storage.commits.fail_attempt import estimated_input, fail_attempt, failures
from storage.commits.finish_run import finish_run, release_of
from storage.commits.freeze_request import freeze_request
from storage.commits.note_sent import note_sent
from storage.commits.note_written import note_written
from storage.commits.open_run import open_run
from storage.commits.prepare_request import prepare_request
from storage.commits.record_first_output import record_first_output
from storage.commits.record_tool_result import record_tool_result
from storage.commits.take_up_request import take_up_request
from storage.reads.releases import release
from storage.requests import FrozenRequest, Requests
from storage.store import Store


class RunCommits:
    """One method per commit or read; the meaning stands with the function it calls."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._requests = Requests(store)

    async def reach(self, point: str) -> None:
        """A fault point of the tests; nothing in production."""
        await self._store.faults.reach(point)

    async def release(self, release_id: UUID) -> Release:
        return await release(self._store, release_id)

    async def open_run(self, request: OpenRun) -> OpenedRun:
        return await open_run(self._store, request)

    async def prepare_request(
        self, request: PrepareRequest, terms: RequestTerms, settled: RecordToolResult | None = None
    ) -> PreparedRequest:
        return await prepare_request(self._store, request, terms, settled)

    async def freeze_request(
        self, request: FreezeRequest, terms: RequestTerms, limits: Limits | None = None
    ) -> PreparedRequest:
        return await freeze_request(self._store, request, terms, limits)

    async def frozen_request(
        self, operation_id: UUID, *, execution_no: int, held: tuple[UUID, int] | None = None
    ) -> FrozenRequest:
        return await self._requests.load(operation_id, execution_no=execution_no, held=held)

    async def take_up_request(
        self, operation_id: UUID, *, execution_no: int, held: tuple[UUID, int] | None = None
    ) -> FrozenRequest:
        return await take_up_request(self._store, operation_id, execution_no=execution_no, held=held)

    async def begin_attempt(self, request: BeginAttempt) -> Begun | Settled | Stopping:
        return await begin_attempt(self._store, request)

    async def note_sent(self, operation_id: UUID, request_hash: bytes) -> None:
        await note_sent(self._store, operation_id, request_hash)

    async def note_written(self, operation_id: UUID, attempt_no: int, usage: Usage, cost: Decimal | None) -> None:
        await note_written(self._store, operation_id, attempt_no, usage, cost)

    async def record_first_output(self, request: RecordFirstOutput) -> None:
        await record_first_output(self._store, request)

    async def accept_model(self, request: AcceptModel) -> Acceptance:
        return await accept_model(self._store, request)

    async def failures(self, operation_id: UUID) -> Failures:
        return await failures(self._store, operation_id)

    async def estimated_input(self, operation_id: UUID) -> int:
        return await estimated_input(self._store, operation_id)

    async def fail_attempt(self, request: FailAttempt) -> None:
        await fail_attempt(self._store, request)

    async def begin_tool_call(self, request: BeginAttempt) -> tuple[Begun, ToolCallFacts] | Settled | Stopping:
        return await begin_tool_call(self._store, request)

    async def batch_calls(self, batch_id: UUID, execution_no: int) -> BatchCalls:
        return await batch_calls(self._store, batch_id, execution_no)

    async def may_begin(self, run_id: UUID, execution_no: int, *, deadline_at: float | None) -> bool:
        return await may_begin(self._store, run_id, execution_no, deadline_at=deadline_at)

    async def record_tool_result(self, request: RecordToolResult) -> bool:
        return await record_tool_result(self._store, request)

    async def release_of(self, run_id: UUID) -> UUID:
        return await release_of(self._store, run_id)

    async def finish_run(self, request: FinishRun, limits: Limits | None = None) -> FinishedRun:
        return await finish_run(self._store, request, limits)

"""Carries intents to Temporal: starts, nudges and cancels Runs, and compactions of idle Sessions (SPEC W7, W3a, K12).

Used by whoever made the commit, and by the relay if that failed. Everything it sends is ids and numbers. What it
learns from Temporal is one word per intent; the database stays the truth.
"""

from datetime import timedelta
from typing import Any
from uuid import UUID

from temporalio.api.errordetails.v1 import NotFoundFailure
from temporalio.client import (
    Client,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import (
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from context.episodes import IDLE, EpisodeRef
from context.errors import UnavailableError
from context.ids import run_workflow_id
from context.intents import CancelCompaction, CancelRun, Carried, SignalSupplement, StartCompaction, StartRun
from workflows.compaction import CompactionInput
from workflows.names import (
    AGENT_ATTRIBUTE,
    COMPACT_UPDATE,
    COMPACTION_WORKFLOW,
    RELEASE_ATTRIBUTE,
    RUN_WORKFLOW,
    SESSION_ATTRIBUTE,
    SUPPLEMENT_SIGNAL,
)
from workflows.options import TASK_TIMEOUT
from workflows.run_types import RunInput

SESSION = SearchAttributeKey.for_keyword(SESSION_ATTRIBUTE)
AGENT = SearchAttributeKey.for_keyword(AGENT_ATTRIBUTE)
RELEASE = SearchAttributeKey.for_keyword(RELEASE_ATTRIBUTE)

EXECUTION_MEMO = "execution_no"  # a number; continue-as-new keeps it, so the open execution can always be told apart

RPC_TIMEOUT = timedelta(seconds=3)
NOBODY_THERE = (
    "No worker took this up in time: none works on the run right now, or Temporal is away (agentloom doctor says it)."
    " Send the same request again."
)

# A client that connects lazily says RuntimeError when there is no server to connect to.
UNREACHABLE = (RPCError, RuntimeError)


class TemporalSender:
    """The `Sender` of `context/intents.py` over a Temporal client."""

    def __init__(self, client: Client, *, task_queue: str) -> None:
        self._client = client
        self._task_queue = task_queue

    async def start(self, intent: StartRun) -> Carried:
        """Start the execution. `closing` if the one before it is still open. Raises UnavailableError."""
        try:
            await self._start(intent)
        except WorkflowAlreadyStartedError:
            return await self._already_started(intent)
        except UNREACHABLE as error:
            raise _unavailable(error) from None
        return "sent"

    async def signal(self, intent: SignalSupplement) -> Carried:
        """Nudge whichever execution is open; `gone` if none is. Raises UnavailableError."""
        handle = self._client.get_workflow_handle(intent.workflow_id)
        try:
            await handle.signal(
                SUPPLEMENT_SIGNAL, args=[str(intent.input_id), intent.input_seq], rpc_timeout=RPC_TIMEOUT
            )
        except UNREACHABLE as error:
            return _gone(error)
        return "sent"

    async def cancel(self, intent: CancelRun) -> Carried:
        """Cancel this execution, never a later one of the same Run. Raises UnavailableError."""
        found = await self._open_execution(intent.workflow_id)
        if found is None or await _execution_no(found) != intent.execution_no:
            return "gone"
        first = found.raw_info.first_run_id or found.run_id
        handle = self._client.get_workflow_handle(intent.workflow_id, first_execution_run_id=first)
        try:
            await handle.cancel(rpc_timeout=RPC_TIMEOUT)
        except UNREACHABLE as error:
            return _gone(error)
        return "sent"

    async def start_compaction(self, intent: StartCompaction) -> Carried:
        """Start the one workflow that an idle Session's episode has. Raises UnavailableError."""
        ref = EpisodeRef(episode_id=intent.episode_id, release_id=intent.release_id, execution_no=IDLE)
        try:
            await self._client.start_workflow(
                COMPACTION_WORKFLOW,
                CompactionInput(episode=ref),
                id=intent.workflow_id,
                task_queue=self._task_queue,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                search_attributes=_attributes(intent),
                static_summary=f"agent {intent.agent} · compaction of an idle session",
                task_timeout=TASK_TIMEOUT,
                rpc_timeout=RPC_TIMEOUT,
            )
        except WorkflowAlreadyStartedError:
            return "sent"
        except UNREACHABLE as error:
            raise _unavailable(error) from None
        return "sent"

    async def cancel_compaction(self, intent: CancelCompaction) -> Carried:
        """Cancel an idle Session's compaction; `gone` if its workflow is not open. Raises UnavailableError."""
        handle = self._client.get_workflow_handle(intent.workflow_id)
        try:
            await handle.cancel(rpc_timeout=RPC_TIMEOUT)
        except UNREACHABLE as error:
            return _gone(error)
        return "sent"

    async def compact(self, run_id: UUID, *, once: UUID | None = None) -> Carried:
        """Ask the open execution of a Run for a compaction; `gone` if none is open. Raises UnavailableError.

        What is asked for twice under the same id `once` is asked for once. No update is kept for a worker to come.
        """
        handle = self._client.get_workflow_handle(run_workflow_id(run_id))
        try:
            await handle.execute_update(COMPACT_UPDATE, id=str(once) if once else None, rpc_timeout=RPC_TIMEOUT)
        except WorkflowUpdateRPCTimeoutOrCancelledError:
            raise UnavailableError(NOBODY_THERE) from None
        except (*UNREACHABLE, WorkflowUpdateFailedError) as error:
            return _gone(error)
        return "sent"

    async def _start(self, intent: StartRun) -> None:
        await self._client.start_workflow(
            RUN_WORKFLOW,
            RunInput(run_id=intent.run_id, execution_no=intent.execution_no),
            id=intent.workflow_id,
            task_queue=self._task_queue,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            search_attributes=_attributes(intent),
            memo={EXECUTION_MEMO: intent.execution_no},
            static_summary=f"agent {intent.agent} · execution {intent.execution_no}",
            task_timeout=TASK_TIMEOUT,
            rpc_timeout=RPC_TIMEOUT,
        )

    async def _already_started(self, intent: StartRun) -> Carried:
        """Something is open under this id: this very execution, or the one before it that has yet to close."""
        found = await self._open_execution(intent.workflow_id)
        if found is None:
            return "closing"  # it closed between the two calls: the next try will start
        return "sent" if await _execution_no(found) == intent.execution_no else "closing"

    async def _open_execution(self, workflow_id: str) -> WorkflowExecutionDescription | None:
        try:
            found = await self._client.get_workflow_handle(workflow_id).describe(rpc_timeout=RPC_TIMEOUT)
        except UNREACHABLE as error:
            _gone(error)
            return None
        return found if found.status == WorkflowExecutionStatus.RUNNING else None


def _attributes(intent: StartRun | StartCompaction) -> TypedSearchAttributes:
    return TypedSearchAttributes(
        [
            SearchAttributePair(SESSION, str(intent.session_id)),
            SearchAttributePair(AGENT, intent.agent),
            SearchAttributePair(RELEASE, str(intent.release_id)),
        ]
    )


async def _execution_no(found: WorkflowExecutionDescription) -> Any:
    return await found.memo_value(EXECUTION_MEMO, None)


def _gone(error: Exception) -> Carried:
    """`gone` if there is nothing open to reach; every other refusal means: not now."""
    if is_no_such_workflow(error):
        return "gone"
    raise _unavailable(error) from None


def is_no_such_workflow(error: Exception) -> bool:
    """Whether Temporal knows the namespace and not the workflow: only this is evidence that a workflow is gone."""
    if not isinstance(error, RPCError) or error.status != RPCStatusCode.NOT_FOUND:
        return False
    return any(detail.Is(NotFoundFailure.DESCRIPTOR) for detail in error.grpc_status.details)


def _unavailable(error: Exception) -> UnavailableError:
    status = error.status.name if isinstance(error, RPCError) else "NOT_CONNECTED"
    return UnavailableError(temporal_status=status)

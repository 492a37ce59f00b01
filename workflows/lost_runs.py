"""Asks Temporal how a Run's execution or an idle Session's compaction stands, for the reconciler (SPEC S13).

Reads only; decides nothing.
"""

from uuid import UUID

from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus

from context.errors import UnavailableError
from context.ids import compaction_workflow_id, run_workflow_id
from context.standing import Standing
from workflows.dispatch import EXECUTION_MEMO, RPC_TIMEOUT, UNREACHABLE, is_no_such_workflow

CLOSED: dict[WorkflowExecutionStatus, Standing] = {
    WorkflowExecutionStatus.COMPLETED: "completed",
    WorkflowExecutionStatus.FAILED: "failed",
    WorkflowExecutionStatus.CANCELED: "canceled",
    WorkflowExecutionStatus.TERMINATED: "terminated",
    WorkflowExecutionStatus.TIMED_OUT: "timed_out",
}


class TemporalWatch:
    """The `Watch` of `context/standing.py` over a Temporal client."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def standing(self, run_id: UUID, execution_no: int) -> Standing:
        """How this execution stands. Raises UnavailableError."""
        found = await self._described(run_workflow_id(run_id))
        return "missing" if found is None else await _standing(found, execution_no)

    async def standing_of_compaction(self, episode_id: UUID) -> Standing:
        """How the workflow of an idle Session's episode stands; it has one execution. Raises UnavailableError."""
        found = await self._described(compaction_workflow_id(episode_id))
        if found is None or found.status is None:
            return "missing"
        return CLOSED.get(found.status, "open")

    async def _described(self, workflow_id: str) -> WorkflowExecutionDescription | None:
        """The newest execution, or None if Temporal knows of none."""
        try:
            return await self._client.get_workflow_handle(workflow_id).describe(rpc_timeout=RPC_TIMEOUT)
        except UNREACHABLE as error:
            if is_no_such_workflow(error):
                return None
            raise UnavailableError from None


async def _standing(found: WorkflowExecutionDescription, execution_no: int) -> Standing:
    """Whatever is open counts as life, and so does one that is being continued as new."""
    if found.status not in CLOSED:
        return "open"
    newest = await found.memo_value(EXECUTION_MEMO, None)
    return CLOSED[found.status] if newest == execution_no else "missing"

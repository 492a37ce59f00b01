"""After a death: the next workflow task is for any worker, not first for the one that died (decision 0125).

Temporal offers a workflow's tasks to the worker that knows it, and only after a time to others. A try that never
reported says that this worker is probably gone; if it only stood still, another one reads the history again.
"""

import logging
from datetime import timedelta

from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetStickyTaskQueueRequest
from temporalio.service import RPCError

LOG = logging.getLogger(__name__)
PATIENCE = timedelta(seconds=1)  # as long as what it saves


async def forget_dead_worker() -> None:
    """In a repeat: let any worker take this workflow's next task. For those whose last try never reported (SPEC R1)."""
    info = activity.info()
    if info.is_local or info.attempt == 1:
        return
    execution = WorkflowExecution(workflow_id=info.workflow_id or "", run_id=info.workflow_run_id or "")
    request = ResetStickyTaskQueueRequest(namespace=info.workflow_namespace or "", execution=execution)
    try:
        await activity.client().workflow_service.reset_sticky_task_queue(request, timeout=PATIENCE)
    except RPCError as error:  # the task then waits for its time, as it always did
        LOG.warning("the workflow of a lost call keeps its worker for now: %s", error.status.name)

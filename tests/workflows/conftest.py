"""RunWorkflow on a real server with scripted activities and a worker that remembers nothing between two tasks."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import FailureError
from temporalio.worker import Worker

from context.errors import AgentLoomError
from tests.workflows.fakes import ScriptedRun
from workflows.names import RUN_WORKFLOW
from workflows.registry import WORKFLOWS, data_converter, sandbox
from workflows.run_types import RunInput

Handle = WorkflowHandle[Any, Any]


@dataclass
class Stage:
    """A server and a queue on which scripted Runs are played."""

    client: Client
    task_queue: str

    @asynccontextmanager
    async def playing(self, run: ScriptedRun, **options: Any) -> AsyncIterator[None]:
        """A worker for this script. Every task replays the whole history: nothing may hide in a cache."""
        worker = Worker(
            self.client,
            task_queue=self.task_queue,
            workflows=WORKFLOWS,
            activities=run.activities,
            workflow_runner=sandbox(),
            workflow_failure_exception_types=[AgentLoomError],
            max_heartbeat_throttle_interval=timedelta(milliseconds=50),
            default_heartbeat_throttle_interval=timedelta(milliseconds=50),
            **({"max_cached_workflows": 0} | options),
        )
        async with worker:
            yield

    async def start(self, run_id: UUID | None = None) -> Handle:
        """Start an execution, as the sender does."""
        start = RunInput(run_id=run_id or uuid4(), execution_no=1)
        return await self.client.start_workflow(
            RUN_WORKFLOW,
            start,
            id=f"run/{start.run_id}",
            task_queue=self.task_queue,
            task_timeout=timedelta(seconds=2),
        )


async def closing(handle: Handle) -> tuple[WorkflowExecutionStatus | None, str | None]:
    """How the workflow closed: its status, and the type of its failure if it has one."""
    kind = None
    try:
        await handle.result()
    except WorkflowFailureError as failure:
        cause = failure.cause
        kind = getattr(cause, "type", None) if isinstance(cause, FailureError) else None
    return (await handle.describe()).status, kind


@pytest.fixture
async def stage(temporal_address: str, task_queue: str) -> Stage:
    """On the shared server."""
    return Stage(await Client.connect(temporal_address, data_converter=data_converter()), task_queue)

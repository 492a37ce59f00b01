"""The steps that Runs share: prepare a request, call the model, run a batch. Each is one activity or a few, with a
summary that says in numbers and names what the row in the Temporal UI did (SPEC W3), never content.
"""

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from temporalio import workflow

from activities.model_calls import CallModel, ModelCallActivities
from activities.requests import RequestActivities
from activities.runs import RunActivities, RunTerms
from activities.tool_calls import CallTool, ToolCallActivities, ToolVerdict
from context.episodes import CompactionVerdict
from context.ids import compaction_workflow_id, tool_operation_id
from context.steps import (
    FinishedRun,
    FinishRun,
    FreezeRequest,
    ModelVerdict,
    OpenRun,
    PreparedRequest,
    PrepareRequest,
    ToolPlan,
)
from workflows import options
from workflows.compaction import CompactionInput, CompactionWorkflow
from workflows.endings import Ending
from workflows.run_types import RunInput


async def open_run(start: RunInput) -> RunTerms:
    """The Run goes to `running`."""
    return await workflow.execute_local_activity_method(
        RunActivities.open_run,
        OpenRun(run_id=start.run_id, execution_no=start.execution_no),
        summary=f"open · execution {start.execution_no}",
        **options.COMMIT,
    )


async def prepare(request: PrepareRequest) -> PreparedRequest:
    """The request of one loop is listed, measured, frozen."""
    return await workflow.execute_local_activity_method(
        RequestActivities.prepare_request, request, summary=f"prepare #{request.loop}", **options.COMMIT
    )


async def compact(compaction: CompactionInput) -> CompactionVerdict:
    """The older part of the context is summarised by a child, whose history holds block and cursor (SPEC K1)."""
    return await workflow.execute_child_workflow(
        CompactionWorkflow.run,
        compaction,
        id=compaction_workflow_id(compaction.episode.episode_id),
        parent_close_policy=workflow.ParentClosePolicy.REQUEST_CANCEL,
        cancellation_type=workflow.ChildWorkflowCancellationType.TRY_CANCEL,
        task_timeout=options.TASK_TIMEOUT,
        static_summary="compaction",
    )


async def freeze(request: FreezeRequest) -> PreparedRequest:
    """The request that waited is frozen as its list is now."""
    return await workflow.execute_local_activity_method(
        RequestActivities.freeze_request, request, summary=f"freeze #{request.loop}", **options.COMMIT
    )


async def call_model(call: CallModel, prepared: PreparedRequest, *, loop: int, remaining_s: float) -> ModelVerdict:
    """One model call, visible with its size."""
    share = 100 * prepared.estimated // max(1, prepared.input_limit)
    more = f" · +{prepared.supplements} supplements" if prepared.supplements else ""
    return await workflow.execute_activity_method(
        ModelCallActivities.call_model,
        call,
        summary=f"model call #{loop} · {prepared.estimated}/{prepared.input_limit} tok ({share} %){more}",
        **options.model_call(remaining_s),
    )


async def run_tools(
    batch_id: UUID, plans: Sequence[ToolPlan], *, execution_no: int, at_once: int, deadline_at: float
) -> bool:
    """Run the calls of a batch, at most `at_once` together. False: a stop came first, or the deadline."""
    terms: dict[str, Any] = {"execution_no": execution_no, "deadline_at": deadline_at}
    places = asyncio.Semaphore(at_once)

    async def run(plan: ToolPlan) -> ToolVerdict:
        async with places:
            operation_id = tool_operation_id(batch_id, plan.ordinal)
            call = CallTool(operation_id=operation_id, durable=plan.durable, **terms)
            return await _run_tool(plan, call)

    verdicts = await asyncio.gather(*(run(plan) for plan in plans))
    return all(verdict.kind == "settled" for verdict in verdicts)


async def _run_tool(plan: ToolPlan, call: CallTool) -> ToolVerdict:
    summary = f"tool {plan.name}"
    if plan.local:
        verdict = await workflow.execute_local_activity_method(
            ToolCallActivities.call_tool, call, summary=summary, **options.local_tool_call(plan.timeout_s)
        )
        if verdict.kind != "alone":
            return verdict
    return await workflow.execute_activity_method(
        ToolCallActivities.call_tool, call, summary=summary, **options.tool_call(plan.timeout_s)
    )


async def finish(run_id: UUID, execution_no: int, ending: Ending, *, loop_budget: int = 0) -> FinishedRun:
    """The Run ends in the database, once; a late stop cannot interrupt that."""
    request = FinishRun(
        run_id=run_id,
        execution_no=execution_no,
        status=ending.status,
        end_reason=ending.end_reason,
        code=ending.code,
        message=ending.message,
        numbers=ending.numbers,
        loop_budget=loop_budget,
    )
    return await workflow.execute_local_activity_method(
        RunActivities.finish_run, request, summary=f"finish · {ending.end_reason}", **options.COMMIT
    )

"""A Run as a workflow (SPEC W): open, then prepare, call, run tools, until there is an answer or an end.

The workflow decides when; activities do; the database makes it true. Its state is ids and numbers. A stop is a
cancellation, looked at wherever it can arrive; whatever the end, `finish_run` is asked and its word stands.
"""

import asyncio
from datetime import timedelta
from typing import NoReturn
from uuid import UUID

from temporalio import workflow
from temporalio.common import SearchAttributeKey
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from activities.model_calls import CallModel
from activities.runs import RunTerms
from context.ids import model_operation_id
from context.steps import FinishedRun, ModelVerdict, PreparedRequest, PrepareRequest, ToolPlan
from workflows import loop as steps
from workflows.endings import (
    ANSWERED,
    STOPPED,
    Ending,
    RunEnds,
    broken_down,
    no_answer,
    out_of_loops,
    out_of_time,
    over_budget,
    refused,
)
from workflows.names import OUTCOME_ATTRIBUTE, RUN_WORKFLOW, STATE_QUERY, SUPPLEMENT_SIGNAL
from workflows.progress import current_details
from workflows.run_types import RunEnded, RunInput, RunSnapshot, RunState

OUTCOME = SearchAttributeKey.for_keyword(OUTCOME_ATTRIBUTE)


@workflow.defn(name=RUN_WORKFLOW)
class RunWorkflow:
    """One execution of a Run."""

    @workflow.init
    def __init__(self, start: RunInput) -> None:
        self._start = start
        self._state: RunState | None = start.state
        self._pending: set[int] = set(start.state.pending if start.state else ())
        self._deadline_s = 0

    @workflow.run
    async def run(self, start: RunInput) -> RunEnded:
        """Work until there is an end; then close as the Run ended (SPEC W3a)."""
        work = asyncio.create_task(self._work())
        try:
            finished = await self._in_time(work)
        except (asyncio.CancelledError, ActivityError) as error:
            ending = STOPPED if is_cancelled_exception(error) else broken_down(error)
            finished = await self._end(work, ending)
        except RunEnds as end:
            finished = await self._end(work, end.ending)
        return await self._close(finished)

    @workflow.signal(name=SUPPLEMENT_SIGNAL)
    def supplement(self, input_id: str, input_seq: int) -> None:
        """A nudge: the database holds an input of this number (SPEC S4). Twice, late or early is all the same."""
        if self._state is None or input_seq > self._state.cutoff:
            self._pending.add(input_seq)
            self._show()

    @workflow.query(name=STATE_QUERY)
    def state(self) -> RunSnapshot:
        """Where the Run stands."""
        if self._state is None:
            return RunSnapshot.model_validate(OPENING | {"pending": tuple(sorted(self._pending))})
        return RunSnapshot.model_validate(self._handed_on().model_dump())

    async def _in_time(self, work: "asyncio.Task[FinishedRun]") -> FinishedRun:
        """The work's result, unless the Run's active time ends first."""
        await workflow.wait_condition(lambda: self._state is not None or work.done())
        if self._state is None:
            return await work
        remaining = timedelta(seconds=max(0.0, self._remaining_s))
        try:
            await workflow.wait_condition(work.done, timeout=remaining, timeout_summary="deadline of the run")
        except TimeoutError:
            raise RunEnds(out_of_time(self._deadline_s)) from None
        return work.result()

    async def _work(self) -> FinishedRun:
        """Loop after loop, from where the database or the execution before left off."""
        terms = None if self._state else await steps.open_run(self._start)
        if terms is not None:
            self._take(terms)
            if terms.opened.answered:
                return await self._finish(ANSWERED)
            await self._run_tools(terms.unsettled)
        while True:
            verdict = await self._call_model(await self._prepare())
            finished = await self._follow(verdict)
            if finished is not None:
                return finished
            await self._hand_on_if_long()

    def _take(self, terms: RunTerms) -> None:
        opened = terms.opened
        remaining_s = terms.deadline_s - opened.active_ms / 1000
        self._deadline_s = round(terms.deadline_s)
        self._state = RunState(
            session_id=opened.session_id,
            context_id=opened.context_id,
            release_id=opened.release_id,
            agent=terms.agent,
            max_loops=terms.max_loops,
            max_parallel_tools=terms.max_parallel_tools,
            continue_late_input=terms.continue_late_input,
            deadline_at=workflow.now().timestamp() + remaining_s,
            loop=opened.loops,
            batch_id=opened.batch_id,
        )
        self._show()

    async def _prepare(self) -> PreparedRequest:
        state = self._known
        if state.loop >= state.max_loops:
            raise RunEnds(out_of_loops(state.max_loops))
        operation_id = model_operation_id(self._start.run_id, "root", state.loop + 1)
        self._move(phase="preparing", loop=state.loop + 1, operation_id=operation_id)
        request = self._request(operation_id)
        if state.harmless:
            prepared = await steps.settle_and_prepare(request, state.harmless, at_once=state.max_parallel_tools)
        else:
            prepared = await steps.prepare(request)
        if prepared.stopping:
            await self._cancellation()
        self._pending = {seq for seq in self._pending if seq > prepared.cutoff}
        numbers = {"cutoff": prepared.cutoff, "estimated": prepared.estimated, "input_limit": prepared.input_limit}
        self._move(batch_id=None, harmless=(), **numbers)
        if prepared.refused:
            raise RunEnds(refused(prepared))
        return prepared

    def _request(self, operation_id: UUID) -> PrepareRequest:
        state = self._known
        return PrepareRequest(
            context_id=state.context_id,
            release_id=state.release_id,
            execution_no=self._start.execution_no,
            operation_id=operation_id,
            loop=state.loop,
            batch_id=state.batch_id,
        )

    async def _call_model(self, prepared: PreparedRequest) -> ModelVerdict:
        self._move(phase="calling_model")
        state = self._known
        call = CallModel(
            operation_id=state.operation_id,
            release_id=state.release_id,
            view_id=prepared.view_id,
            view_length=prepared.view_length,
            execution_no=self._start.execution_no,
            deadline_at=state.deadline_at,
        )
        return await steps.call_model(call, prepared, loop=state.loop, remaining_s=self._remaining_s)

    async def _follow(self, verdict: ModelVerdict) -> FinishedRun | None:
        """What the answer leads to: an end, or None for one more loop."""
        match verdict.kind:
            case "answer":
                finished = await self._finish(ANSWERED)
                return None if finished.go_on else finished
            case "stopping":
                await self._cancellation()
            case "unusable" | "failed":
                raise RunEnds(no_answer(verdict))
        if verdict.over_budget:
            raise RunEnds(over_budget())
        if verdict.kind == "tools":
            self._move(batch_id=self._known.operation_id)
            await self._run_tools(verdict.tools)
        return None

    async def _run_tools(self, plans: tuple[ToolPlan, ...]) -> None:
        """Run a batch, unless no loop is left in which its results could be read.

        Calls that are short and harmless without exception are left to the next preparation, which makes them.
        """
        state = self._known
        if not plans:
            return
        if state.loop >= state.max_loops:
            raise RunEnds(out_of_loops(state.max_loops))
        self._move(phase="running_tools")
        if all(plan.local for plan in plans):
            self._move(harmless=plans)
            return
        execution_no, at_once = self._start.execution_no, state.max_parallel_tools
        if not await steps.run_tools(plans, execution_no=execution_no, at_once=at_once):
            await self._cancellation()

    @staticmethod
    async def _cancellation() -> None:
        """A stop is recorded, and its cancellation is on its way."""
        await workflow.wait_condition(lambda: False)

    async def _finish(self, ending: Ending) -> FinishedRun:
        self._move(phase="finishing")
        budget = self._known.max_loops if self._known.continue_late_input else 0
        return await steps.finish(self._start.run_id, self._start.execution_no, ending, loop_budget=budget)

    async def _end(self, work: "asyncio.Task[FinishedRun]", ending: Ending) -> FinishedRun:
        """End what is running, then the Run. A second cancellation must not interrupt that, hence a shielded task."""
        work.cancel()
        await workflow.wait([work])
        if self._state is not None:
            self._move(phase="stopping")
        finish = asyncio.create_task(steps.finish(self._start.run_id, self._start.execution_no, ending))
        return await asyncio.shield(finish)

    async def _close(self, finished: FinishedRun) -> RunEnded:
        """Complete, fail or be cancelled, as the Run did (SPEC W3a)."""
        workflow.upsert_search_attributes([OUTCOME.value_set(finished.status)])
        if finished.status == "succeeded":
            return RunEnded(status=finished.status, end_reason=finished.end_reason)
        if finished.status == "stopped":
            raise asyncio.CancelledError
        return self._fail(finished)

    @staticmethod
    def _fail(finished: FinishedRun) -> NoReturn:
        raise ApplicationError(f"run {finished.status}", type=finished.code or "INTERNAL", non_retryable=True)

    async def _hand_on_if_long(self) -> None:
        """Continue as new at this boundary, where nothing is open, when the history has grown long (SPEC W4)."""
        if workflow.info().is_continue_as_new_suggested():
            await workflow.wait_condition(workflow.all_handlers_finished)
            workflow.continue_as_new(self._start.model_copy(update={"state": self._handed_on()}))

    def _handed_on(self) -> RunState:
        return self._known.model_copy(update={"pending": tuple(sorted(self._pending))})

    @property
    def _known(self) -> RunState:
        assert self._state is not None
        return self._state

    @property
    def _remaining_s(self) -> float:
        return self._known.deadline_at - workflow.now().timestamp()

    def _move(self, **changes: object) -> None:
        self._state = self._known.model_copy(update=changes)
        self._show()

    def _show(self) -> None:
        if self._state is not None:
            workflow.set_current_details(current_details(self._handed_on()))


OPENING = {
    "phase": "opening",
    "loop": 0,
    "max_loops": 0,
    "cutoff": 0,
    "operation_id": None,
    "batch_id": None,
    "estimated": 0,
    "input_limit": 0,
}

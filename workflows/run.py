"""A Run as a workflow (SPEC W): open, then prepare, call, run tools, until there is an answer or an end.

The workflow decides when; activities do; the database makes it true. Its state is ids and numbers. A stop is a
cancellation, looked at wherever it can arrive; whatever the end, `finish_run` is asked and its word stands.
"""

import asyncio
import contextlib
from datetime import timedelta
from typing import Any, NoReturn
from uuid import UUID

from temporalio import workflow
from temporalio.common import SearchAttributeKey
from temporalio.exceptions import ApplicationError, ChildWorkflowError, FailureError, WorkflowAlreadyStartedError

from activities.model_calls import CallModel
from activities.runs import RunTerms
from context.episodes import CompactionVerdict, EpisodeRef
from context.errors import CompactionFailedError, ModelContextLengthError
from context.ids import model_operation_id
from context.steps import FinishedRun, FreezeRequest, ModelVerdict, PreparedRequest, PrepareRequest, ToolPlan
from workflows import changes, options
from workflows import loop as steps
from workflows.compaction import CompactionInput
from workflows.endings import (
    ANSWERED,
    STOPPED,
    Ending,
    RunEnds,
    broken_down,
    leaves_answer,
    no_answer,
    not_compacted,
    out_of_loops,
    out_of_time,
    over_budget,
    refused,
    why_ended,
)
from workflows.names import COMPACT_UPDATE, OUTCOME_ATTRIBUTE, RUN_WORKFLOW, STATE_QUERY, SUPPLEMENT_SIGNAL
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
        self._asked_to_compact = bool(start.state and start.state.asked_to_compact)
        self._is_ending = False

    @workflow.run
    async def run(self, start: RunInput) -> RunEnded:
        """Work until there is an end; then close as the Run ended (SPEC W3a)."""
        work = asyncio.create_task(self._work())
        try:
            finished = await self._in_time(work)
        except (asyncio.CancelledError, FailureError) as error:
            finished = await self._end(work, broken_down(error))
        except RunEnds as end:
            finished = await self._end(work, end.ending)
        return await self._close(finished)

    @workflow.signal(name=SUPPLEMENT_SIGNAL)
    def supplement(self, *nudge: Any) -> None:
        """A nudge, `(input_id, input_seq)`: the database holds an input of this number (SPEC S4).

        Twice, late or early is all the same. Anybody can send a signal by hand: what is no nudge is dropped, since an
        error here would fail the workflow task for ever.
        """
        match nudge:
            case (str(), int() as input_seq) if self._state is None or input_seq > self._state.cutoff:
                self._pending.add(input_seq)
                self._show()
            case (str(), int()):
                pass
            case _:
                workflow.logger.warning("A signal that is no nudge was dropped.")

    @workflow.update(name=COMPACT_UPDATE)
    async def compact(self) -> None:
        """The next request that is prepared is compacted first, if anything can be (SPEC K12)."""
        self._asked_to_compact = True

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
            raise RunEnds(out_of_time(self._known.deadline_s)) from None
        return work.result()

    async def _work(self) -> FinishedRun:
        """Loop after loop, from where the database or the execution before left off."""
        terms = None if self._state else await steps.open_run(self._start)
        if terms is not None:
            self._take(terms)
            late = {"serve_late": not terms.spent, "is_last": terms.spent}
            if terms.opened.answered and (finished := await self._answered(**late)):
                return finished
            if terms.spent:
                raise RunEnds(over_budget())
            await self._run_tools(terms.unsettled)
        while True:
            finished = await self._loop()
            if finished is not None:
                return finished
            await self._hand_on_if_long()

    async def _loop(self) -> FinishedRun | None:
        """One loop: the end that it led to, or None for one more."""
        prepared = await self._prepare()
        if prepared.nothing_new:
            self._move(loop=self._known.loop - 1)
            return await self._answered()
        if leaves_answer(prepared):
            return await self._answered(is_last=True)
        verdict = await self._call_model(prepared)
        if self._known.compact_once and verdict.code == ModelContextLengthError.code:
            self._move(last_error=verdict.code)
            verdict = await self._call_model(await self._after_overflow(), turn=2)
        return await self._follow(verdict)

    def _take(self, terms: RunTerms) -> None:
        opened = terms.opened
        remaining_s = terms.deadline_s - opened.active_ms / 1000
        self._asked_to_compact = self._asked_to_compact or opened.asked_to_compact
        self._state = RunState(
            session_id=opened.session_id,
            context_id=opened.context_id,
            release_id=opened.release_id,
            agent=terms.agent,
            max_loops=terms.max_loops,
            max_parallel_tools=terms.max_parallel_tools,
            continue_late_input=terms.continue_late_input,
            compact_once=terms.compact_once,
            deadline_at=workflow.now().timestamp() + remaining_s,
            deadline_s=round(terms.deadline_s),
            loop=opened.loops,
            batch_id=opened.batch_id,
        )
        self._show()

    async def _prepare(self) -> PreparedRequest:
        """The request of the next loop: frozen together with the end of the last one, or now."""
        return await self._admitted(self._known.prepared or await self._prepare_now())

    async def _admitted(self, prepared: PreparedRequest) -> PreparedRequest:
        """The request once it may be sent: after its compaction, if there is one."""
        if prepared.compact is not None:
            prepared = await self._compact(prepared, prepared.compact)
        if prepared.stopping:
            await self._cancellation()
        self._pending = {seq for seq in self._pending if seq > prepared.cutoff}
        numbers = {"cutoff": prepared.cutoff, "estimated": prepared.estimated, "input_limit": prepared.input_limit}
        self._move(batch_id=None, prepared=None, **numbers)
        if prepared.refused and not leaves_answer(prepared):
            raise RunEnds(refused(prepared))
        return prepared

    async def _after_overflow(self) -> PreparedRequest:
        """A new Operation for the same loop and cutoff, compacted by force; else the provider's word stands (B7)."""
        state, run_id, execution_no = self._known, self._start.run_id, self._start.execution_no
        operation_id = model_operation_id(run_id, "root", state.loop, 2, execution_no=execution_no)
        request = PrepareRequest(
            context_id=state.context_id,
            release_id=state.release_id,
            execution_no=execution_no,
            operation_id=operation_id,
            loop=state.loop,
            batch_id=None,
            asked="overflow",
            cutoff=state.cutoff,
        )
        self._move(phase="preparing", operation_id=operation_id)
        return await self._admitted(await steps.prepare(request))

    async def _compact(self, waiting: PreparedRequest, episode_id: UUID) -> PreparedRequest:
        """A summary first, in a child workflow; then the request that waited for it is frozen (SPEC K1)."""
        state, execution_no = self._known, self._start.execution_no
        assert state.operation_id is not None
        numbers = {"estimated": waiting.estimated, "input_limit": waiting.input_limit}
        self._move(phase="compacting", batch_id=None, **numbers)
        ref = EpisodeRef(episode_id=episode_id, release_id=state.release_id, execution_no=execution_no)
        request = FreezeRequest(
            context_id=state.context_id,
            release_id=state.release_id,
            execution_no=execution_no,
            operation_id=state.operation_id,
            loop=state.loop,
        )
        try:
            verdict = await steps.compact(CompactionInput(episode=ref, deadline_at=state.deadline_at))
        except (ChildWorkflowError, WorkflowAlreadyStartedError) as error:
            if self._is_ending or _is_cancelled():  # the end of the Run took the child along
                raise
            self._move(last_error=CompactionFailedError.code)
            return await self._without_summary(request, why_ended(error))
        if verdict.status == "succeeded" and verdict.code is None:
            return await steps.freeze(request)
        unsent = waiting.model_copy(update={"compact": None, "refused": verdict.code})
        if leaves_answer(unsent):
            return unsent
        raise RunEnds(not_compacted(verdict))

    @staticmethod
    async def _without_summary(request: FreezeRequest, reason: str) -> PreparedRequest:
        """The child was ended from outside, which is no stop: the request is sent if it fits (decision 0106)."""
        prepared = await steps.freeze(request.model_copy(update={"ended_outside": reason}))
        if prepared.refused == CompactionFailedError.code:
            raise RunEnds(not_compacted(CompactionVerdict(status="failed", code=prepared.refused, reason=reason)))
        return prepared

    async def _prepare_now(self) -> PreparedRequest:
        state = self._known
        if state.loop >= state.max_loops:
            raise RunEnds(out_of_loops(state.max_loops))
        request = self._next_request(state.batch_id)
        self._move(phase="preparing", loop=request.loop, operation_id=request.operation_id)
        prepared = await steps.prepare(request)
        self._asked_to_compact = self._asked_to_compact and request.asked is None  # done once a request said so
        return prepared

    def _next_request(self, batch_id: UUID | None) -> PrepareRequest:
        state, run_id, execution_no = self._known, self._start.run_id, self._start.execution_no
        return PrepareRequest(
            context_id=state.context_id,
            release_id=state.release_id,
            execution_no=execution_no,
            operation_id=model_operation_id(run_id, "root", state.loop + 1, execution_no=execution_no),
            loop=state.loop + 1,
            batch_id=batch_id,
            **({"asked": "manual"} if self._asked_to_compact else {}),
        )

    async def _call_model(self, prepared: PreparedRequest, *, turn: int = 1) -> ModelVerdict:
        self._move(phase="calling_model")
        state = self._known
        more: dict[str, Any] = {"asked_to_compact": True} if self._asked_to_compact else {}
        call = CallModel(
            run_id=self._start.run_id,
            release_id=state.release_id,
            execution_no=self._start.execution_no,
            loop=state.loop,
            deadline_at=state.deadline_at,
            may_go_on=state.loop < state.max_loops,
            at_once=state.max_parallel_tools,
            **more | ({"turn": turn} if turn > 1 else {}),
        )
        verdict = await steps.call_model(call, prepared, loop=state.loop, remaining_s=self._remaining_s)
        if verdict.next is not None and call.asked_to_compact:
            self._asked_to_compact = False
        return verdict

    async def _follow(self, verdict: ModelVerdict) -> FinishedRun | None:
        """What the answer leads to: an end, or None for one more loop."""
        match verdict.kind:
            case "answer":
                return await self._answered(is_last=verdict.over_budget)
            case "stopping":
                await self._cancellation()
            case "unusable" | "failed":
                size = {"estimated": self._known.estimated, "input_limit": self._known.input_limit}
                raise RunEnds(over_budget() if verdict.over_budget else no_answer(verdict, **size))
        if verdict.over_budget:
            raise RunEnds(over_budget())
        if verdict.next is not None:
            following = self._next_request(None)
            self._move(loop=following.loop, operation_id=following.operation_id, prepared=verdict.next)
        elif verdict.kind == "tools":
            self._move(batch_id=self._known.operation_id)
            await self._run_tools(verdict.tools)
        return None

    async def _run_tools(self, plans: tuple[ToolPlan, ...]) -> None:
        """Run a batch, unless no loop is left in which its results could be read."""
        state = self._known
        if not plans:
            return
        if state.loop >= state.max_loops:
            raise RunEnds(out_of_loops(state.max_loops))
        self._move(phase="running_tools")
        batch_id = state.batch_id
        assert batch_id is not None
        terms: dict[str, Any] = {"execution_no": self._start.execution_no, "deadline_at": state.deadline_at}
        if not await steps.run_tools(batch_id, plans, at_once=state.max_parallel_tools, **terms):
            await self._cancellation()

    @staticmethod
    async def _cancellation() -> None:
        """A stop is recorded, and its cancellation is on its way."""
        await workflow.wait_condition(lambda: False)

    async def _answered(self, *, serve_late: bool = False, is_last: bool = False) -> FinishedRun | None:
        """The end with the answer; None if a late input is served first: as the release wants it, and in a resume.

        `is_last`: nothing is served any more, since the answer took the last of the tokens or the money, or since what
        is late can't be sent (SPEC S7, L5).
        """
        self._move(phase="finishing")
        state = self._known
        serves = serve_late or (state.continue_late_input and not is_last)
        budget = state.max_loops if serves else 0
        finished = await steps.finish(self._start.run_id, self._start.execution_no, ANSWERED, loop_budget=budget)
        return None if finished.go_on else finished

    async def _end(self, work: "asyncio.Task[FinishedRun]", ending: Ending) -> FinishedRun:
        """End what is running, then the Run, whatever arrives meanwhile.

        Once its cancellation is here the Run was stopped, whatever its work came to in the same moment; what else says
        that it was cancelled is no stop (SPEC S8, W2).
        """
        ending = STOPPED if _is_cancelled() else ending
        self._is_ending = True
        work.cancel()
        await _done(work)
        if self._state is not None:
            self._move(phase="stopping", **({"last_error": ending.code} if ending.code else {}))
        finish = asyncio.create_task(steps.finish(self._start.run_id, self._start.execution_no, ending))
        await _done(finish)
        return finish.result()

    async def _close(self, finished: FinishedRun) -> RunEnded:
        """Complete, fail or be cancelled, as the Run did (SPEC W3a)."""
        workflow.upsert_search_attributes([OUTCOME.value_set(finished.status)])
        if finished.status == "succeeded":
            return RunEnded(status=finished.status, end_reason=finished.end_reason)
        if finished.status == "stopped":
            await self._until_cancelled()
            raise asyncio.CancelledError
        return self._fail(finished)

    @staticmethod
    async def _until_cancelled() -> None:
        """Only what was cancelled closes so; a stop from before the opening may arrive after it (decision 0112)."""
        if not _is_cancelled():
            with contextlib.suppress(TimeoutError):
                await workflow.wait_condition(
                    _is_cancelled, timeout=options.CANCELLATION, timeout_summary="cancellation by the stop"
                )

    @staticmethod
    def _fail(finished: FinishedRun) -> NoReturn:
        raise ApplicationError(f"run {finished.status}", type=finished.code or "INTERNAL", non_retryable=True)

    async def _hand_on_if_long(self) -> None:
        """Continue as new at this boundary, where nothing is open, when the history has grown long (SPEC W4)."""
        if workflow.info().is_continue_as_new_suggested() or _is_long():
            await workflow.wait_condition(workflow.all_handlers_finished)
            workflow.continue_as_new(self._start.model_copy(update={"state": self._handed_on()}))

    def _handed_on(self) -> RunState:
        more = {"pending": tuple(sorted(self._pending)), "asked_to_compact": self._asked_to_compact}
        return self._known.model_copy(update=more)

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


def _is_long() -> bool:
    """Whether taking this execution over would take too much of a task's time (decision 0129)."""
    is_long = workflow.info().get_current_history_length() > options.LONGEST_HISTORY
    return is_long and workflow.patched(changes.HANDS_ON_EARLY)


def _is_cancelled() -> bool:
    """Whether the cancellation of this workflow itself was asked for."""
    return workflow.cancellation_reason() is not None


async def _done(task: "asyncio.Task[FinishedRun]") -> None:
    """Wait for the task's end. A cancellation that comes now comes too late: the Run is being ended already."""
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await workflow.wait([task])
    if not task.cancelled():
        task.exception()  # how work that was cancelled ended is of no interest; unread, it would be logged


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

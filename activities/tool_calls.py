"""Calling a tool: commit the try, call, commit the result (DESIGN 3, `running_tools`; SPEC T2, T4, T9).

The same function runs as a regular activity and, for short harmless calls, as a local one. A try that began and never
reported is known by its attempt row: what may be repeated is repeated, the rest becomes `unknown`. What a process died
of may end the next one too. It is not made beside the workflow again, whose task would be lost with the process; and
from the second death on each process has a moment first for everything else that waits for it (decision 0093).
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Literal
from uuid import UUID

from temporalio import activity

from activities.answers import counted
from activities.failures import translated, try_again, until_stored
from activities.heartbeat import heartbeating
from activities.releases import Kit, Releases
from activities.stickiness import forget_dead_worker
from context.errors import AttemptSupersededError, UnavailableError
from context.messages import ChatMessage, ResultStatus
from context.steps import (
    BeginAttempt,
    Begun,
    Content,
    FailAttempt,
    RecordToolResult,
    Settled,
    Step,
    Stopping,
    ToolCallFacts,
    ToolFailure,
)
from context.tool_answers import ToolAnswered, ToolLost

if TYPE_CHECKING:
    from storage.run_commits import RunCommits

INTERRUPTED = "Unknown: this call was interrupted, by a stop or a crash; it may or may not have had its effect."
UNKNOWN = "Unknown: the connection to the tool was lost after the call was made; it may or may not have had its effect."
TIMED_OUT = "Unknown: the tool did not answer within its time limit; it may or may not have had its effect."
ANSWERED = (
    "Unknown: the server answered HTTP {status}, which leaves open whether the call had its effect. It said:\n{said}"
)
DIED = "Unknown: the worker died each time during this call; it may or may not have had its effect, perhaps many times."
MOST_TRIES = 5
DEADLY = 2  # deaths during one call; the first may have been anything: a crash, a rolling restart
PAUSE_S = 1.0
LONGEST_WISH_S = 600.0  # a server that wants more is not waited for: the model may have something better to do
MOST_HELD = 100  # results that wait for a database which is away; more than run at once

Ended = Literal["settled", "stopping", "alone"]


class CallTool(Step):
    """Makes one call of a batch. `deadline_at` is when the Run's time is used up, in seconds since 1970."""

    operation_id: UUID
    execution_no: int
    durable: bool = True
    deadline_at: float | None = None


class ToolVerdict(Step):
    """How a call ended: with a result, or not at all: because a stop came first, or as it must be made `alone`."""

    kind: Ended


class ToolCallActivities:
    """The one activity that runs tools."""

    def __init__(self, commits: "RunCommits", releases: Releases) -> None:
        self._commits = commits
        self._releases = releases
        self._held: OrderedDict[UUID, RecordToolResult] = OrderedDict()

    @activity.defn
    async def call_tool(self, call: CallTool) -> ToolVerdict:
        """One tool call, until its result is stored. A settled one is not made again."""
        async with translated(), heartbeating():
            return ToolVerdict(kind=await self.try_written_down(call, beside=activity.info().is_local))

    async def try_written_down(self, call: CallTool, *, beside: bool = False) -> Ended:
        """One more try, which is a fact before it is made; `beside` the workflow, if no process died of it before."""
        operation, until = (call.operation_id, call.execution_no), call.deadline_at
        attempt = BeginAttempt(*operation, durable=call.durable, deadline_at=until)
        match await self._commits.begin_tool_call(attempt):
            case Stopping():
                return "stopping"
            case Settled():
                await forget_dead_worker()
            case (begun, facts) if begun.lost and beside:
                await self._failed_try(facts.operation_id, begun, ToolFailure("not_started"))
                return "alone"
            case (begun, facts):
                if begun.lost:
                    await forget_dead_worker()
                async with self._nothing_sent_without_storage(facts.operation_id, begun):
                    kit = await self._releases.kit(facts.release_id)
                    await self.settle(kit, facts, execution_no=call.execution_no, begun=begun, deadline_at=until)
        return "settled"

    @asynccontextmanager
    async def _nothing_sent_without_storage(self, operation_id: UUID, begun: Begun) -> AsyncIterator[None]:
        """What needs the database before a call (its release, its secret) may not find it: then the call was not made.

        What comes after a call waits for the database instead.
        """
        try:
            yield
        except UnavailableError:
            await self._failed_try(operation_id, begun, ToolFailure("not_started"))
            raise

    async def settle(
        self,
        kit: Kit,
        facts: ToolCallFacts,
        *,
        execution_no: int,
        begun: Begun | None,
        deadline_at: float | None = None,
    ) -> None:
        """Make a call and store what came of it; `begun` is None for a harmless one that needs no attempt before."""
        made = await self.made(kit, facts, execution_no=execution_no, begun=begun, deadline_at=deadline_at)
        await self.record(made)

    async def made(
        self,
        kit: Kit,
        facts: ToolCallFacts,
        *,
        execution_no: int,
        begun: Begun | None,
        deadline_at: float | None = None,
    ) -> RecordToolResult:
        """Make a call: what is to be stored of it. A result that waits here to be stored is not asked for again.

        It does if the activity that brought it was given up while the database was away (SPEC 0, R2).
        """
        attempt_no = begun.attempt_no if begun else None
        if waiting := self._held.get(facts.operation_id):
            return replace(waiting, execution_no=execution_no, attempt_no=attempt_no)
        result = await self._newly_made(_Ended(kit, facts, execution_no, attempt_no), begun, deadline_at)
        self._held[facts.operation_id] = result
        if len(self._held) > MOST_HELD:
            self._held.popitem(last=False)
        return result

    def stored(self, result: RecordToolResult) -> None:
        """The result has become fact."""
        self._held.pop(result.operation_id, None)

    async def _newly_made(self, ended: "_Ended", begun: Begun | None, deadline_at: float | None) -> RecordToolResult:
        kit, facts = ended.kit, ended.facts
        lost = begun.lost if begun else 0
        if lost and not kit.tools.may_repeat_unknown(facts.name):
            return await ended.unknown(INTERRUPTED, ToolFailure("interrupted"))
        if lost >= MOST_TRIES:
            died = kit.tools.died(facts.name, tries=lost)
            return await (ended.unknown(DIED, died.failure) if died.may_have_run else ended.lost(died))
        if lost >= DEADLY:
            await asyncio.sleep(PAUSE_S)
        attempt_no = begun.attempt_no if begun else 1
        outcome = await kit.tools.call(facts, attempt=attempt_no, on_progress=_nothing)
        await self._commits.reach("call_tool.answered")
        if isinstance(outcome, ToolAnswered):
            return await ended.answered(outcome)
        if begun and outcome.may_repeat and attempt_no < MOST_TRIES and _in_time(outcome, deadline_at):
            await self._failed_try(facts.operation_id, begun, outcome.failure)
            raise try_again(outcome, attempt_no - 1)
        if outcome.may_have_run and not outcome.may_repeat:
            return await ended.unknown(_unknown_words(outcome), outcome.failure, outcome.said)
        return await ended.lost(outcome)

    async def record(self, result: RecordToolResult) -> None:
        """Store the result, however long that takes. Raises AttemptSupersededError if it came too late to count."""
        if not await until_stored(lambda: self._commits.record_tool_result(result)):
            raise AttemptSupersededError
        self.stored(result)

    async def _failed_try(self, operation_id: UUID, begun: Begun, why: ToolFailure) -> None:
        """This try is over and known to be: the next one must not take it for an interrupted one."""
        failed = FailAttempt(
            operation_id=operation_id,
            attempt_no=begun.attempt_no,
            request_hash=None,
            **asdict(why),
            verdict=None,
        )
        await until_stored(lambda: self._commits.fail_attempt(failed))


@dataclass(frozen=True)
class _Ended:
    """How one call ended, as it is stored."""

    kit: Kit
    facts: ToolCallFacts
    execution_no: int
    attempt_no: int | None

    async def answered(self, answer: ToolAnswered) -> RecordToolResult:
        """The tool's own word, good or bad."""
        return await self._result("accepted", answer.content, "error" if answer.failed else None, answer)

    async def unknown(self, words: str, why: ToolFailure, said: ToolAnswered | None = None) -> RecordToolResult:
        """The effect may have happened; nobody knows, and nobody tries again (SPEC T4)."""
        return await self._result("unknown", words, "unknown", said, failure=why)

    async def lost(self, lost: ToolLost) -> RecordToolResult:
        """No further try: the model is told that the tool could not be asked, or what its server said instead."""
        return await self._result("failed", lost.content, "error", lost.said, failure=lost.failure)

    async def _result(
        self,
        state: Literal["accepted", "failed", "unknown"],
        content: str,
        status: ResultStatus | None,
        answer: ToolAnswered | None = None,
        failure: ToolFailure | None = None,
    ) -> RecordToolResult:
        facts, counter = self.facts, self.kit.model.counter
        message = ChatMessage(role="tool", content=content, tool_call_id=facts.call_id, name=facts.name, status=status)
        return RecordToolResult(
            operation_id=facts.operation_id,
            call_id=facts.call_id,
            execution_no=self.execution_no,
            attempt_no=self.attempt_no,
            state=state,
            status=status,
            raw=Content(answer.raw) if answer else None,
            message=await counted(counter, message),
            estimator_id=counter.estimator_id,
            whole=Content(answer.whole.encode()) if answer and answer.whole is not None else None,
            artifacts=tuple((kind, Content(body)) for kind, body in answer.artifacts) if answer else (),
            transforms=answer.transforms if answer else (),
            raw_media_type=answer.raw_media_type if answer else None,
            failure=failure,
        )


def _in_time(lost: ToolLost, deadline_at: float | None) -> bool:
    """Whether the pause that the server asks for leaves the Run time for another try (SPEC L2, T9)."""
    pause = lost.retry_after_s or 0
    return pause <= LONGEST_WISH_S and (deadline_at is None or time.time() + pause < deadline_at)


def _unknown_words(lost: ToolLost) -> str:
    if lost.said is not None:
        return ANSWERED.format(status=lost.status, said=lost.content)
    return TIMED_OUT if lost.reason == "timeout" else UNKNOWN


def _nothing() -> None:
    """Heartbeats go on by themselves while the tool runs."""

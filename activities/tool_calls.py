"""Calling a tool: commit the try, call, commit the result (DESIGN 3, `running_tools`; SPEC T2, T4, T9).

The same function runs as a regular activity and, for short harmless calls, as a local one. A try that began and never
reported is known by its attempt row: what may be repeated is repeated, the rest becomes `unknown`.
"""

from typing import TYPE_CHECKING, Literal
from uuid import UUID

from temporalio import activity

from activities.answers import counted
from activities.failures import translated, try_again, until_stored
from activities.heartbeat import heartbeating
from activities.releases import Kit, Releases
from context.messages import ChatMessage, ResultStatus
from context.steps import (
    BeginAttempt,
    Begun,
    Content,
    FailAttempt,
    RecordToolResult,
    Step,
    Stopping,
    ToolAnswered,
    ToolCallFacts,
    ToolLost,
)

if TYPE_CHECKING:
    from storage.run_commits import RunCommits

UNKNOWN = "Unknown: the connection to the tool was lost after the call was made; it may or may not have had its effect."
MOST_TRIES = 5


class CallTool(Step):
    """Makes one call of a batch."""

    operation_id: UUID
    execution_no: int
    durable: bool = True


class ToolVerdict(Step):
    """How a call ended: with a result, or not at all because a stop came first."""

    kind: Literal["settled", "stopping"]


class ToolCallActivities:
    """The one activity that runs tools."""

    def __init__(self, commits: "RunCommits", releases: Releases) -> None:
        self._commits = commits
        self._releases = releases

    @activity.defn
    async def call_tool(self, call: CallTool) -> ToolVerdict:
        """One tool call, until its result is stored. A settled one is not made again."""
        async with translated(), heartbeating():
            attempt = BeginAttempt(call.operation_id, call.execution_no, durable=call.durable)
            match await self._commits.begin_tool_call(attempt):
                case Stopping():
                    return ToolVerdict(kind="stopping")
                case (begun, facts):
                    kit = await self._releases.kit(facts.release_id)
                    await self._settle(kit, call, facts, begun)
            return ToolVerdict(kind="settled")

    async def _settle(self, kit: Kit, call: CallTool, facts: ToolCallFacts, begun: Begun) -> None:
        if begun.interrupted and not kit.tools.may_repeat_unknown(facts.name):
            await self._record(kit, call, facts, begun, state="unknown", content=UNKNOWN, status="unknown")
            return
        outcome = await kit.tools.call(facts, attempt=begun.attempt_no, on_progress=_nothing)
        await self._commits.reach("call_tool.answered")
        if isinstance(outcome, ToolAnswered):
            status: ResultStatus | None = "error" if outcome.failed else None
            await self._record(
                kit, call, facts, begun, state="accepted", content=outcome.content, status=status, answer=outcome
            )
        elif outcome.may_repeat and begun.attempt_no < MOST_TRIES:
            await self._note(begun, call)
            raise try_again(outcome, begun.attempt_no - 1)
        else:
            await self._lose(kit, call, facts, begun, outcome)

    async def _note(self, begun: Begun, call: CallTool) -> None:
        """This try is over and known to be: the next one must not take it for an interrupted one."""
        failed = FailAttempt(
            operation_id=call.operation_id,
            attempt_no=begun.attempt_no,
            code="TOOL_UNAVAILABLE",
            reason="unavailable",
            status=0,
            verdict=None,
        )
        await until_stored(lambda: self._commits.fail_attempt(failed))

    async def _lose(self, kit: Kit, call: CallTool, facts: ToolCallFacts, begun: Begun, lost: ToolLost) -> None:
        """No further try: an effect that may have happened is unknown, everything else is an error to be told."""
        if lost.may_have_run and not lost.may_repeat:
            await self._record(kit, call, facts, begun, state="unknown", content=UNKNOWN, status="unknown")
        else:
            await self._record(kit, call, facts, begun, state="failed", content=lost.content, status="error")

    async def _record(
        self,
        kit: Kit,
        call: CallTool,
        facts: ToolCallFacts,
        begun: Begun,
        *,
        state: Literal["accepted", "failed", "unknown"],
        content: str,
        status: ResultStatus | None,
        answer: ToolAnswered | None = None,
    ) -> None:
        message = ChatMessage(role="tool", content=content, tool_call_id=facts.call_id, name=facts.name, status=status)
        result = RecordToolResult(
            operation_id=call.operation_id,
            run_id=facts.run_id,
            execution_no=call.execution_no,
            attempt_no=begun.attempt_no,
            state=state,
            status=status,
            raw=Content(answer.raw) if answer else None,
            message=await counted(kit.model.counter, message),
            estimator_id=kit.model.counter.estimator_id,
            whole=Content(answer.whole.encode()) if answer and answer.whole is not None else None,
            artifacts=tuple((kind, Content(body)) for kind, body in answer.artifacts) if answer else (),
        )
        await until_stored(lambda: self._commits.record_tool_result(result))


def _nothing() -> None:
    """Heartbeats go on by themselves while the tool runs."""

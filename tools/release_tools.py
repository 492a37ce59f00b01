"""The tools of one release as its activities use them: may a call be made, what did it bring (SPEC T3, T4, T5)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from context.messages import arguments_object
from context.policy import FrozenTool, ResultSettings
from context.steps import ToolCallFacts
from context.stored_keys import KnownSecrets
from context.tool_answers import ToolAccepted, ToolAnswered, ToolLost, ToolRefused
from tools.arguments import NO_OBJECT, Refused, checked_beside, is_large, unknown_tool
from tools.errors import ToolUnavailableError
from tools.offload import never_offloaded, preview
from tools.outcomes import error_content, unavailable_outcome, without_credentials
from tools.port import ToolInvocation, ToolOutcome, may_repeat
from tools.registry import ToolBox
from tools.running import run_within_limit


class ReleaseTools:
    """One release's tools. `work_root` holds the private folder of each Run (SPEC T10).

    `known_secrets` are replaced in whatever a tool brings, whichever of them it was called with (SPEC Y3, L6).
    """

    def __init__(self, box: ToolBox, results: ResultSettings, *, work_root: Path, known_secrets: KnownSecrets) -> None:
        self._box = box
        self._results = results
        self._work_root = work_root
        self._known_secrets = known_secrets
        self._large: dict[str, bool] = {}

    async def check(self, name: str, arguments: str) -> ToolAccepted | ToolRefused:
        """Whether a call may be made, by name and by the argument text the model wrote; nothing is guessed."""
        tool = self._box.get(name)
        if tool is None:
            return ToolRefused(unknown_tool(name, self._box.names).content)
        if name not in self._large:
            self._large[name] = is_large(tool.frozen.parameters)
        verdict = await checked_beside(arguments, tool.frozen.parameters, large=self._large[name])
        if isinstance(verdict, Refused):
            return ToolRefused(verdict.content)
        return ToolAccepted(tool.frozen.effect, tool.frozen.timeout_s, is_local(tool.frozen))

    def known(self, name: str) -> ToolAccepted | None:
        """How a call that was accepted before is run, or None if the release has no such tool."""
        tool = self._box.get(name)
        return ToolAccepted(tool.frozen.effect, tool.frozen.timeout_s, is_local(tool.frozen)) if tool else None

    def may_repeat_unknown(self, name: str) -> bool:
        """Whether a call whose outcome is unknown may be made again (SPEC T4)."""
        tool = self._box.get(name)
        return tool is not None and (tool.frozen.effect != "side_effect" or tool.frozen.retry_unknown)

    def died(self, name: str, *, tries: int) -> ToolLost:
        """What is said of a call during which the process died time after time: it is made no more (SPEC T9)."""
        tool = self._box.get(name)
        may_have_run = tool is None or tool.frozen.effect != "read_only"
        words = f"The worker died during this call, {tries} times in a row; it is not made again. Do without it."
        return ToolLost(
            may_repeat=False,
            may_have_run=may_have_run,
            retry_after_s=None,
            content=error_content("WorkerDied", words),
            reason="interrupted",
            status=0,
        )

    async def call(
        self, facts: ToolCallFacts, *, attempt: int, on_progress: Callable[[], None]
    ) -> ToolAnswered | ToolLost:
        """Make one try at a call whose arguments were accepted; they were checked with the answer they came with."""
        tool = self._box.get(facts.name)
        if tool is None:
            return _refused(unknown_tool(facts.name, self._box.names))
        arguments = arguments_object(facts.arguments)
        if arguments is None:
            return _refused(NO_OBJECT)
        invocation = self._invocation(facts, arguments, attempt)
        secrets = await self._known_secrets()  # before the call: nothing behind it may fail
        try:
            outcome = await run_within_limit(tool, invocation, on_progress=on_progress)
        except ToolUnavailableError as error:
            return self._lost(tool.frozen, error, facts.operation_id, secrets)
        return self._answered(tool.frozen, without_credentials(outcome, *secrets), facts.operation_id)

    def _invocation(self, facts: ToolCallFacts, arguments: dict[str, Any], attempt: int) -> ToolInvocation:
        work_dir = self._work_root / str(facts.run_id)
        return ToolInvocation(
            operation_id=facts.operation_id,
            call_id=facts.call_id,
            name=facts.name,
            arguments=arguments,
            run_id=facts.run_id,
            session_id=facts.session_id,
            work_dir=work_dir,
            attempt=attempt,
        )

    def _answered(self, tool: FrozenTool, outcome: ToolOutcome, operation_id: UUID) -> ToolAnswered:
        shown = outcome.content
        if not never_offloaded(tool):
            shown = preview(
                outcome.content,
                max_result_chars=self._results.max_result_chars,
                preview_chars=self._results.preview_chars,
                result_ref=str(operation_id),
            )
        return ToolAnswered(
            failed=outcome.status == "error",
            content=shown,
            raw=outcome.raw,
            whole=outcome.content if shown != outcome.content else None,
            artifacts=tuple((artifact.media_type, artifact.body) for artifact in outcome.artifacts),
            transforms=outcome.transforms,
            raw_media_type=outcome.raw_media_type,
        )

    def _lost(
        self, tool: FrozenTool, error: ToolUnavailableError, operation_id: UUID, secrets: frozenset[str]
    ) -> ToolLost:
        outcome = without_credentials(unavailable_outcome(error), *secrets)
        answer = self._answered(tool, outcome, operation_id)
        return ToolLost(
            may_repeat=may_repeat(tool, error),
            may_have_run=error.may_have_run,
            retry_after_s=error.retry_after_s,
            content=answer.content,
            reason=error.reason,
            status=error.status,
            said=answer if error.said is not None else None,
        )


def is_local(tool: FrozenTool) -> bool:
    """Whether a call runs beside the workflow: in this process, and harmless to make twice (DESIGN 3)."""
    return tool.kind == "builtin" or (tool.kind == "python" and tool.effect == "read_only")


def _refused(refusal: Refused) -> ToolAnswered:
    return ToolAnswered(True, refusal.content, refusal.content.encode())

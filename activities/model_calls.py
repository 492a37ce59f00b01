"""Calling a model: rebuild the frozen request, commit the try, call, commit what came (DESIGN 3, `calling_model`).

A result that was received is stored, however long that takes; the call is repeated only if there is none (SPEC R2).
"""

import time
from typing import TYPE_CHECKING
from uuid import UUID

from temporalio import activity

from activities.answers import accepted_answer
from activities.failures import translated, try_again, until_stored
from activities.heartbeat import heartbeating
from activities.releases import Kit, Releases
from context.errors import CallIdsTakenError, ModelContextLengthError, ModelFailedError
from context.steps import (
    BeginAttempt,
    Begun,
    Content,
    FailAttempt,
    ModelAnswered,
    ModelBroke,
    ModelVerdict,
    RecordFirstOutput,
    Step,
    Stopping,
)

if TYPE_CHECKING:
    from storage.requests import FrozenRequest
    from storage.run_commits import RunCommits


class CallModel(Step):
    """Calls the model for a frozen request. `deadline_at` is when the Run's time is used up, in seconds since 1970."""

    operation_id: UUID
    execution_no: int
    deadline_at: float | None = None


class ModelCallActivities:
    """The one activity that talks to models."""

    def __init__(self, commits: "RunCommits", releases: Releases) -> None:
        self._commits = commits
        self._releases = releases

    @activity.defn
    async def call_model(self, call: CallModel) -> ModelVerdict:
        """One model call, from its frozen request to its verdict. A settled one is not made again."""
        async with translated(), heartbeating():
            request = await self._commits.frozen_request(call.operation_id)
            kit = await self._releases.kit(request.release_id)
            body, digest = await self._body(kit, request)
            begun = await self._begin(call, digest)
            if isinstance(begun, ModelVerdict):
                return begun
            answer = await kit.model.complete(body, on_first_output=lambda: self._first_output(request, begun))
            if isinstance(answer, ModelBroke):
                return await self._failed(kit, call, begun, answer)
            return await self._accept(kit, call, request, begun, answer)

    async def _body(self, kit: Kit, request: "FrozenRequest") -> tuple[bytes, bytes]:
        """The wire body and its hash. Only what this process has not sent before is read."""
        view_id, length = request.view_id, request.view_length
        known = kit.model.known_length(view_id)
        start = known if known <= length else 0
        return kit.model.grown_body(view_id, length, await self._commits.messages(view_id, start, length))

    async def _begin(self, call: CallModel, digest: bytes) -> Begun | ModelVerdict:
        begun = await self._commits.begin_attempt(BeginAttempt(call.operation_id, call.execution_no, digest))
        if isinstance(begun, Begun):
            return begun
        if isinstance(begun, Stopping):
            return ModelVerdict(kind="stopping")
        settled = await self._commits.frozen_request(call.operation_id)
        return ModelVerdict.model_validate(settled.verdict)

    async def _first_output(self, request: "FrozenRequest", begun: Begun) -> None:
        """Evidence first, while the stream goes on; without waiting inputs it can come with the result."""
        if request.claims:
            evidence = RecordFirstOutput(request.operation_id, request.run_id, begun.attempt_no)
            await until_stored(lambda: self._commits.record_first_output(evidence))

    async def _accept(
        self, kit: Kit, call: CallModel, request: "FrozenRequest", begun: Begun, answer: ModelAnswered
    ) -> ModelVerdict:
        numbers = {"execution_no": call.execution_no, "attempt_no": begun.attempt_no}
        accepted = await accepted_answer(kit, request, answer, **numbers, taken=frozenset())
        await self._commits.reach("call_model.answered")
        try:
            return await until_stored(lambda: self._commits.accept_model(accepted))
        except CallIdsTakenError as repeated:
            renamed = await accepted_answer(kit, request, answer, **numbers, taken=repeated.taken)
            return await until_stored(lambda: self._commits.accept_model(renamed))

    async def _failed(self, kit: Kit, call: CallModel, begun: Begun, broke: ModelBroke) -> ModelVerdict:
        """Store the failure; then either another try, or the end of the Operation."""
        before = await until_stored(lambda: self._commits.failures(call.operation_id))
        policy = kit.release.definition.model.retry
        pause = broke.retry_after_s or 0
        out_of_tries = before.count + 1 >= policy.max_attempts or before.elapsed_s + pause > policy.max_elapsed_s
        too_late = call.deadline_at is not None and time.time() + pause > call.deadline_at
        final = not broke.retryable or out_of_tries or too_late
        verdict = _failure(broke) if final else None
        failed = FailAttempt(
            operation_id=call.operation_id,
            attempt_no=begun.attempt_no,
            code=ModelFailedError.code,
            reason=broke.reason,
            status=broke.status,
            verdict=verdict,
            fragment=Content(broke.fragment) if broke.fragment else None,
        )
        await until_stored(lambda: self._commits.fail_attempt(failed))
        if verdict is None:
            raise try_again(broke, before.count)
        return verdict


def _failure(broke: ModelBroke) -> ModelVerdict:
    """The end of a model call that can't be made: the provider's own overflow has its own code (SPEC B7, L2)."""
    if broke.reason == "context_length":
        overflow = ModelContextLengthError
        return ModelVerdict(kind="failed", end_reason=overflow.end_reason, code=overflow.code, status=broke.status)
    return ModelVerdict(kind="failed", end_reason=broke.reason, code=ModelFailedError.code, status=broke.status)

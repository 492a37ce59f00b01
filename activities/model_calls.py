"""Calling a model: rebuild the frozen request, commit the try, call, commit what came (DESIGN 3, `calling_model`).

A result that was received is stored, however long that takes; the call is repeated only if there is none (SPEC R2).
"""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from temporalio import activity

from activities.answers import Tried, accepted_answer, open_calls
from activities.batches import Batches
from activities.failures import translated, until_stored
from activities.heartbeat import heartbeating
from activities.model_breaks import ModelTry, leaving_hash, settle_break, spent_before
from activities.releases import Kit, Releases
from activities.stickiness import forget_dead_worker
from activities.used import answer_used, break_used
from activities.written import noting_written
from context.errors import CallIdsTakenError, SupersededError
from context.ids import model_operation_id, root_context_id
from context.steps import (
    AcceptModel,
    BeginAttempt,
    Begun,
    ModelAnswered,
    ModelBroke,
    ModelVerdict,
    PrepareRequest,
    RecordFirstOutput,
    Step,
    Stopping,
    ToolCallFacts,
)

if TYPE_CHECKING:
    from storage.requests import FrozenRequest
    from storage.run_commits import RunCommits


class CallModel(Step):
    """Calls the model for a frozen request. `deadline_at` is when the Run's time is used up, in seconds since 1970.

    If the answer asks for nothing but short harmless calls and `may_go_on`, they are made at once, `at_once` of them
    together, and the request of the next loop is frozen too, or compacted first if that was asked for. `turn` 2 follows
    a forced compaction. The ids are derived, since each byte of a step is kept.
    """

    run_id: UUID
    release_id: UUID
    execution_no: int
    loop: int
    turn: int = 1
    deadline_at: float | None = None
    may_go_on: bool = False
    at_once: int = 1
    asked_to_compact: bool = False

    @property
    def operation_id(self) -> UUID:
        """The Operation whose request is sent."""
        return model_operation_id(self.run_id, "root", self.loop, self.turn, execution_no=self.execution_no)

    def following(self, batch_id: UUID | None) -> PrepareRequest | None:
        """The preparation of the next loop, if there may be one."""
        if not self.may_go_on:
            return None
        return PrepareRequest(
            context_id=root_context_id(self.run_id),
            release_id=self.release_id,
            execution_no=self.execution_no,
            operation_id=model_operation_id(self.run_id, "root", self.loop + 1, execution_no=self.execution_no),
            loop=self.loop + 1,
            batch_id=batch_id,
            **({"asked": "manual"} if self.asked_to_compact else {}),
        )


class ModelCallActivities:
    """The one activity that talks to models."""

    def __init__(self, commits: "RunCommits", releases: Releases, batches: Batches) -> None:
        self._commits = commits
        self._releases = releases
        self._batches = batches

    @activity.defn
    async def call_model(self, call: CallModel) -> ModelVerdict:
        """One model call, from its frozen request to its verdict. A settled one is not made again."""
        async with translated(), heartbeating():
            kit = await self._releases.kit(call.release_id)
            outcome = await self._call(kit, call)
            return await self._follow(kit, call, outcome)

    async def _call(self, kit: Kit, call: CallModel) -> "_Outcome":
        request = await self._request(kit, call)
        if request.verdict or request.stopping:
            await forget_dead_worker()
            return _Outcome(_standing(request))
        place = (request.context_id, request.view_id, request.view_length, request.start)
        body, digest = kit.model.grown_body(*place, request.new)
        begun = await self._permit(call, request, digest)
        if isinstance(begun, ModelVerdict):
            return _Outcome(begun)
        tried, limits = (
            ModelTry(call.operation_id, begun.attempt_no, digest, call.deadline_at),
            kit.release.definition.limits,
        )
        if over := await spent_before(self._commits, limits, tried):
            return _Outcome(over)
        async with (
            leaving_hash(self._commits, call.operation_id, digest),
            noting_written(self._commits, kit.model, tried) as watch,
        ):
            evidence = partial(self._first_output, request, begun, digest)
            answer = await kit.model.complete(body, on_first_output=evidence, watch=watch)
        if isinstance(answer, ModelBroke):
            broke = await break_used(self._commits, kit.model, call.operation_id, answer)
            return _Outcome(await settle_break(self._commits, kit.model.retry, limits, tried, broke))
        answer = await answer_used(self._commits, kit.model, call.operation_id, answer)
        return await self._accept(kit, call, request, begun, answer, digest)

    async def _follow(self, kit: Kit, call: CallModel, outcome: "_Outcome") -> ModelVerdict:
        """Where nothing is left to be decided, go on to the next frozen request; the workflow learns of both."""
        verdict = outcome.verdict
        following = call.following(call.operation_id if verdict.batch else None)
        if following is None or verdict.over_budget or verdict.kind not in ("tools", "again"):
            return verdict
        if not all(plan.local for plan in verdict.tools):
            return verdict
        prepared = await self._batches.settle_and_prepare(
            kit, following, outcome.open_calls, size=verdict.batch, at_once=call.at_once, deadline_at=call.deadline_at
        )
        return verdict.model_copy(update={"next": prepared})

    async def _request(self, kit: Kit, call: CallModel) -> "FrozenRequest":
        """The frozen request, with those messages that this process does not have in wire form yet.

        While it is read, another try may grow the list, and many other Runs may push it out: then it is read whole.
        """
        context_id = root_context_id(call.run_id)
        held = kit.model.held(context_id)
        key: dict[str, Any] = {"operation_id": call.operation_id, "execution_no": call.execution_no}
        # The permit of the preparation is for the first go at it; each further one begins a try of its own.
        is_first = activity.info().attempt == 1
        read = self._commits.take_up_request if is_first else self._commits.frozen_request
        request = await read(**key, held=held)
        if request.start and kit.model.held(context_id) != held:
            return await self._commits.frozen_request(**key)
        return request

    async def _permit(self, call: CallModel, request: "FrozenRequest", digest: bytes) -> Begun | ModelVerdict:
        """The first try has its permit from the preparation; each further one is committed before it is made."""
        if activity.info().attempt == 1 and request.attempts == 1 and request.state == "calling" and request.owned:
            return Begun(attempt_no=1)
        begun = await self._commits.begin_attempt(self._attempt(call, digest))
        if isinstance(begun, Begun):
            if begun.lost:
                await forget_dead_worker()
            return begun
        if isinstance(begun, Stopping):
            return ModelVerdict(kind="stopping")
        return _standing(await self._commits.frozen_request(call.operation_id, execution_no=call.execution_no))

    @staticmethod
    def _attempt(call: CallModel, digest: bytes) -> BeginAttempt:
        return BeginAttempt(call.operation_id, call.execution_no, digest, deadline_at=call.deadline_at)

    async def _first_output(self, request: "FrozenRequest", begun: Begun, digest: bytes) -> None:
        """Evidence first, while the stream goes on; without waiting inputs it can come with the result."""
        if request.claims:
            evidence = RecordFirstOutput(request.operation_id, request.run_id, begun.attempt_no, digest)
            await until_stored(lambda: self._commits.record_first_output(evidence))

    async def _accept(
        self, kit: Kit, call: CallModel, request: "FrozenRequest", begun: Begun, answer: ModelAnswered, digest: bytes
    ) -> "_Outcome":
        tried = Tried(call.execution_no, begun.attempt_no, digest)
        accepted = await accepted_answer(kit, request, answer, tried, taken=frozenset())
        await self._commits.reach("call_model.answered")
        try:
            return await self._stored(request, accepted)
        except CallIdsTakenError as repeated:
            renamed = await accepted_answer(kit, request, answer, tried, taken=repeated.taken)
            return await self._stored(request, renamed)

    async def _stored(self, request: "FrozenRequest", accepted: AcceptModel) -> "_Outcome":
        acceptance = await until_stored(lambda: self._commits.accept_model(accepted))
        return _Outcome(acceptance.verdict, open_calls(request, accepted) if acceptance.may_go_on else None)


@dataclass(frozen=True)
class _Outcome:
    """What a call came to. `open_calls` are known where they became fact just now, and may be made."""

    verdict: ModelVerdict
    open_calls: tuple[ToolCallFacts, ...] | None = None


def _standing(request: "FrozenRequest") -> ModelVerdict:
    """What stands already: the verdict of a settled call, or a recorded stop."""
    if request.verdict:
        return ModelVerdict.model_validate(request.verdict)
    if request.stopping:
        return ModelVerdict(kind="stopping")
    raise SupersededError

"""A compaction as a workflow (SPEC K1): plan, block after block, publish; its state is the number of finished blocks.

Each finished block is committed with the cursor before the next begins, so that whatever dies, it goes on there. Its
end is a value: only a cancellation leaves it otherwise.
"""

import asyncio
import contextlib

from pydantic import BaseModel, ConfigDict
from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from activities.compactions import CompactionActivities
from context.episodes import BlockVerdict, CompactionVerdict, EpisodePlan, EpisodeRef, FailEpisode, SummariseBlock
from context.errors import BudgetExhaustedError, CompactionFailedError
from workflows import options
from workflows.names import COMPACTION_WORKFLOW

LONGEST_S = 86_400.0


class CompactionInput(BaseModel):
    """Starts an episode's workflow. `deadline_at` is when the Run's time is used up, in seconds since 1970."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    episode: EpisodeRef
    deadline_at: float | None = None


class _Fails(Exception):
    """Leaves the steps of an episode that comes to no summary."""

    def __init__(self, code: str, reason: str, block: int | None = None) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.block = block


@workflow.defn(name=COMPACTION_WORKFLOW)
class CompactionWorkflow:
    """One episode."""

    @workflow.init
    def __init__(self, start: CompactionInput) -> None:
        self._start = start

    @workflow.run
    async def run(self, start: CompactionInput) -> CompactionVerdict:
        """Work until there is a summary or a reason why not."""
        try:
            return await self._work()
        except (asyncio.CancelledError, ActivityError) as error:
            if not is_cancelled_exception(error):
                return await self._fail(_Fails(*_inside(error)), "failed")
            await self._fail(_Fails(CompactionFailedError.code, "cancelled"), "cancelled")
            raise
        except _Fails as failure:
            return await self._fail(failure, "failed")

    async def _work(self) -> CompactionVerdict:
        plan = await self._plan()
        if plan.code is not None:
            raise _Fails(plan.code, plan.reason or "unknown")
        over_budget = False
        for block in range(plan.cursor, plan.blocks):
            if over_budget:
                raise _Fails(BudgetExhaustedError.code, BudgetExhaustedError.end_reason)
            workflow.set_current_details(f"**compacting** · block {block + 1} of {plan.blocks}")
            verdict = await self._summarise(block, plan.blocks)
            if verdict.kind == "stopping":
                await workflow.wait_condition(lambda: False)  # the cancellation is on its way
            if verdict.kind == "failed":
                raise _Fails(verdict.code or CompactionFailedError.code, verdict.reason or "unknown", block)
            over_budget = verdict.over_budget
        published = await workflow.execute_local_activity_method(
            CompactionActivities.publish_snapshot, self._start.episode, summary="publish", **options.COMMIT
        )
        sizes = f"{published.tokens_before} → {published.tokens_after} tokens"
        workflow.set_current_details(f"**{published.outcome}** · {sizes}")
        return published.model_copy(update={"code": BudgetExhaustedError.code}) if over_budget else published

    async def _plan(self) -> EpisodePlan:
        return await workflow.execute_activity_method(
            CompactionActivities.plan_episode, self._start.episode, summary="plan", **options.compaction_step()
        )

    async def _summarise(self, block: int, blocks: int) -> BlockVerdict:
        start = self._start
        call = SummariseBlock(episode=start.episode, block=block, deadline_at=start.deadline_at)
        remaining_s = LONGEST_S if start.deadline_at is None else start.deadline_at - workflow.now().timestamp()
        return await workflow.execute_activity_method(
            CompactionActivities.summarise_block,
            call,
            summary=f"block {block + 1} of {blocks}",
            **options.model_call(max(1.0, remaining_s)),
        )

    async def _fail(self, failure: _Fails, status: str) -> CompactionVerdict:
        """The end of the episode is recorded, whatever arrives meanwhile."""
        request = FailEpisode.model_validate(
            {
                "episode_id": self._start.episode.episode_id,
                "status": status,
                "code": failure.code,
                "reason": failure.reason,
                "block": failure.block,
            }
        )
        recording = asyncio.create_task(
            workflow.execute_local_activity_method(
                CompactionActivities.fail_episode, request, summary=f"{status} · {failure.reason}", **options.COMMIT
            )
        )
        while not recording.done():
            with contextlib.suppress(asyncio.CancelledError):
                await workflow.wait([recording])
        recording.result()
        return CompactionVerdict.model_validate({"status": status, "code": failure.code, "reason": failure.reason})


def _inside(error: BaseException) -> tuple[str, str]:
    """Code and reason of a step that failed for a reason of ours."""
    cause = error.__cause__
    return (cause.type if isinstance(cause, ApplicationError) and cause.type else "INTERNAL"), "internal"

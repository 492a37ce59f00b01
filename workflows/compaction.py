"""A compaction as a workflow (SPEC K1): plan, block after block, publish; its state is the number of finished blocks.

Each finished block is committed with the cursor before the next begins, so that whatever dies, it goes on there. As a
child its end is a value: only a cancellation leaves it otherwise. For an idle Session it stands alone (SPEC K12): it
has a time limit of its own, and closes as it ended (SPEC W3a).
"""

import asyncio
import contextlib
from datetime import timedelta

from pydantic import BaseModel, ConfigDict
from temporalio import workflow
from temporalio.common import SearchAttributeKey
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from activities.compactions import CompactionActivities
from context.episodes import (
    NOTHING_TO_COMPACT,
    BlockVerdict,
    CompactionVerdict,
    EpisodePlan,
    EpisodeRef,
    FailEpisode,
    SummariseBlock,
)
from context.errors import BudgetExhaustedError, CompactionFailedError, DeadlineExceededError
from workflows import options
from workflows.endings import code_of
from workflows.names import COMPACTION_WORKFLOW, OUTCOME_ATTRIBUTE

LONGEST_S = 86_400.0
OUTCOME = SearchAttributeKey.for_keyword(OUTCOME_ATTRIBUTE)


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
        self._deadline_at = start.deadline_at

    @workflow.run
    async def run(self, start: CompactionInput) -> CompactionVerdict:
        """Work until there is a summary or a reason why not."""
        try:
            verdict = await self._work()
        except (asyncio.CancelledError, ActivityError, ApplicationError) as error:
            if workflow.cancellation_reason() is not None and is_cancelled_exception(error):
                self._close(await self._fail(_Fails(CompactionFailedError.code, "cancelled"), "cancelled"))
                raise
            verdict = await self._fail(_Fails(code_of(error), "internal"), "failed")
        except _Fails as failure:
            verdict = await self._fail(failure, "failed")
        return self._close(verdict)

    async def _work(self) -> CompactionVerdict:
        plan = await self._plan()
        if plan.stopping:
            await self._cancellation()
        if plan.code is not None:
            raise _Fails(plan.code, plan.reason or "unknown")
        if plan.nothing:
            return CompactionVerdict(status="succeeded", outcome=NOTHING_TO_COMPACT)
        over_budget = False
        if plan.limit_s is None:
            over_budget = await self._summarise_all(plan)
        else:
            await self._summarise_in_time(plan, plan.limit_s)
        published = await workflow.execute_local_activity_method(
            CompactionActivities.publish_snapshot, self._start.episode, summary="publish", **options.COMMIT
        )
        sizes = f"{published.tokens_before} → {published.tokens_after} tokens"
        workflow.set_current_details(f"**{published.outcome}** · {sizes}")
        return published.model_copy(update={"code": BudgetExhaustedError.code}) if over_budget else published

    async def _summarise_all(self, plan: EpisodePlan) -> bool:
        """Block after block. True: the last used up the Run's budget; one that does so earlier ends the episode."""
        over_budget = False
        for block in range(plan.cursor, plan.blocks):
            if over_budget:
                raise _Fails(BudgetExhaustedError.code, BudgetExhaustedError.end_reason)
            workflow.set_current_details(f"**compacting** · block {block + 1} of {plan.blocks}")
            verdict = await self._summarise(block, plan.blocks)
            if verdict.kind == "stopping":
                await self._cancellation()
            if verdict.kind == "failed":  # SPEC K8, L5
                code = BudgetExhaustedError.code if verdict.over_budget else CompactionFailedError.code
                raise _Fails(code, verdict.reason or "unknown", block)
            over_budget = verdict.over_budget
        return over_budget

    async def _summarise_in_time(self, plan: EpisodePlan, limit_s: float) -> None:
        """All blocks, unless the time limit comes first; a call under way is cancelled then."""
        self._deadline_at = workflow.info().start_time.timestamp() + limit_s
        remaining = timedelta(seconds=max(0.0, self._remaining_s))
        blocks = asyncio.create_task(self._summarise_all(plan))
        try:
            await workflow.wait_condition(blocks.done, timeout=remaining, timeout_summary="deadline of the compaction")
        except TimeoutError:
            raise _Fails(DeadlineExceededError.code, DeadlineExceededError.end_reason) from None
        finally:
            blocks.cancel()
            await workflow.wait([blocks])
            if not blocks.cancelled():
                blocks.exception()  # unread, it would be logged
        blocks.result()

    @staticmethod
    async def _cancellation() -> None:
        """A stop is recorded, and its cancellation is on its way."""
        await workflow.wait_condition(lambda: False)

    def _close(self, verdict: CompactionVerdict) -> CompactionVerdict:
        """As a child, the value; alone, completed or failed as the episode ended (SPEC W3a)."""
        if not self._start.episode.is_idle:
            return verdict
        workflow.upsert_search_attributes([OUTCOME.value_set(verdict.outcome or verdict.status)])
        if verdict.status == "failed":
            code = verdict.code or CompactionFailedError.code
            raise ApplicationError(f"compaction failed: {verdict.reason}", type=code, non_retryable=True)
        return verdict

    @property
    def _remaining_s(self) -> float:
        return LONGEST_S if self._deadline_at is None else self._deadline_at - workflow.now().timestamp()

    async def _plan(self) -> EpisodePlan:
        return await workflow.execute_activity_method(
            CompactionActivities.plan_episode, self._start.episode, summary="plan", **options.compaction_step()
        )

    async def _summarise(self, block: int, blocks: int) -> BlockVerdict:
        call = SummariseBlock(episode=self._start.episode, block=block, deadline_at=self._deadline_at)
        return await workflow.execute_activity_method(
            CompactionActivities.summarise_block,
            call,
            summary=f"block {block + 1} of {blocks}",
            **options.model_call(max(1.0, self._remaining_s)),
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

"""The steps of a compaction: plan once, one model call per block, publish or fail (SPEC K5-K9).

A block's call is an Operation like any other: frozen, tried, stored. A finished one is not made again (SPEC K7).
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from temporalio import activity

from activities.answers import counted
from activities.failures import translated, until_stored
from activities.heartbeat import heartbeating
from activities.model_breaks import ModelTry, leaving_hash, settle_break, spent_before
from activities.releases import Kit, Releases
from activities.stickiness import forget_dead_worker
from activities.used import answer_used, break_used
from activities.written import noting_written
from context.blocks import Block, block_room, block_text, carried, carried_limit, plan_blocks
from context.compaction import check_calls
from context.covered_results import CoveredResults, fitting
from context.episodes import (
    NOTHING_TO_COMPACT,
    BlockMaterial,
    BlockVerdict,
    CompactionVerdict,
    EpisodePlan,
    EpisodeRef,
    FailEpisode,
    FinishBlock,
    ListedResults,
    OpenEpisode,
    Plan,
    PrepareBlock,
    PublishSnapshot,
    SourceItem,
    SummariseBlock,
)
from context.errors import CompactionFailedError, ConfigurationInvalidError, SupersededError
from context.ids import block_operation_id
from context.material import piece_of
from context.messages import ChatMessage
from context.pairing import GroupBorders
from context.policy import Limits
from context.steps import (
    BeginAttempt,
    Begun,
    Content,
    FailAttempt,
    ModelAnswered,
    ModelBroke,
    ModelVerdict,
    RequestTerms,
    Stopping,
)
from context.summaries import (
    NoSummary,
    Summary,
    SummaryPrompts,
    block_request,
    read_summary,
    request_overhead,
    summary_message,
    summary_prompts,
)
from context.transcripts import Source, TextMeasure, earlier_summary, source_of

if TYPE_CHECKING:
    from storage.episode_commits import EpisodeCommits
    from storage.requests import FrozenRequest
    from storage.run_commits import RunCommits

PAGE = 200


class CompactionActivities:
    """What the workflow of an episode does."""

    def __init__(self, episodes: "EpisodeCommits", commits: "RunCommits", releases: Releases) -> None:
        self._episodes = episodes
        self._commits = commits
        self._releases = releases

    @activity.defn
    async def plan_episode(self, ref: EpisodeRef) -> EpisodePlan:
        """The block plan, made once; a repeat finds it with the cursor. An idle Session's episode is opened first."""
        async with translated(), heartbeating():
            await forget_dead_worker()
            kit = await self._releases.kit(ref.release_id)
            if ref.is_idle:
                await self._episodes.open_idle(ref, kit.model.terms)
            planned = await self._planned(ref, kit)
            limit_s = kit.release.definition.limits.deadline_s
            return planned.model_copy(update={"limit_s": limit_s}) if ref.is_idle else planned

    async def _planned(self, ref: EpisodeRef, kit: Kit) -> EpisodePlan:
        episode = await self._episodes.episode(ref.episode_id)
        if episode.status == "queued":  # a stop came before its opening
            return EpisodePlan(blocks=0, cursor=0, stopping=True)
        if episode.status not in ("running", "succeeded"):
            failure = episode.failure or {}
            code = failure.get("code", CompactionFailedError.code)
            return _no_plan(str(code), str(failure.get("reason", episode.status)))
        if episode.outcome == NOTHING_TO_COMPACT:
            return EpisodePlan(blocks=0, cursor=0, nothing=True)
        if episode.blocks is not None:
            return EpisodePlan(blocks=episode.blocks, cursor=episode.cursor)
        try:
            plan = await self._plan(kit, episode)
            check_calls(len(plan.blocks), kit.model.terms.compaction)
        except ConfigurationInvalidError as error:
            return _no_plan(error.code, "no_room")
        except CompactionFailedError as error:
            return _no_plan(error.code, "too_many_calls")
        return await self._episodes.plan(ref, plan)

    async def _plan(self, kit: Kit, episode: OpenEpisode) -> Plan:
        writer, target = kit.model.summariser, episode.longest_summary
        measure = TextMeasure(writer.counter)
        space = _space(kit, target)
        room = block_room(**space)
        items = await self._sources(episode)
        folded = await self._episodes.folded_text(episode.episode_id)
        groups = _groups([one for one in items if one.item.kind != "summary"])
        fits = folded is not None and await asyncio.to_thread(measure, folded) <= carried_limit(**space)
        carries_on = fits and bool(groups)  # a summary alone is material: there is nothing it could be carried to
        if folded is not None and not carries_on:
            piece = next(piece_of(one.item) for one in items if one.item.kind == "summary")
            groups.insert(0, [earlier_summary(piece, folded)])

        def plan() -> tuple[Block, ...]:
            return tuple(plan_blocks(groups, room=room, measure=measure))

        blocks = await asyncio.to_thread(plan)  # counts every character: not in the event loop
        return Plan(blocks, {piece_of(one.item): one.position for one in items}, carries_on)

    async def _sources(self, episode: OpenEpisode) -> list[SourceItem]:
        found: list[SourceItem] = []
        for start in range(0, len(episode.covered), PAGE):
            found += await self._episodes.sources(episode.episode_id, episode.covered[start : start + PAGE])
        return found

    @activity.defn
    async def summarise_block(self, call: SummariseBlock) -> BlockVerdict:
        """One call of the summarising model, from its material to the cursor behind it."""
        async with translated(), heartbeating():
            kit = await self._releases.kit(call.episode.release_id)
            request = await self._request(kit, call)
            if isinstance(request, BlockVerdict):
                await forget_dead_worker()
                return request
            return await self._call(kit, call, request)

    async def _request(self, kit: Kit, call: SummariseBlock) -> "FrozenRequest | BlockVerdict":
        episode = await self._episodes.episode(call.episode.episode_id)
        if episode.cursor > call.block:
            return await self._finished_block(call)
        writer, target = kit.model.summariser, episode.longest_summary
        material = await self._episodes.material(episode, call.block)
        measure = TextMeasure(writer.counter)
        longest = carried_limit(**_space(kit, target))
        messages = await asyncio.to_thread(_messages, _prompts(kit, target), material, longest, measure)
        contents = [await counted(writer.counter, message) for message in messages]
        estimated = sum(one.tokens or 0 for one in contents) + writer.counter.request_overhead
        prepared = PrepareBlock(
            episode=call.episode,
            block=call.block,
            messages=tuple(contents),
            estimator_id=writer.counter.estimator_id,
            exact=writer.counter.exact,
            model=writer.terms.model,
            estimated=estimated,
            estimated_cost=writer.terms.cost_of_input(estimated),
            input_limit=writer.terms.budget.input_limit,
            max_output_tokens=target,
            begins=activity.info().attempt == 1,
        )
        request = await self._episodes.prepare_block(prepared)
        return request if isinstance(request, BlockVerdict) else _standing(request) or request

    async def _finished_block(self, call: SummariseBlock) -> BlockVerdict:
        """The verdict of a block that is behind the cursor."""
        operation_id = block_operation_id(call.episode.episode_id, call.block)
        settled = await self._commits.frozen_request(operation_id, execution_no=call.episode.execution_no)
        return _standing(settled) or BlockVerdict(kind="done")

    async def _call(self, kit: Kit, call: SummariseBlock, request: "FrozenRequest") -> BlockVerdict:
        writer = kit.model.summariser
        body, digest = writer.limited_body(request.new, request.max_output_tokens)
        begun = await self._permit(call, request, digest)
        if isinstance(begun, BlockVerdict):
            return begun
        tried = ModelTry(request.operation_id, begun.attempt_no, digest, call.deadline_at)
        limits = Limits() if call.episode.is_idle else kit.release.definition.limits  # no Run pays for those
        if over := await spent_before(self._commits, limits, tried):
            return _failed(over)
        async with (
            leaving_hash(self._commits, request.operation_id, digest),
            noting_written(self._commits, writer, tried) as watch,
        ):
            answer = await writer.complete(body, on_first_output=_nothing, watch=watch)
        if isinstance(answer, ModelBroke):
            broke = await break_used(self._commits, writer, request.operation_id, answer)
            return _failed(await settle_break(self._commits, writer.retry, limits, tried, broke))
        answer = await answer_used(self._commits, writer, request.operation_id, answer)
        return await self._accept(kit, call, request, begun, answer, digest)

    async def _permit(self, call: SummariseBlock, request: "FrozenRequest", digest: bytes) -> Begun | BlockVerdict:
        """The first try has its permit from the preparation; each further one is committed before it is made."""
        if activity.info().attempt == 1 and request.attempts == 1 and request.state == "calling" and request.owned:
            return Begun(attempt_no=1)
        place = (request.operation_id, call.episode.execution_no)
        begun = await self._commits.begin_attempt(BeginAttempt(*place, digest, deadline_at=call.deadline_at))
        if isinstance(begun, Begun):
            if begun.lost:
                await forget_dead_worker()
            return begun
        if isinstance(begun, Stopping):
            return BlockVerdict(kind="stopping")
        settled = await self._commits.frozen_request(request.operation_id, execution_no=call.episode.execution_no)
        if standing := _standing(settled):
            return standing
        raise SupersededError

    async def _accept(
        self,
        kit: Kit,
        call: SummariseBlock,
        request: "FrozenRequest",
        begun: Begun,
        answer: ModelAnswered,
        digest: bytes,
    ) -> BlockVerdict:
        await self._commits.reach("summarise_block.answered")
        summary = read_summary(answer.reply)
        if isinstance(summary, NoSummary):
            return await self._no_summary(request, begun, answer, digest, summary)
        finished = _finished(kit, call, begun, answer, digest, summary)
        return await until_stored(lambda: self._episodes.finish_block(finished))

    async def _no_summary(
        self, request: "FrozenRequest", begun: Begun, answer: ModelAnswered, digest: bytes, empty: NoSummary
    ) -> BlockVerdict:
        """An answer without a summary fails the episode; it is kept, paid for, and not asked for again (SPEC K8)."""
        verdict = ModelVerdict(kind="failed", end_reason=empty.reason, code=CompactionFailedError.code)
        failed = FailAttempt(
            operation_id=request.operation_id,
            attempt_no=begun.attempt_no,
            request_hash=digest,
            code=CompactionFailedError.code,
            reason=empty.reason,
            status=0,
            verdict=verdict,
            usage=answer.reply.usage,
            cost=answer.cost,
            raw=Content(answer.raw),
        )
        await until_stored(lambda: self._commits.fail_attempt(failed))
        return _failed(verdict)

    @activity.defn
    async def publish_snapshot(self, ref: EpisodeRef) -> CompactionVerdict:
        """The summary takes the place of what it covers, if it still may."""
        async with translated():
            kit = await self._releases.kit(ref.release_id)
            terms = kit.model.terms
            message = await self._message(ref, terms)
            request = PublishSnapshot(
                episode=ref,
                message=await counted(terms.counter, message),
                estimator_id=terms.counter.estimator_id,
                fixed=terms.beside,
                terms=terms.compaction,
            )
            return await self._episodes.publish(request)

    async def _message(self, ref: EpisodeRef, terms: RequestTerms) -> ChatMessage:
        """The summary as requests show it, with the results that it stands for where the role could read them."""
        summary = await self._episodes.summary(ref.episode_id) or ""
        if not terms.compaction.listing:
            return summary_message(summary)
        found = await self._episodes.results_to_list(ref.episode_id, terms)
        return await asyncio.to_thread(_with_results, summary, found, terms)

    @activity.defn
    async def fail_episode(self, request: FailEpisode) -> None:
        """The episode ends without a summary."""
        async with translated():
            await self._episodes.fail(request)


def _prompts(kit: Kit, target: int) -> SummaryPrompts:
    return summary_prompts(target, kit.release.definition.context.compaction_prompt, kit.model.summariser.counter)


def _space(kit: Kit, target: int) -> dict[str, int]:
    """What the requests of blocks share of the summarising model's window."""
    writer = kit.model.summariser
    overhead = request_overhead(_prompts(kit, target), writer.counter)
    return {"limit": writer.terms.budget.input_limit, "overhead": overhead, "target": target}


def _messages(
    prompts: SummaryPrompts, material: BlockMaterial, longest: int, measure: TextMeasure
) -> tuple[ChatMessage, ...]:
    previous = carried(material.summary, longest, measure) if material.summary is not None else None
    return block_request(prompts, previous=previous, block=block_text(material.block, material.sources))


def _with_results(summary: str, found: ListedResults, terms: RequestTerms) -> ChatMessage:
    """As many of the newest results as there is room for."""
    plain = summary_message(summary)
    if found.results is None:
        return plain
    limit = min(found.longest_message, terms.counter.count_message(plain) + terms.compaction.listing)

    def size(listed: CoveredResults) -> int:
        return terms.counter.count_message(summary_message(summary, listed))

    listed = fitting(found.results, found.summary_id, limit=limit, size=size)
    return summary_message(summary, listed) if listed else plain


def _groups(items: Sequence[SourceItem]) -> list[list[Source]]:
    """What is summarised, a call with its results together."""
    borders = GroupBorders([one.item.kind for one in items]).groups() if items else ()
    return [[source_of(items[at].item, items[at].message) for at in group] for group in borders]


def _finished(
    kit: Kit, call: SummariseBlock, begun: Begun, answer: ModelAnswered, digest: bytes, summary: Summary
) -> FinishBlock:
    return FinishBlock(
        episode=call.episode,
        block=call.block,
        attempt_no=begun.attempt_no,
        request_hash=digest,
        raw=Content(answer.raw),
        summary=Content(summary.text.encode()),
        truncated=summary.truncated,
        usage=answer.reply.usage,
        cost=answer.cost,
        max_total_tokens=kit.release.definition.limits.max_total_tokens,
        max_cost=kit.release.definition.limits.max_cost,
    )


def _standing(request: "FrozenRequest") -> BlockVerdict | None:
    """What stands already: the verdict of a settled call, or a recorded stop."""
    if request.verdict:
        is_done = request.verdict["kind"] == "done"
        return BlockVerdict.model_validate(request.verdict) if is_done else _failed_as(request.verdict)
    return BlockVerdict(kind="stopping") if request.stopping else None


def _failed_as(verdict: dict[str, object]) -> BlockVerdict:
    return _failed(ModelVerdict.model_validate(verdict))


def _failed(verdict: ModelVerdict) -> BlockVerdict:
    over = {"over_budget": True} if verdict.over_budget else {}  # what is unset is not written into histories
    why = {"code": verdict.code, "reason": verdict.end_reason, "status": verdict.status}
    return BlockVerdict.model_validate({"kind": "failed"} | why | over)


def _no_plan(code: str, reason: str) -> EpisodePlan:
    return EpisodePlan(blocks=0, cursor=0, code=code, reason=reason)


async def _nothing() -> None:
    """No input waits for evidence of a summary."""

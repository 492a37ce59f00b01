"""A batch of short harmless calls, and the preparation of the request that carries their results.

Part of the activity that called the model: phases that follow each other without a decision may share one, since each
is its own ledgered commit, so that a repeat goes on where the last one stopped (DESIGN 3). The tries need no commit
before the call, since a repeat does no harm; those that had to wait for a place look whether they still may begin. But
a call can be what ends the process: from the first repeat on, tries are written down before they are made, so that they
can be counted, and made one by one, so that none is blamed for its neighbour.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from temporalio import activity

from activities.failures import until_stored
from activities.releases import Kit
from activities.tool_calls import CallTool, ToolCallActivities
from context.errors import SupersededError
from context.steps import PreparedRequest, PrepareRequest, ToolCallFacts

if TYPE_CHECKING:
    from storage.run_commits import RunCommits

STOPPING = PreparedRequest(cutoff=0, estimated=0, input_limit=0, supplements=0, stopping=True)


class Batches:
    """The short way from a model's answer to its next request."""

    def __init__(self, commits: "RunCommits", tools: ToolCallActivities) -> None:
        self._commits = commits
        self._tools = tools

    async def settle_and_prepare(
        self,
        kit: Kit,
        prepare: PrepareRequest,
        known: tuple[ToolCallFacts, ...] | None,
        *,
        size: int,
        at_once: int,
        deadline_at: float | None,
    ) -> PreparedRequest:
        """Make the open calls, store each result as it comes, then freeze the request that carries them.

        `known` are the open calls of the batch of `size` where they became fact just now; else they are looked up. The
        result of an only call becomes fact in the same commit that delivers it.
        """
        calls = await self._open_calls(prepare) if known is None else known
        if calls is None:
            return STOPPING
        terms: dict[str, Any] = {"execution_no": prepare.execution_no, "deadline_at": deadline_at}
        if known is None and activity.info().attempt > 1:
            settled = await self._settle_one_by_one(calls, **terms)
            return await self._commits.prepare_request(prepare, kit.model.terms) if settled else STOPPING
        if known is None or size != 1 or not calls:
            settled = await self._settle(kit, calls, at_once=at_once, **terms)
            return await self._commits.prepare_request(prepare, kit.model.terms) if settled else STOPPING
        return await self._settle_and_prepare_at_once(kit, prepare, calls[0])

    async def _settle_and_prepare_at_once(
        self, kit: Kit, prepare: PrepareRequest, only: ToolCallFacts
    ) -> PreparedRequest:
        settled = await self._tools.made(kit, only, execution_no=prepare.execution_no, begun=None)
        try:
            prepared = await until_stored(lambda: self._commits.prepare_request(prepare, kit.model.terms, settled))
        except SupersededError:
            await self._tools.record(settled)
            raise
        self._tools.stored(settled)
        return prepared

    async def _open_calls(self, prepare: PrepareRequest) -> tuple[ToolCallFacts, ...] | None:
        """The calls of the batch without a result; None if none may be made any more."""
        if prepare.batch_id is None:
            return ()
        batch = await self._commits.batch_calls(prepare.batch_id, prepare.execution_no)
        return batch.calls if batch.may_run else None

    async def _settle_one_by_one(
        self, calls: tuple[ToolCallFacts, ...], *, execution_no: int, deadline_at: float | None
    ) -> bool:
        """Make calls whose process may have died of one of them; False if a stop or the deadline came first (T9)."""
        terms: dict[str, Any] = {"execution_no": execution_no, "durable": False, "deadline_at": deadline_at}
        for facts in calls:
            call = CallTool(operation_id=facts.operation_id, **terms)
            if await self._tools.try_written_down(call) == "stopping":
                return False
        return True

    async def _settle(
        self,
        kit: Kit,
        calls: tuple[ToolCallFacts, ...],
        *,
        execution_no: int,
        deadline_at: float | None,
        at_once: int,
    ) -> bool:
        """Make the calls, `at_once` of them together; False if a stop or the deadline came before all had begun."""
        places = asyncio.Semaphore(at_once)

        async def settle(at: int, facts: ToolCallFacts) -> bool:
            async with places:
                waited = at >= at_once
                if waited and not await self._commits.may_begin(facts.run_id, execution_no, deadline_at=deadline_at):
                    return False
                await self._tools.settle(kit, facts, execution_no=execution_no, begun=None)
                return True

        # Each result is stored as it comes, whatever became of the others: none goes on once this step is over.
        ended = await asyncio.gather(*(settle(*one) for one in enumerate(calls)), return_exceptions=True)
        for outcome in ended:
            if isinstance(outcome, BaseException):
                raise outcome
        return all(ended)

"""A batch of short harmless calls, and the preparation of the request that carries their results: one local activity.

Phases that follow each other without a decision may share an activity: each is its own ledgered commit, so a repeat
goes on where the last one stopped (DESIGN 3). The tries need no commit before the call, since a repeat does no harm.
"""

import asyncio
from typing import TYPE_CHECKING

from temporalio import activity

from activities.failures import translated
from activities.releases import Releases
from activities.tool_calls import ToolCallActivities
from context.steps import PreparedRequest, PrepareRequest, Step, ToolCallFacts

if TYPE_CHECKING:
    from storage.run_commits import RunCommits


class SettleAndPrepare(Step):
    """Settles what is open of the batch that `prepare` carries, at most `at_once` calls together, then prepares."""

    prepare: PrepareRequest
    at_once: int


class BatchActivities:
    """The short way from a model's answer to its next request."""

    def __init__(self, commits: "RunCommits", releases: Releases, tools: ToolCallActivities) -> None:
        self._commits = commits
        self._releases = releases
        self._tools = tools

    @activity.defn
    async def settle_and_prepare(self, request: SettleAndPrepare) -> PreparedRequest:
        """Make the open calls, store each result as it comes, then freeze the request that carries them."""
        async with translated():
            prepare = request.prepare
            if prepare.batch_id is not None:
                batch = await self._commits.batch_calls(prepare.batch_id, prepare.execution_no)
                if not batch.may_run:
                    return STOPPING
                await self._settle(batch.calls, request)
            kit = await self._releases.kit(prepare.release_id)
            return await self._commits.prepare_request(prepare, kit.model.terms)

    async def _settle(self, calls: tuple[ToolCallFacts, ...], request: SettleAndPrepare) -> None:
        kit = await self._releases.kit(request.prepare.release_id)
        places = asyncio.Semaphore(request.at_once)

        async def settle(facts: ToolCallFacts) -> None:
            async with places:
                await self._tools.settle(kit, facts, execution_no=request.prepare.execution_no, begun=None)

        await asyncio.gather(*(settle(facts) for facts in calls))


STOPPING = PreparedRequest(cutoff=0, estimated=0, input_limit=0, supplements=0, stopping=True)

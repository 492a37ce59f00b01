"""Preparing a request: one local activity, one commit, no content in or out."""

from typing import TYPE_CHECKING

from temporalio import activity

from activities.failures import translated
from activities.releases import Releases
from context.steps import FreezeRequest, PreparedRequest, PrepareRequest

if TYPE_CHECKING:
    from storage.run_commits import RunCommits


class RequestActivities:
    """What happens before a model is called."""

    def __init__(self, commits: "RunCommits", releases: Releases) -> None:
        self._commits = commits
        self._releases = releases

    @activity.defn
    async def prepare_request(self, request: PrepareRequest) -> PreparedRequest:
        """Deliver the settled batch, fix the cutoff, list, measure and freeze the request of a loop."""
        async with translated():
            kit = await self._releases.kit(request.release_id)
            return await self._commits.prepare_request(request, kit.model.terms)

    @activity.defn
    async def freeze_request(self, request: FreezeRequest) -> PreparedRequest:
        """Freeze a request whose compaction has ended, as its list is now."""
        async with translated():
            kit = await self._releases.kit(request.release_id)
            return await self._commits.freeze_request(request, kit.model.terms, kit.release.definition.limits)

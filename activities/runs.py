"""Opening and ending a Run: two local activities, one commit each."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING
from uuid import UUID

from temporalio import activity

from activities.failures import translated
from activities.releases import Releases
from context.errors import BudgetExhaustedError
from context.policy import Limits
from context.spending import spent
from context.steps import FinishedRun, FinishRun, OpenedRun, OpenRun, Step, ToolPlan
from context.tool_answers import ToolAccepted

if TYPE_CHECKING:
    from storage.run_commits import RunCommits


class RunTerms(Step):
    """What an execution works with, beside what is stored: the release's limits, and the calls still to be settled.

    `spent`: earlier executions used up the tokens or the money, so that no call may follow (SPEC L5).
    """

    opened: OpenedRun
    agent: str
    max_loops: int
    deadline_s: float
    max_parallel_tools: int
    continue_late_input: bool
    compact_once: bool = False
    unsettled: tuple[ToolPlan, ...] = ()
    spent: bool = False


class RunActivities:
    """The first and the last step of each execution."""

    def __init__(
        self, commits: "RunCommits", releases: Releases, *, remove_folder: Callable[[UUID], Awaitable[bool]]
    ) -> None:
        self._commits = commits
        self._releases = releases
        self._remove_folder = remove_folder

    @activity.defn
    async def open_run(self, request: OpenRun) -> RunTerms:
        """The Run goes to `running`; a repeat finds it there."""
        async with translated():
            opened = await self._commits.open_run(request)
            kit = await self._releases.kit(opened.release_id)
            definition = kit.release.definition
            return RunTerms(
                opened=opened,
                agent=definition.name,
                max_loops=definition.limits.max_loops,
                deadline_s=definition.limits.deadline_s,
                max_parallel_tools=definition.limits.max_parallel_tools,
                continue_late_input=definition.context.late_input == "continue",
                compact_once=definition.context.on_overflow == "compact_once",
                spent=_spent(definition.limits, opened),
                unsettled=tuple(
                    self._plan(kit.tools.known(one.name), one.ordinal, one.name) for one in opened.unsettled
                ),
            )

    @staticmethod
    def _plan(known: ToolAccepted | None, ordinal: int, name: str) -> ToolPlan:
        timeout_s = known.timeout_s if known else 60
        return ToolPlan(
            ordinal=ordinal,
            name=name,
            timeout_s=timeout_s,
            local=bool(known and known.local),
            durable=known is None or known.effect == "side_effect",
        )

    @activity.defn
    async def finish_run(self, request: FinishRun) -> FinishedRun:
        """The Run ends, once; a repeat finds how it ended. Its working files go with it (SPEC T10)."""
        async with translated():
            finished = await self._commits.finish_run(request, await self._limits(request))
            if not finished.go_on:
                await self._remove_folder(request.run_id)
            return finished

    async def _limits(self, request: FinishRun) -> Limits | None:
        """The limits of the Run, if its end is that one of them is reached: then the error says which."""
        if request.code != BudgetExhaustedError.code:
            return None
        kit = await self._releases.kit(await self._commits.release_of(request.run_id))
        return kit.release.definition.limits


def _spent(limits: Limits, opened: OpenedRun) -> bool:
    most, dearest = limits.max_total_tokens, limits.max_cost
    return spent(tokens=opened.used_tokens, cost=opened.cost, max_total_tokens=most, max_cost=dearest) is not None

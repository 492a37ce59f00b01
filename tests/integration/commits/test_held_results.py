"""A result that waits in a process for a database which is away (SPEC 0, R2)."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from temporalio.testing import ActivityEnvironment

from activities.releases import Kit, Releases
from activities.tool_calls import CallTool, ToolCallActivities
from context.errors import UnavailableError
from context.tool_answers import ToolAnswered
from storage.run_commits import RunCommits
from storage.store import FaultPlan, Store
from tests.integration.commits.life import Life
from tests.integration.storage.played import COUNTER
from tests.integration.storage.world import KEYS, rows


class AwayForResults(FaultPlan):
    """No result can be stored until `back` is set; `met` once one has tried."""

    def __init__(self) -> None:
        self.met, self.back = asyncio.Event(), asyncio.Event()

    async def reach(self, point: str) -> None:
        if point == "record_tool_result.before_commit" and not self.back.is_set():
            self.met.set()
            raise UnavailableError


@dataclass
class Counted:
    """A release whose one tool counts its calls."""

    calls: list[int] = field(default_factory=list)

    async def kit(self, release_id: object) -> Kit:
        return cast("Kit", self)

    @property
    def model(self) -> Any:
        return self

    @property
    def tools(self) -> Any:
        return self

    counter = COUNTER

    def may_repeat_unknown(self, name: str) -> bool:
        return False

    async def call(self, facts: object, *, attempt: int, on_progress: object) -> ToolAnswered:
        self.calls.append(attempt)
        return ToolAnswered(failed=False, content="paid", raw=b"paid")


async def test_an_activity_that_was_given_up_does_not_take_its_result_along(
    store: Store, opened: Life, database_url: str
) -> None:
    """SPEC 0, R2: the next one in the same process stores it and makes no call, whatever the effect of the tool."""
    await opened.prepare(store)
    await opened.accept(store, "pay")
    away, release = AwayForResults(), Counted()
    flaky = Store.open(database_url, KEYS, pool_size=2, faults=away)
    tools = ToolCallActivities(RunCommits(flaky), cast("Releases", release))
    call = CallTool(operation_id=opened.tool(), execution_no=1)
    first = asyncio.create_task(ActivityEnvironment().run(tools.call_tool, call))
    await away.met.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    away.back.set()
    verdict = await ActivityEnvironment().run(tools.call_tool, call)
    assert (verdict.kind, release.calls) == ("settled", [1])
    query = f"SELECT state, attempts FROM operations WHERE operation_id = '{opened.tool()}'"
    assert await rows(store, query) == [{"state": "accepted", "attempts": 2}]
    await flaky.aclose()

"""Tries at tool calls that end before the call was made (SPEC T4, W5)."""

from uuid import UUID

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.releases import Kit, Releases
from activities.tool_calls import CallTool, ToolCallActivities
from context.errors import UnavailableError
from context.policy import Release
from context.steps import Begun
from storage.run_commits import RunCommits
from storage.store import Store
from tests.integration.commits.life import Life
from tests.integration.storage.world import rows


def unreachable_kit(release_id: UUID, release: Release) -> Kit:
    """What is built for a release comes from the database, which is away."""
    raise UnavailableError


async def test_a_database_that_is_away_before_the_call_leaves_nothing_unknown(store: Store, opened: Life) -> None:
    """SPEC T4: the next try knows that nothing was sent, and makes the call, whatever its effect."""
    await opened.prepare(store)
    await opened.accept(store, "pay")
    commits = RunCommits(store)
    releases = Releases(commits, build_kit=unreachable_kit)
    tools = ToolCallActivities(commits, releases)
    with pytest.raises(ApplicationError) as failed:
        await ActivityEnvironment().run(tools.call_tool, CallTool(operation_id=opened.tool(), execution_no=1))
    assert failed.value.type == UnavailableError.code
    [tried] = await rows(store, f"SELECT state, error FROM attempts WHERE operation_id = '{opened.tool()}'")
    assert tried["state"] == "failed"
    assert tried["error"]["reason"] == "not_started"
    assert await opened.begin(store, opened.tool()) == Begun(2, lost=0)

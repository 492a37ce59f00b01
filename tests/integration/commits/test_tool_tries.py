"""Tries at tool calls that end before the call was made (SPEC T4, W5)."""

from uuid import UUID

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.releases import Kit, Releases
from activities.tool_calls import CallTool, ToolCallActivities
from context.errors import UnavailableError
from context.policy import Release
from context.steps import Begun, FailAttempt, OpenRun
from storage.commits.fail_attempt import fail_attempt
from storage.commits.open_run import open_run
from storage.commits.resume_run import ResumeRun, resume_run
from storage.reads.verifying import verified
from storage.run_commits import RunCommits
from storage.store import Store
from tests.integration.commits.life import Life
from tests.integration.storage.world import end_run, rows


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


async def test_what_had_begun_before_a_resume_stays_unknown_if_nothing_more_comes_of_it(
    store: Store, opened: Life
) -> None:
    """SPEC T4, A4, S9: a second end before its next try makes it no call that was never made."""
    await opened.prepare(store)
    await opened.accept(store, "pay", "pay")
    await opened.begin(store, opened.tool())
    states = f"SELECT state FROM operations WHERE batch_id = '{opened.operation_id}' ORDER BY ordinal"
    await opened.finish(store, "stopped", "user_stop")
    resumed = await resume_run(store, ResumeRun(opened.run_id, opened.world.owner_id))
    await open_run(store, OpenRun(run_id=opened.run_id, execution_no=resumed.execution_no))
    assert [row["state"] for row in await rows(store, states)] == ["prepared", "prepared"]
    await end_run(store, opened.run_id, "stopped", execution_no=2)
    assert [row["state"] for row in await rows(store, states)] == ["unknown", "cancelled"]


@pytest.mark.parametrize(
    ("reasons", "state"),
    [
        (["unreachable"], "cancelled"),
        (["busy", "not_started"], "cancelled"),
        (["unreachable", "timeout"], "unknown"),
        (["unreachable", None], "unknown"),
    ],
)
async def test_a_call_whose_tries_never_reached_the_tool_was_not_made(
    store: Store, opened: Life, reasons: list[str | None], state: str
) -> None:
    """SPEC T4, A4: when its Run ends between two tries; one that did not report may have had its effect."""
    await opened.prepare(store)
    await opened.accept(store, "pay")
    for attempt_no, reason in enumerate(reasons, 1):
        await opened.begin(store, opened.tool())
        if reason is not None:
            failed = FailAttempt(opened.tool(), attempt_no, None, "TOOL_UNAVAILABLE", reason, status=0, verdict=None)
            await fail_attempt(store, failed)
    await opened.finish(store, "stopped", "user_stop")
    [call] = await rows(store, f"SELECT state FROM operations WHERE operation_id = '{opened.tool()}'")
    assert call["state"] == state
    assert not (await verified(store, opened.world.session_id, opened.world.owner_id)).breaks

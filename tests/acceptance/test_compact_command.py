"""`agentloom compact` as a person starts it, on a whole system (SPEC 17, K12, K3, K8)."""

import asyncio
import json
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.acceptance.test_idle_compaction import EAGER, LARGE, SUMMARY, Says, asked, is_summary
from tests.support import replies
from tests.support.model_server import RecordedRequest
from tests.support.run_world import RunWorld

AGENTLOOM = Path(sys.executable).with_name("agentloom")


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


@pytest.fixture
def says(world: RunWorld) -> Says:
    said = Says()
    world.model.add(*[said] * 30)
    return said


async def started(world: RunWorld, *arguments: str) -> asyncio.subprocess.Process:
    key = world.http.headers["authorization"].removeprefix("Bearer ")
    address = str(world.http.base_url).removesuffix("/api/v1/")
    return await asyncio.create_subprocess_exec(
        AGENTLOOM,
        *arguments,
        cwd=world.servers.folder,
        env={"PATH": "/usr/bin:/bin", "NO_COLOR": "1", "AGENTLOOM_API": address, "AGENTLOOM_API_KEY": key},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def ended(process: asyncio.subprocess.Process) -> Ended:
    async with asyncio.timeout(40):
        out, err = await process.communicate()
    return Ended(process.returncode or 0, out.decode(), err.decode())


async def run(world: RunWorld, *arguments: str) -> Ended:
    return await ended(await started(world, *arguments))


async def test_an_idle_session_is_compacted_with_progress_and_gain(world: RunWorld, says: Says) -> None:
    """SPEC 17, K12: blocks on standard error, the outcome on standard output, exit code 0; then nothing is left."""
    session = await asked(world, 3)
    done = await run(world, "compact", session)
    assert done.code == 0
    assert done.out.startswith("context compacted: ")
    assert "block 1 of 1 is summarised" in done.err
    again = await run(world, "compact", session)
    assert (again.code, again.out.startswith("nothing to compact: ")) == (0, True)
    told = json.loads((await run(world, "compact", session, "--json")).out)
    assert (told["status"], told["outcome"], told["session_id"]) == ("succeeded", "nothing_to_compact", session)


async def test_a_compaction_that_fails_is_exit_code_1_with_the_reason(world: RunWorld, says: Says) -> None:
    """SPEC 17, K8: at most three lines: what, why with its code, the next command."""
    session = await asked(world, 3)
    says.summary = replies.text("  ")
    failed = await run(world, "compact", session)
    assert (failed.code, failed.out) == (1, "")
    assert failed.err.splitlines()[:2] == [
        "error: the compaction failed",
        "  why:  COMPACTION_FAILED: The model's summary was empty.",
    ]
    assert "agentloom show compactions" in failed.err.splitlines()[2]


async def test_a_session_that_cannot_be_compacted_is_exit_code_4(world: RunWorld, says: Says) -> None:
    """SPEC 17: refused, with the code."""
    refused = await run(world, "compact", await world.open_session())
    assert (refused.code, refused.out) == (4, "")
    assert "RUN_NOT_ACTIVE" in refused.err
    assert len(refused.err.splitlines()) <= 3


async def test_without_waiting_it_says_what_was_begun(world: RunWorld, says: Says) -> None:
    """SPEC 17."""
    session = await asked(world, 2)
    begun = json.loads((await run(world, "compact", session, "--no-wait", "--json")).out)
    assert (begun["session_id"], begun["episode_id"] is not None) == (session, True)


async def test_a_compaction_under_way_is_shown_with_its_session_and_can_be_stopped(world: RunWorld, says: Says) -> None:
    """SPEC 17, K12, S8: by the session alone; afterwards there is none to show or to stop."""
    session = await asked(world, 3)
    assert (await world.get(f"/sessions/{session}"))["active_compaction_id"] is None
    says.summary = replies.text(SUMMARY).but(hold="never")
    process = await started(world, "compact", session)
    await world.model.wait_for_requests(4)
    compaction = (await world.get(f"/sessions/{session}"))["active_compaction_id"]
    assert [one["active_compaction_id"] for one in await world.items("/sessions")] == [compaction]
    assert f"compaction {compaction} is under way" in (await run(world, "sessions", "show", session)).out
    assert "(compacting)" in (await run(world, "sessions", "list")).out
    stopped = await run(world, "compact", session, "--stop")
    assert (stopped.code, stopped.out) == (0, "the compaction was stopped\n")
    assert (await ended(process)).code == 1
    assert "under way" not in (await run(world, "sessions", "show", session)).out
    none = await run(world, "compact", session, "--stop")
    assert (none.code, none.out, len(none.err.splitlines())) == (4, "", 2)


async def test_a_compaction_that_is_left_alone_can_be_stopped_as_ctrl_c_says(world: RunWorld, says: Says) -> None:
    """SPEC 17: exit code 130, and both commands that go on from there."""
    session = await asked(world, 3)
    says.summary = replies.text(SUMMARY).but(hold="never")
    process = await started(world, "compact", session)
    await world.model.wait_for_requests(4)
    process.send_signal(signal.SIGINT)
    left = await ended(process)
    assert left.code == 130
    assert f"agentloom compact {session} --stop" in left.err
    assert json.loads((await run(world, "compact", session, "--stop", "--json")).out)["status"] == "cancelled"


async def with_active_run(world: RunWorld, turns: int, **context: int) -> tuple[str, str]:
    """A session whose Run waits in its model call after `turns` tool results, and goes on for two more."""

    def script(request: RecordedRequest) -> replies.Reply | str:
        if is_summary(request):
            return SUMMARY
        sent = len([one for one in world.model.requests if not is_summary(one)])
        call = replies.calls(("repeat", {"text": "z", "times": 600}))
        return call.but(hold="go on") if sent == turns + 1 else call if sent <= turns + 2 else "all done"

    await world.publish(tools=["repeat"], **(LARGE | {"context": EAGER["context"] | context}))
    world.model.add(*[script] * (turns + 6))
    session = await world.open_session()
    run_id = await world.start("The question.", session)
    await world.model.wait_for_requests(turns + 1)
    return session, run_id


async def test_an_active_runs_compaction_is_followed_to_its_gain(world: RunWorld) -> None:
    """SPEC 17, K12: it comes before the Run's next request; the command waits for it and not for the Run."""
    session, run_id = await with_active_run(world, 3)
    refused = await run(world, "compact", session, "--stop")
    assert (refused.code, f"agentloom stop {run_id}" in refused.err) == (4, True)
    process = await started(world, "compact", session)
    assert process.stderr
    assert run_id in (await process.stderr.readline()).decode()
    world.model.release("go on")
    done = await ended(process)
    assert (done.code, done.out.startswith("context compacted: ")) == (0, True)
    assert (await world.ended(run_id))["answer"] == "all done"


async def test_an_active_run_with_nothing_to_compact_says_so(world: RunWorld) -> None:
    """SPEC K3: the request goes on, and the command ends with 0."""
    session, run_id = await with_active_run(world, 0, keep_recent_tokens=4_000)
    process = await started(world, "compact", session)
    assert process.stderr
    assert run_id in (await process.stderr.readline()).decode()
    world.model.release("go on")
    done = await ended(process)
    assert (done.code, done.out.startswith("nothing to compact: ")) == (0, True)


async def test_a_run_that_ends_before_its_next_request_was_not_compacted(world: RunWorld) -> None:
    """SPEC 17, K12: exit code 1, and the reason; the Run's own end is not the command's."""
    world.model.add(replies.text("done").but(hold="go on"))
    session = await world.open_session()
    run_id = await world.start("The question.", session)
    await world.model.wait_for_requests(1)
    process = await started(world, "compact", session)
    assert process.stderr
    assert run_id in (await process.stderr.readline()).decode()
    world.model.release("go on")
    told = await ended(process)
    assert (told.code, told.out) == (1, "")
    assert told.err.splitlines()[0] == "error: nothing was compacted"
    assert "The run ended before it made another request" in told.err
    assert len(told.err.splitlines()) <= 3

"""`ask`, `say`, `stop`, `resume` and `show inputs` as a person sees them, while a Run goes on (SPEC 17, S6-S9)."""

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pytest

from tests.support import replies
from tests.support.compactions import SMALL
from tests.support.run_world import Json, RunWorld

AGENTLOOM = Path(sys.executable).parent / "agentloom"
HELD = replies.text("the answer").but(hold="answer")


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str


async def begin(world: RunWorld, *arguments: str) -> asyncio.subprocess.Process:
    """Start a command against the world's API."""
    environment = {
        "PATH": "/usr/bin:/bin",
        "NO_COLOR": "1",
        "AGENTLOOM_API": str(world.http.base_url).removesuffix("/api/v1/"),
        "AGENTLOOM_API_KEY": world.http.headers["authorization"].removeprefix("Bearer "),
    }
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        AGENTLOOM, *arguments, cwd=world.servers.folder, env=environment, stdin=pipe, stdout=pipe, stderr=pipe
    )


async def said(process: asyncio.subprocess.Process) -> Said:
    out, err = await process.communicate(b"")
    return Said(process.returncode or 0, out.decode(), err.decode())


async def command(world: RunWorld, *arguments: str) -> Said:
    return await said(await begin(world, *arguments))


@asynccontextmanager
async def asking(world: RunWorld, *arguments: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A command that waits for the model; the process and its Run."""
    world.model.add(HELD)
    process = await begin(world, *arguments)
    await world.model.wait_for_requests(1)
    [session] = await world.items("/sessions")
    runs = await world.items(f"/sessions/{session['session_id']}/runs")
    try:
        yield process, runs[-1]["run_id"]
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_supplement_that_comes_too_late_is_said_to_be_in_the_next_run(world: RunWorld) -> None:
    """SPEC 17, S6: `say` says that it waits, `ask` at its end what became of it; the answer stands alone."""
    await world.publish()
    async with asking(world, "ask", "--agent", "scout", "What?") as (process, run_id):
        told = await command(world, "say", "--run", run_id, "In metric units.")
        assert (told.code, told.out) == (0, f"input 2 of run {run_id} waits for the next request\n")
        world.model.release("answer")
        asked = await said(process)
    assert (asked.code, asked.out) == (0, "the answer\n")
    assert "input 1 reached the model" in asked.err
    assert "input 2 waits for the next request" in asked.err
    assert "input 2 came too late for this run and will be in the next one" in asked.err
    shown = (await command(world, "show", "inputs", run_id)).out
    assert "goes to whatever starts next in the session" in shown
    assert "In metric units." in shown


async def test_a_request_that_carries_supplements_says_how_many(world: RunWorld) -> None:
    """SPEC 17, W3: with `late_input: continue` the next loop has it, and its delivery is told."""
    await world.publish(context={"late_input": "continue"})
    async with asking(world, "ask", "--agent", "scout", "What?") as (process, run_id):
        await command(world, "say", "--run", run_id, "In metric units.")
        world.model.add("in metres")
        world.model.release("answer")
        asked = await said(process)
    assert asked.out == "in metres\n"
    assert "· +1 supplement" in asked.err
    assert "input 2 reached the model" in asked.err


async def test_a_run_is_stopped_and_goes_on_with_something_to_add(world: RunWorld) -> None:
    """SPEC 17, S8, S9: `ask` ends with 1 and the command that helps; `resume` shows only what is new."""
    await world.publish()
    async with asking(world, "ask", "--agent", "scout", "What?") as (process, run_id):
        stopped = await command(world, "stop", run_id)
        assert (stopped.code, stopped.out) == (0, f"run {run_id} stopped\n")
        asked = await said(process)
    assert (asked.code, asked.out) == (1, "")
    assert f"agentloom resume {run_id}" in asked.err
    world.model.add("resumed")
    resumed = await command(world, "resume", run_id, "Be brief.")
    assert (resumed.code, resumed.out) == (0, "resumed\n")
    assert "started again (execution 2)" in resumed.err
    assert "· +1 supplement" in resumed.err


async def test_what_can_not_be_done_says_what_can(world: RunWorld) -> None:
    """SPEC 17: exit code 4, three lines, the next command."""
    world.model.add("done")
    run = await world.ask()
    too_late = await command(world, "say", "--run", run["run_id"], "Too late.")
    assert too_late.code == 4
    assert "agentloom ask --session" in too_late.err
    over = await command(world, "resume", run["run_id"])
    assert (over.code, "RUN_NOT_RESUMABLE" in over.err, len(over.err.splitlines())) == (4, True, 3)
    assert "agentloom ask --session" in over.err


async def test_a_run_that_failed_shows_the_numbers_of_its_error(world: RunWorld) -> None:
    """SPEC 17, E: where it ended, and whenever it is looked at; --json has them as they are."""
    await world.publish(**SMALL)
    asked = await command(world, "ask", "--agent", "scout", "x" * 7_000)
    assert (asked.code, len(asked.err.splitlines())) == (1, 7)  # four of progress
    why = next(line for line in asked.err.splitlines() if "why:" in line)
    assert "input_limit 6744, phase preparing, protected_tokens 7" in why
    [session] = await world.items("/sessions")
    [run] = await world.items(f"/sessions/{session['session_id']}/runs")
    shown = (await command(world, "show", "run", run["run_id"])).out
    for name, number in run["error"]["numbers"].items():
        assert re.search(rf"{name} +{number}\b", shown), name
    assert json.loads((await command(world, "show", "run", run["run_id"], "--json")).out) == run


@pytest.mark.parametrize("limit", [{"max_total_tokens": 60}, {"max_cost": 0.0001}])
async def test_a_run_that_used_up_its_budget_says_which_and_what_to_do(world: RunWorld, limit: Json) -> None:
    """SPEC 17, L5: the limit and what was used, and how to go on."""
    await world.publish(tools=["now"], limits=limit, model={"price": {"input": 10, "output": 10}})
    world.model.add(replies.calls(("now", {})), "not reached")
    asked = await command(world, "ask", "--agent", "scout", "What time is it?")
    what = (
        "budget tokens, limit 60, used 60" if "max_total_tokens" in limit else "budget cost, limit 0.0001, used 0.0006"
    )
    assert (asked.code, what in asked.err, "limits." in asked.err) == (1, True, True)
    [session] = await world.items("/sessions")
    assert f"agentloom ask --session {session['session_id']}" in asked.err


async def test_a_shown_request_has_the_bytes_that_the_model_got(world: RunWorld) -> None:
    """SPEC 17, A9: standard output is those bytes and a line end, and the hash beside them is theirs."""
    await world.publish()
    world.model.add("the answer")
    asked = await command(world, "ask", "--agent", "scout", "--json", "Größe in Ångström? 1.0 \U0001f600")
    run_id = json.loads(asked.out)["run_id"]
    for options in ((), ("--json",)):
        shown = await command(world, "show", "request", run_id, *options)
        digest = sha256(shown.out.removesuffix("\n").encode()).hexdigest()
        assert (shown.code, shown.err) == (0, f"sha256 {digest}\n")
    assert shown.out.removesuffix("\n").encode() == world.model.requests[-1].body


async def test_doctor_looks_at_the_models_of_published_agents(world: RunWorld) -> None:
    """SPEC 17: the addresses of the newest releases, on this machine too."""
    await world.publish()
    await world.publish("lost", model={"base_url": "http://127.0.0.1:1/v1"})
    found = json.loads((await command(world, "doctor", "--part", "model", "--json")).out)["checks"]
    states = {check["detail"].split()[0]: check["state"] for check in found}
    assert states == {world.model.base_url: "sound", "http://127.0.0.1:1/v1": "broken"}

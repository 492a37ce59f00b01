"""The processes of stdio servers: ended when they hang, started anew, and never left behind (SPEC T4, S8, R5)."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.integration.tools.conftest import ROOT, guarded, opened
from tests.support.dev_stack import is_alive
from tests.support.tool_calls import entry, frozen, invocation, no_progress, no_secrets
from tools.errors import ToolTimeoutError, ToolUnavailableError
from tools.mcp import McpTool
from tools.mcp_servers import McpServers
from tools.port import ToolOutcome, may_repeat
from tools.running import run_within_limit

PLAIN = str(ROOT / "tests" / "support" / "plain_mcp_server.py")
WARDEN = str(ROOT / "tools" / "warden.py")
Ask = Callable[..., Coroutine[Any, Any, ToolOutcome]]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "trace"


def tool_of(servers: McpServers, trace: Path, name: str, **fields: Any) -> McpTool:
    written = entry(kind="mcp", command=[sys.executable, "-I", "-S", PLAIN, str(trace)])
    known = frozen(kind="mcp", remote_name=name, **({"timeout_s": 10} | fields))
    return McpTool(known, written, open_servers=opened(servers), resolve_secret=no_secrets)


@pytest.fixture
def ask(servers: McpServers, trace: Path) -> Ask:
    async def asked(name: str, timeout_s: float = 10, **arguments: Any) -> ToolOutcome:
        tool = tool_of(servers, trace, name, timeout_s=timeout_s)
        return await run_within_limit(tool, invocation(**arguments), on_progress=no_progress)

    return asked


def pids(trace: Path, word: str) -> list[int]:
    """The processes that wrote this word, in order."""
    lines = trace.read_text().splitlines() if trace.exists() else []
    return [int(line.split()[1]) for line in lines if line.split()[0] == word]


async def until_gone(*ids: int) -> None:
    assert ids
    async with asyncio.timeout(15):
        while any(map(is_alive, ids)):
            await asyncio.sleep(0.02)


async def until_noted(trace: Path, word: str) -> None:
    async with asyncio.timeout(15):
        while not pids(trace, word):
            await asyncio.sleep(0.02)


async def test_a_server_that_hangs_is_ended_after_the_time_out_and_a_fresh_one_takes_the_next_call(
    ask: Ask, trace: Path
) -> None:
    """SPEC T4: deaf to the end of its input and to SIGTERM, with a child in a session of its own."""
    await ask("leaves_a_child")
    with pytest.raises(ToolTimeoutError) as late:
        await ask("hangs", timeout_s=0.5)
    assert late.value.may_have_run
    assert (await ask("echo", text="on")).content == "on"
    first, second = pids(trace, "server")
    await until_gone(first, *pids(trace, "child"))
    assert is_alive(second)


@pytest.mark.parametrize(("effect", "again"), [("read_only", True), ("idempotent", True), ("side_effect", False)])
async def test_the_outcome_of_a_hung_call_goes_by_its_effect(
    servers: McpServers, trace: Path, tmp_path: Path, effect: str, again: bool
) -> None:
    """SPEC T4: what may be repeated finds a server that works."""
    tool = tool_of(servers, trace, "hangs_once", effect=effect, timeout_s=0.5)
    call = invocation(path=str(tmp_path / "hung"))
    with pytest.raises(ToolTimeoutError) as late:
        await run_within_limit(tool, call, on_progress=no_progress)
    assert may_repeat(tool.frozen, late.value) is again
    tool = tool_of(servers, trace, "hangs_once", effect=effect)
    assert (await run_within_limit(tool, call, on_progress=no_progress)).content == "hangs_once"


async def test_calls_that_go_on_beside_a_hung_one_are_not_cut_off(ask: Ask, trace: Path, servers: McpServers) -> None:
    """SPEC T4: one call's time limit is not another's; what comes after goes to the new server."""
    waiting = asyncio.create_task(ask("hangs", timeout_s=2.5))
    await until_noted(trace, "hangs")
    with pytest.raises(ToolTimeoutError):
        await ask("echo", timeout_s=0.3)
    assert (await ask("echo", text="fresh")).content == "fresh"
    first, second = pids(trace, "server")
    assert is_alive(first)
    with pytest.raises(ToolTimeoutError):
        await waiting
    await until_gone(first)
    assert is_alive(second)


async def test_a_stop_ends_the_server_that_did_not_answer(ask: Ask, trace: Path) -> None:
    """SPEC S8: what is in flight is cancelled, which only the end of the process makes sure of."""
    running = asyncio.create_task(ask("hangs"))
    await until_noted(trace, "hangs")
    running.cancel()
    async with asyncio.timeout(10):
        with pytest.raises(asyncio.CancelledError):
            await running
    await until_gone(*pids(trace, "server"))


async def test_a_server_that_dies_in_a_call_takes_its_children_along(ask: Ask, trace: Path) -> None:
    """SPEC T4: a child that holds the output open doesn't hide that the server is gone."""
    await ask("leaves_a_child")
    with pytest.raises(ToolUnavailableError) as lost:
        await ask("dies", timeout_s=8)
    assert (lost.value.reason, lost.value.may_have_run) == ("connection_lost", True)
    await until_gone(*pids(trace, "child"), *pids(trace, "server"))
    assert (await ask("echo", text="again")).content == "again"


async def test_a_time_limit_that_ends_while_the_server_starts_leaves_nothing_open(
    servers: McpServers, tmp_path: Path
) -> None:
    """SPEC T4: the call was not made; and whoever asks again finds the start given up after its own time."""
    slow = McpServers(http_client_for=guarded, connect_timeout_s=1.0)
    written = entry(kind="mcp", command=[sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"])
    tool = McpTool(frozen(kind="mcp", timeout_s=0.4), written, open_servers=opened(slow), resolve_secret=no_secrets)
    for _ in range(3):
        with pytest.raises(ToolUnavailableError) as failed:
            await run_within_limit(tool, invocation(), on_progress=no_progress)
        assert not failed.value.may_have_run
    assert failed.value.reason == "unreachable"
    await slow.aclose()


async def test_closing_waits_for_servers_that_are_still_being_ended(trace: Path) -> None:
    """SPEC S8: nothing is left behind by a worker that drains."""
    pool = McpServers(http_client_for=guarded)
    with pytest.raises(ToolTimeoutError):
        await run_within_limit(tool_of(pool, trace, "hangs", timeout_s=0.5), invocation(), on_progress=no_progress)
    await run_within_limit(tool_of(pool, trace, "echo"), invocation(), on_progress=no_progress)
    await pool.aclose()
    started = pids(trace, "server")
    assert len(started) > 1
    assert not any(map(is_alive, started))


HOLDER = """
import asyncio, sys
from pathlib import Path
from tests.integration.tools.conftest import guarded
from tests.integration.tools.test_mcp_processes import tool_of
from tests.support.dev_stack import is_alive
from tests.support.tool_calls import invocation, no_progress
from tools.mcp_servers import McpServers

async def main():
    servers, trace = McpServers(http_client_for=guarded), Path(sys.argv[1])
    await tool_of(servers, trace, "leaves_a_child").run(invocation(), on_progress=no_progress)
    await tool_of(servers, trace, "hangs").run(invocation(), on_progress=no_progress)

asyncio.run(main())
"""


async def test_no_server_outlives_the_process_that_started_it(trace: Path) -> None:
    """SPEC R5: kill -9, in the middle of a call that hangs; a child in a session of its own goes too."""
    holder = await asyncio.create_subprocess_exec(sys.executable, "-c", HOLDER, str(trace), cwd=ROOT)
    await until_noted(trace, "hangs")
    holder.kill()
    await holder.wait()
    await until_gone(*pids(trace, "server"), *pids(trace, "child"))


async def test_a_warden_that_is_killed_takes_the_server_along(ask: Ask, trace: Path) -> None:
    """The guard itself is no way to leave a server behind."""
    await ask("echo", text="a")
    [server] = pids(trace, "server")
    warden = int(Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()[1])
    assert WARDEN in Path(f"/proc/{warden}/cmdline").read_text()
    os.kill(warden, signal.SIGKILL)
    await until_gone(server)

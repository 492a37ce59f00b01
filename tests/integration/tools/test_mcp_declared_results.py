"""What a server declares of its results is a matter of the server: no result is lost by it, and nobody held up (T5)."""

import sys
from pathlib import Path

import pytest

from tests.integration.tools.conftest import ROOT, opened
from tests.support.tool_calls import entry, frozen, invocation, no_progress, no_secrets
from tools.mcp import McpTool
from tools.mcp_servers import McpServers
from tools.port import ToolOutcome
from tools.running import run_within_limit

PLAIN = str(ROOT / "tests" / "support" / "plain_mcp_server.py")


async def declared(servers: McpServers, trace: Path, result: str) -> ToolOutcome:
    """The outcome of a call of the tool whose list says what its results are like."""
    written = entry(kind="mcp", command=[sys.executable, "-I", "-S", PLAIN, str(trace)])
    known = frozen(kind="mcp", remote_name="declares", timeout_s=8)
    tool = McpTool(known, written, open_servers=opened(servers), resolve_secret=no_secrets)
    return await run_within_limit(tool, invocation(result=result), on_progress=no_progress)


@pytest.mark.timeout(20)
async def test_a_declared_pattern_that_never_comes_to_an_end_holds_up_nobody(
    servers: McpServers, tmp_path: Path
) -> None:
    """SPEC T9; decision 0082: no schema of other people holds up a worker, that of a result included."""
    value = f'{{"t": "{"a" * 40}!"}}'
    text = '"content": [{"type": "text", "text": "done"}]'
    outcome = await declared(servers, tmp_path / "trace", f'{{{text}, "structuredContent": {value}}}')
    assert (outcome.status, outcome.content) == ("ok", "done")


@pytest.mark.parametrize("more", ["", ', "structuredContent": {}', ', "structuredContent": {"t": 7}'])
async def test_a_result_that_is_not_as_declared_is_a_result(servers: McpServers, tmp_path: Path, more: str) -> None:
    """SPEC T5, T9: the call ran, and what it brought is stored whole; nobody else could tell what it was."""
    text = '"content": [{"type": "text", "text": "booked 7"}]'
    outcome = await declared(servers, tmp_path / "trace", f"{{{text}{more}}}")
    assert (outcome.status, outcome.content) == ("ok", "booked 7")


async def test_a_call_asks_for_no_list(servers: McpServers, tmp_path: Path) -> None:
    """SPEC T4: behind a call nothing more is asked that could lose its result."""
    await declared(servers, tmp_path / "trace", '{"content": [], "structuredContent": {"t": "a"}}')
    assert "list" not in (tmp_path / "trace").read_text()

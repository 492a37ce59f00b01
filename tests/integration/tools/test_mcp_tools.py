"""Tools of MCP servers that run as processes of their own."""

import asyncio
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from context.errors import ConfigurationInvalidError
from context.policy import FrozenTool, ToolEntry
from tests.integration.tools.conftest import ROOT, HttpServer, StartServer, guarded, opened
from tests.support.tool_calls import OPERATION, entry, invocation, no_progress, no_secrets
from tests.support.tool_server import Answer, Received, tool_server
from tools.errors import ToolTimeoutError, ToolUnavailableError
from tools.mcp import McpTool, list_frozen
from tools.mcp_servers import McpServers
from tools.port import ToolOutcome

OURS = ("tests.support.mcp_server", "--http")
BY_STDIO = {"command": [sys.executable, "-m", "tests.support.mcp_server", "--noise"]}

PLAIN = {"command": [sys.executable, "-I", "-S", str(ROOT / "tests/support/plain_mcp_server.py"), os.devnull]}


def frozen(remote_name: str, **fields: Any) -> FrozenTool:
    known = {"name": remote_name, "description": "", "parameters": {"type": "object"}, "entry_name": "tool"}
    return FrozenTool.model_validate(known | {"kind": "mcp", "remote_name": remote_name} | fields)


async def call(servers: McpServers, where: dict[str, Any], name: str, **arguments: Any) -> ToolOutcome:
    written = entry(kind="mcp", **where)
    tool = McpTool(frozen(name, timeout_s=10), written, open_servers=opened(servers), resolve_secret=no_secrets)
    return await tool.run(invocation(**arguments), on_progress=no_progress)


def error(outcome: ToolOutcome) -> dict[str, Any]:
    assert outcome.status == "error"
    found: dict[str, Any] = json.loads(outcome.content)["error"]
    return found


@pytest.fixture(params=["stdio", "http"])
async def where(request: pytest.FixtureRequest, start_server: StartServer) -> dict[str, Any]:
    """How our test server is reached."""
    if request.param == "stdio":
        return BY_STDIO
    return {"url": (await start_server(*OURS)).url}


async def listed(servers: McpServers, written: ToolEntry) -> dict[str, FrozenTool]:
    tools = await list_frozen(written, open_servers=opened(servers), resolve_secret=no_secrets)
    return {tool.name: tool for tool in tools}


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_server_from_the_package_registry_works_as_a_tool(
    servers: McpServers, start_server: StartServer, transport: str
) -> None:
    """SPEC T1; a server that was not written here, by both transports."""
    if transport == "stdio":
        where: dict[str, Any] = {"command": ["mcp-server-time", "--local-timezone", "UTC"]}
    else:
        where = {"url": (await start_server("tests.support.mcp_time_over_http")).url}
    tools = await listed(servers, entry(kind="mcp", name="clock", effect="read_only", **where))
    assert set(tools) == {"get_current_time", "convert_time"}
    assert tools["convert_time"].parameters["required"] == ["source_timezone", "time", "target_timezone"]
    outcome = await call(
        servers, where, "convert_time", source_timezone="UTC", time="12:00", target_timezone="Asia/Tokyo"
    )
    assert json.loads(outcome.content)["time_difference"] == "+9.0h"
    refused = await call(servers, where, "get_current_time", timezone="Atlantis/Center")
    assert error(refused)["type"] == "ToolError"
    assert "Atlantis" in error(refused)["message"]


async def test_schemas_effects_and_names_are_frozen_as_the_definition_says(
    servers: McpServers, where: dict[str, Any]
) -> None:
    """SPEC T1, T4; a server's own word about effects is not believed."""
    written = entry(
        kind="mcp", name="ours", allow=["echo", "odd.name/with:signs"], effect={"echo": "read_only"},
        timeout_s=7, retry_unknown=True, **where,
    )  # fmt: skip
    tools = await listed(servers, written)
    assert set(tools) == {"echo", "odd_name_with_signs"}
    echo, odd = tools["echo"], tools["odd_name_with_signs"]
    assert (echo.kind, echo.entry_name, echo.description) == ("mcp", "ours", "Say it again.")
    assert (echo.effect, echo.timeout_s, echo.retry_unknown) == ("read_only", 7, True)
    assert echo.parameters["required"] == ["text"]
    assert (odd.remote_name, odd.effect) == ("odd.name/with:signs", "side_effect")


async def test_text_is_the_result_and_the_whole_answer_is_kept(servers: McpServers, where: dict[str, Any]) -> None:
    """SPEC T1, T5."""
    outcome = await call(servers, where, "echo", text="Zürich")
    assert (outcome.status, outcome.content) == ("ok", "Zürich")
    assert json.loads(outcome.raw)["content"][0]["text"] == "Zürich"


async def test_results_far_over_a_megabyte_come_whole(servers: McpServers, where: dict[str, Any]) -> None:
    """SPEC T5, T9."""
    assert len((await call(servers, where, "big", size=3_000_000)).content) == 3_000_000


async def test_pictures_and_files_become_artifacts_in_their_places(servers: McpServers, where: dict[str, Any]) -> None:
    """SPEC T7."""
    outcome = await call(servers, where, "mixed")
    text, picture, file = outcome.content.split("\n")
    assert text == "see:"
    assert json.loads(picture)["artifact_ref"] == f"artifact:{OPERATION}/1"
    assert json.loads(file)["name"] == "file:///a.bin"
    assert [artifact.media_type for artifact in outcome.artifacts] == ["image/png", "application/x-a"]
    assert all(artifact.body.startswith(b"\x89PNG") for artifact in outcome.artifacts)


async def test_a_value_without_text_is_shown_as_json(servers: McpServers, where: dict[str, Any]) -> None:
    """SPEC T1."""
    assert json.loads((await call(servers, where, "structured")).content) == {"t": 21}


async def test_a_tools_own_failure_is_its_answer(servers: McpServers, where: dict[str, Any]) -> None:
    """SPEC T9."""
    assert error(await call(servers, where, "refuses")) == {"type": "ToolError", "message": "no such city"}
    assert error(await call(servers, where, "raises"))["type"] == "ToolError"


async def test_a_call_that_changes_something_carries_the_operation_as_its_key(
    servers: McpServers, where: dict[str, Any], tmp_path: Path
) -> None:
    """SPEC T4: `_meta` of the call; case 084."""
    trace = tmp_path / "trace"
    for effect in ("read_only", "idempotent", "side_effect"):
        tool = McpTool(
            frozen("count", effect=effect),
            entry(kind="mcp", **where),
            open_servers=opened(servers),
            resolve_secret=no_secrets,
        )
        await tool.run(invocation(path=str(trace)), on_progress=no_progress)
    assert trace.read_text().split() == ["None", str(OPERATION), str(OPERATION)]


async def test_a_server_that_dies_in_a_call_leaves_the_outcome_open_and_is_not_called_twice(
    servers: McpServers, where: dict[str, Any], tmp_path: Path
) -> None:
    """SPEC T4; case 084."""
    trace = tmp_path / "trace"
    with pytest.raises(ToolUnavailableError) as failed:
        await call(servers, where, "dies", path=str(trace))
    assert (failed.value.reason, failed.value.may_have_run) == ("connection_lost", True)
    assert trace.read_text() == "died\n"


async def test_a_server_that_ended_is_started_again_for_the_next_call(servers: McpServers, tmp_path: Path) -> None:
    """A stdio server that is gone costs the call in flight, not the ones after it."""
    with pytest.raises(ToolUnavailableError):
        await call(servers, BY_STDIO, "dies", path=str(tmp_path / "trace"))
    assert (await call(servers, BY_STDIO, "echo", text="again")).content == "again"


async def test_a_server_that_came_back_is_used_again(servers: McpServers, start_server: StartServer) -> None:
    """Over HTTP: away means nothing ran, back means it works."""
    server: HttpServer = await start_server(*OURS)
    where = {"url": server.url}
    assert (await call(servers, where, "echo", text="one")).content == "one"
    await server.stop()
    with pytest.raises(ToolUnavailableError) as failed:
        await call(servers, where, "echo", text="two")
    assert not failed.value.may_have_run
    await server.start()
    assert (await call(servers, where, "echo", text="three")).content == "three"


async def test_calls_of_one_message_share_a_connection_and_do_not_wait_for_each_other(
    servers: McpServers, where: dict[str, Any]
) -> None:
    """SPEC T2; case 005."""
    await call(servers, where, "echo", text="warm")
    loop = asyncio.get_running_loop()
    started = loop.time()
    calls = [call(servers, where, "waits", seconds=1.5) for _ in range(5)]
    outcomes = await asyncio.gather(*calls)
    assert [outcome.content for outcome in outcomes] == ["waited"] * 5
    assert loop.time() - started < 6


async def test_a_call_over_its_time_limit_leaves_the_outcome_open_and_the_connection_usable(
    servers: McpServers, where: dict[str, Any]
) -> None:
    """SPEC T4."""
    slow = McpTool(
        frozen("waits", timeout_s=0.4),
        entry(kind="mcp", **where),
        open_servers=opened(servers),
        resolve_secret=no_secrets,
    )
    with pytest.raises(ToolTimeoutError) as late:
        await slow.run(invocation(seconds=20.0), on_progress=no_progress)
    assert late.value.may_have_run
    assert (await call(servers, where, "echo", text="on")).content == "on"


async def test_a_stop_does_not_wait_for_the_server(servers: McpServers, where: dict[str, Any]) -> None:
    """SPEC S8."""
    at_work = asyncio.Event()
    tool = McpTool(frozen("waits"), entry(kind="mcp", **where), open_servers=opened(servers), resolve_secret=no_secrets)
    running = asyncio.create_task(tool.run(invocation(seconds=20.0), on_progress=at_work.set))
    await at_work.wait()
    running.cancel()
    async with asyncio.timeout(10):
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_a_servers_progress_is_a_sign_of_life(servers: McpServers, where: dict[str, Any]) -> None:
    """SPEC W5."""
    beats: list[int] = []
    tool = McpTool(frozen("waits"), entry(kind="mcp", **where), open_servers=opened(servers), resolve_secret=no_secrets)
    await tool.run(invocation(seconds=0.2), on_progress=lambda: beats.append(1))
    assert beats


async def test_the_secret_goes_as_bearer_with_each_request_and_does_not_come_back(servers: McpServers) -> None:
    """SPEC L6, Y3."""
    secret = "sk-MARK-secret-value"

    async def secrets(name: str) -> str | None:
        return secret

    async def server(request: Received) -> Answer:
        message = json.loads(request.body or b"{}")
        if message.get("method") != "tools/call":
            return legacy_answer(message)
        text = {"type": "text", "text": f"you sent {request.headers['authorization']}"}
        return json_answer(message["id"], {"content": [text]})

    async with tool_server(server) as http:
        written = entry(kind="mcp", url=http.url, connection="ours")
        tool = McpTool(frozen("echo"), written, open_servers=opened(servers), resolve_secret=secrets)
        outcome = await tool.run(invocation(), on_progress=no_progress)
        await servers.aclose()
    assert {request.headers["authorization"] for request in http.requests} == {f"Bearer {secret}"}
    assert outcome.content.startswith("you sent Bearer [")
    assert secret.encode() not in outcome.raw


def json_answer(message_id: Any, result: dict[str, Any], **headers: str) -> Answer:
    body = json.dumps({"jsonrpc": "2.0", "id": message_id, "result": result}).encode()
    return Answer(body=body, headers={"Content-Type": "application/json", **headers})


def legacy_answer(message: dict[str, Any]) -> Answer:
    """What a server of the protocol's older form, with sessions, says to everything but a call."""
    method = message.get("method")
    if method == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}} | {
            "serverInfo": {"name": "old", "version": "1"}
        }
        return json_answer(message["id"], result, **{"Mcp-Session-Id": "s1"})
    if method == "tools/list":
        tools = [{"name": "echo", "inputSchema": {"type": "object"}}]
        return json_answer(message["id"], {"tools": tools})
    return Answer(status=202 if method == "notifications/initialized" else 405)


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ({"command": ["/nonexistent/server"]}, "does not exist"),
        ({"command": [sys.executable, "-c", "print('not a server')"]}, "ended before it answered"),
        ({"command": [sys.executable, "-c", "import time; time.sleep(60)"]}, "could not be asked"),
        ({**PLAIN, "allow": ["echo", "nothing"]}, "no tool 'nothing'"),
        ({**PLAIN, "effect": {"nothing": "read_only"}}, "no tool 'nothing'"),
        ({**PLAIN, "connection": "gone"}, "no stored connection 'gone'"),
    ],
)
async def test_a_server_that_is_not_what_the_definition_says_is_refused_at_publishing(
    where: dict[str, Any], words: str
) -> None:
    """SPEC B3, E."""
    servers = McpServers(http_client_for=guarded, folder=ROOT, connect_timeout_s=3)
    with pytest.raises(ConfigurationInvalidError, match="'clock'") as refused:
        await listed(servers, entry(kind="mcp", name="clock", **where))
    assert words in refused.value.message
    assert refused.value.__cause__ is None


async def test_what_servers_say_is_in_no_log(
    servers: McpServers, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """SPEC Y6: neither their standard error, nor messages that the SDK can't read, nor their errors."""
    caplog.set_level(logging.DEBUG)
    await call(servers, BY_STDIO, "raises")
    await call(servers, BY_STDIO, "echo", text="MARK-text")
    garbage = {"command": [sys.executable, "-c", "print('MARK-garbage')"]}
    with pytest.raises(ToolUnavailableError):
        await call(servers, garbage, "echo")
    await servers.aclose()
    written = "".join(capfd.readouterr()) + caplog.text
    assert "MARK" not in written


async def test_closing_ends_the_servers_that_were_started(servers: McpServers, tmp_path: Path) -> None:
    """Nothing is left behind by a worker that drains."""
    pid_file = tmp_path / "pid"
    program = f"import os; open({str(pid_file)!r}, 'w').write(str(os.getpid()));"
    program += "from tests.support.mcp_server import server; server.run('stdio')"
    await call(servers, {"command": [sys.executable, "-c", program]}, "echo", text="a")
    pid = int(pid_file.read_text())
    assert Path(f"/proc/{pid}").exists()
    await servers.aclose()
    assert not Path(f"/proc/{pid}").exists()


async def test_a_server_inherits_nothing_but_what_a_program_needs_to_start(
    servers: McpServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC Y6: not the platform's secrets, nor any other variable of the worker."""
    for name in ("DATABASE_URL", "AGENTLOOM_MASTER_KEYS", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "secret")
    seen_file = tmp_path / "seen"
    program = f"import os; open({str(seen_file)!r}, 'w').write(' '.join(os.environ));"
    program += "from tests.support.mcp_server import server; server.run('stdio')"
    await call(servers, {"command": [sys.executable, "-c", program]}, "echo", text="a")
    seen = set(seen_file.read_text().split())
    assert "PATH" in seen
    assert seen <= {"PATH", "HOME", "LOGNAME", "SHELL", "TERM", "USER", "LC_CTYPE"}


TRACED = """
import asyncio, sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

exporter, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)

from tests.integration.tools.conftest import ROOT, guarded
from tests.integration.tools.test_mcp_tools import BY_STDIO, call
from tools.mcp_servers import McpServers

async def main():
    servers = McpServers(http_client_for=guarded, folder=ROOT)
    for name in ("raises", "echo", "MARK-unknown"):
        await call(servers, BY_STDIO, name, text="MARK-text")
    await servers.aclose()

with trace.get_tracer("worker").start_as_current_span("worker"):
    pass
asyncio.run(main())
print([span.name for span in exporter.get_finished_spans()])
"""


async def test_what_servers_say_is_in_no_trace() -> None:
    """SPEC Y6: the SDK's spans hold error texts; a traced process (of its own, since tracing is global) has none."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", TRACED, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert output.decode().strip() == "['worker']"

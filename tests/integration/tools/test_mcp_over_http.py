"""What an HTTP answer says about a call of an MCP tool: the same as for an HTTP tool (SPEC T4, T9, Y4)."""

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest

from context.errors import ConfigurationInvalidError
from egress.client import build_client
from egress.limits import EgressLimits
from egress.mcp import build_mcp_http_client
from tests.integration.tools.conftest import ROOT, opened
from tests.integration.tools.test_mcp_tools import json_answer, legacy_answer
from tests.support.certificates import tls_server
from tests.support.tool_calls import entry, frozen, invocation, no_progress, no_secrets
from tests.support.tool_server import Answer, Received, tool_server
from tools.errors import ToolUnavailableError
from tools.http import HttpTool
from tools.mcp import McpTool, list_frozen
from tools.mcp_servers import McpServers
from tools.port import ToolOutcome

LIMITS = EgressLimits(max_answer_bytes=50_000)
TEXT = {"Content-Type": "text/plain"}
FINE = {"content": [{"type": "text", "text": "fine"}]}
SILENCE_S = 0.5
Verdict = ToolOutcome | tuple[str, int, bool]


def small(headers: Mapping[str, str]) -> httpx2.AsyncClient:
    return build_mcp_http_client(private_addresses="loopback", headers=headers, limits=LIMITS)


async def verdict(tool: HttpTool | McpTool) -> Verdict:
    try:
        return await tool.run(invocation(), on_progress=no_progress)
    except ToolUnavailableError as error:
        return error.reason, error.status, error.may_have_run or "MARK" in str(error)


async def by_mcp(answers: list[Answer | None], *, calls: int = 1, effect: str = "side_effect") -> list[Verdict]:
    """What comes of calls to a server that answers each of them with the next of these."""

    async def reply(request: Received) -> Answer | None:
        message = json.loads(request.body or b"{}")
        if message.get("method") != "tools/call":
            return legacy_answer(message)
        answer = answers.pop(0)
        return json_answer(message["id"], FINE) if answer is not None and answer == Answer() else answer

    servers = McpServers(http_client_for=small, folder=ROOT)
    async with tool_server(reply) as server:
        known = frozen(kind="mcp", remote_name="echo", timeout_s=10, effect=effect)
        written = entry(kind="mcp", url=server.url)
        tool = McpTool(known, written, open_servers=opened(servers), resolve_secret=no_secrets)
        found = [await verdict(tool) for _ in range(calls)]
        await servers.aclose()
    return found


async def by_http(answer: Answer, effect: str) -> Verdict:
    async with tool_server(answer) as server, build_client(private_addresses="loopback", limits=LIMITS) as client:
        written = entry(kind="http", url=server.url)
        known = frozen(effect=effect, timeout_s=10)
        return await verdict(HttpTool(known, written, client=client, resolve_secret=no_secrets))


def told(one: Verdict) -> tuple[Any, ...]:
    """What kind of answer it is, or how the call failed."""
    if isinstance(one, tuple):
        return one
    error: dict[str, Any] = json.loads(one.content)["error"]
    return one.status, error["type"], "MARK" in error["message"]


ANSWERS = [
    Answer(status=307, headers={"Location": "http://127.0.0.1:9/elsewhere"}),
    Answer(body=b"z" * 100, headers={"Content-Type": "application/json", "Content-Encoding": "gzip"}),
    Answer(body=b"data: " + b"z" * 60_000, headers={"Content-Type": "text/event-stream"}),
    *(
        Answer(status=status, body=b"MARK", headers=TEXT)
        for status in (400, 401, 403, 404, 408, 422, 429, 500, 502, 503)
    ),
]


@pytest.mark.parametrize("effect", ["side_effect", "idempotent"])
@pytest.mark.parametrize("answer", ANSWERS, ids=lambda one: f"{one.status}-{len(one.body)}")
async def test_an_answer_means_the_same_by_both_ways(answer: Answer, effect: str) -> None:
    """SPEC T4, T9, Y4: what was answered is an answer with its reason; only what leaves a call open is unknown."""
    [here] = await by_mcp([answer], effect=effect)
    assert told(here) == told(await by_http(answer, effect))


async def test_a_forgotten_session_is_opened_anew_and_a_tool_that_is_not_there_is_an_answer() -> None:
    """SPEC T4: after a call that went well a 404 may mean the session; at once again it is the server's word."""
    gone = Answer(status=404, body=b"MARK", headers=TEXT)
    first, again, then = await by_mcp([Answer(), gone, Answer()], calls=3)
    assert isinstance(first, ToolOutcome)
    assert again == ("server_error", 404, False)
    assert isinstance(then, ToolOutcome)
    assert then.content == "fine"
    [_, lost, said] = await by_mcp([Answer(), gone, gone], calls=3)
    assert (lost, told(said)) == (("server_error", 404, False), ("error", "HttpError", True))


async def test_a_connection_lost_in_a_call_stays_open() -> None:
    """SPEC T4."""
    assert await by_mcp([None]) == [("connection_lost", 0, True)]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Answer(status=401, body=b"MARK", headers=TEXT), ("error", "HttpError", True)),
        (Answer(status=307, headers={"Location": "http://127.0.0.1:9/"}), ("error", "RedirectRefused", False)),
        (Answer(status=500, body=b"MARK", headers=TEXT), ("server_error", 500, False)),
    ],
)
async def test_a_server_that_does_not_let_us_in_is_told_as_it_answered(
    answer: Answer, expected: tuple[Any, ...]
) -> None:
    """SPEC T4, T9: the call was not made."""
    servers = McpServers(http_client_for=small, folder=ROOT)
    async with tool_server(answer) as server:
        written = entry(kind="mcp", url=server.url)
        known = frozen(kind="mcp", remote_name="echo", timeout_s=10)
        tool = McpTool(known, written, open_servers=opened(servers), resolve_secret=no_secrets)
        assert told(await verdict(tool)) == expected
        await servers.aclose()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(status=401, body=b"MARK", headers=TEXT), "HTTP 401; check the key"),
        (Answer(status=404, body=b"MARK", headers=TEXT), "HTTP 404; check its `url`"),
        (Answer(status=503, body=b"MARK", headers=TEXT), "HTTP 503"),
        (Answer(status=307, headers={"Location": "http://127.0.0.1:9/MARK"}), "redirect"),
    ],
)
async def test_publishing_says_what_the_server_answered(answer: Answer, words: str) -> None:
    """SPEC B3, E, Y6: and none of its own words."""
    servers = McpServers(http_client_for=small, folder=ROOT)
    async with tool_server(answer) as server:
        written = entry(kind="mcp", url=server.url)
        with pytest.raises(ConfigurationInvalidError) as refused:
            await list_frozen(written, open_servers=opened(servers), resolve_secret=no_secrets)
    assert words in refused.value.message
    assert "MARK" not in refused.value.message


async def test_publishing_waits_no_longer_than_the_tools_own_time_limit() -> None:
    """SPEC B3."""
    servers = McpServers(http_client_for=small, folder=ROOT)
    written = entry(kind="mcp", command=["sleep", "60"], timeout_s=0.3)
    async with asyncio.timeout(8):
        with pytest.raises(ConfigurationInvalidError, match="`timeout_s`"):
            await list_frozen(written, open_servers=opened(servers), resolve_secret=no_secrets)


def streamed(answer: Answer) -> Answer:
    """The same as the only event of a stream."""
    return Answer(body=b"data: " + answer.body + b"\n\n", headers={"Content-Type": "text/event-stream"})


@pytest.mark.parametrize("code", [-32000, -32001, -32603, 7])
@pytest.mark.parametrize("form", [lambda answer: answer, streamed], ids=["json", "stream"])
async def test_a_servers_own_error_is_its_answer_whatever_its_code(form: Callable[[Answer], Answer], code: int) -> None:
    """SPEC T4, T9: -32000 is the SDK's code for a lost connection, -32001 for a time-out; servers use both freely."""

    async def reply(request: Received) -> Answer:
        message = json.loads(request.body or b"{}")
        if message.get("method") != "tools/call":
            return legacy_answer(message)
        error = {"jsonrpc": "2.0", "id": message["id"], "error": {"code": code, "message": "MARK"}}
        return form(Answer(body=json.dumps(error).encode()))

    servers = McpServers(http_client_for=small, folder=ROOT)
    async with tool_server(reply) as server:
        known, written = frozen(kind="mcp", remote_name="echo", timeout_s=10), entry(kind="mcp", url=server.url)
        tool = McpTool(known, written, open_servers=opened(servers), resolve_secret=no_secrets)
        answer = await verdict(tool)
        await servers.aclose()
    assert told(answer) == ("error", "McpError", True)


async def test_a_stream_that_ends_without_the_answer_leaves_the_call_open() -> None:
    """SPEC T4: whatever else the server said in it."""
    note = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}})
    for body in (b"", b"data: " + note.encode() + b"\n\n"):
        ended = Answer(body=body, headers={"Content-Type": "text/event-stream", "X-Any": "1"})
        assert await by_mcp([ended]) == [("connection_lost", 0, True)]


async def test_a_call_may_be_silent_for_as_long_as_its_own_time_limit() -> None:
    """SPEC T4: as an HTTP tool's; the network's limit for silence is for what has none."""
    go = asyncio.Event()

    async def reply(request: Received) -> Answer:
        message = json.loads(request.body or b"{}")
        if message.get("method") != "tools/call":
            return legacy_answer(message)
        asyncio.get_running_loop().call_later(4 * SILENCE_S, go.set)
        await go.wait()
        return json_answer(message["id"], FINE)

    def impatient(headers: Mapping[str, str]) -> httpx2.AsyncClient:
        return build_mcp_http_client(
            private_addresses="loopback", headers=headers, limits=EgressLimits(read_s=SILENCE_S)
        )

    servers = McpServers(http_client_for=impatient, folder=ROOT)
    async with tool_server(reply) as server:
        known, written = frozen(kind="mcp", remote_name="echo", timeout_s=30), entry(kind="mcp", url=server.url)
        tool = McpTool(known, written, open_servers=opened(servers), resolve_secret=no_secrets)
        answer = await verdict(tool)
        await servers.aclose()
    assert getattr(answer, "content", answer) == "fine"


async def test_a_certificate_that_is_not_trusted_is_told_at_publishing_and_at_a_call(tmp_path: Path) -> None:
    """SPEC B3, T4, T9, Y4: as an HTTP tool has it."""
    servers = McpServers(http_client_for=small, folder=ROOT)
    async with tls_server(tmp_path) as server:
        written, known = entry(kind="mcp", url=server.url), frozen(kind="mcp", remote_name="echo", timeout_s=10)
        tool = McpTool(known, written, open_servers=opened(servers), resolve_secret=no_secrets)
        called = await verdict(tool)
        with pytest.raises(ConfigurationInvalidError, match="certificate"):
            await list_frozen(written, open_servers=opened(servers), resolve_secret=no_secrets)
        await servers.aclose()
        assert server.heard == []
    assert told(called) == ("error", "CertificateUntrusted", False)

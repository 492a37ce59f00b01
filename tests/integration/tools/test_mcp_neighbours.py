"""Calls at once over one connection to an MCP server: what becomes of one harms no other (SPEC T2, T4)."""

import asyncio
import json
from typing import Any

import pytest

from tests.integration.tools.conftest import ROOT, opened
from tests.integration.tools.test_mcp_over_http import FINE, Verdict, small, told, verdict
from tests.integration.tools.test_mcp_tools import json_answer, legacy_answer
from tests.support.tool_calls import entry, frozen, no_secrets
from tests.support.tool_server import Answer, Received, tool_server
from tools.mcp import McpTool
from tools.mcp_servers import McpServers

JSON = {"Content-Type": "application/json"}
LOST = ("connection_lost", 0, True)
HARMS: list[tuple[str, Answer | None, tuple[Any, ...]]] = [
    ("redirect", Answer(status=307, headers={"Location": "http://127.0.0.1:9/"}), ("error", "RedirectRefused", False)),
    (
        "compressed",
        Answer(body=b"z", headers=JSON | {"Content-Encoding": "gzip"}),
        ("error", "AnswerCompressed", False),
    ),
    ("too large", Answer(body=b"z" * 60_000, headers=JSON), ("error", "ResultTooLarge", False)),
    ("broken off", None, LOST),
    ("half an answer", Answer(body=b'{"jsonrpc"', headers=JSON, declared=500), LOST),
    ("a whole answer in half a body", Answer(body=b'{"jsonrpc":"2.0","id":1,"result":{}}', declared=500), LOST),
    ("half a refusal", Answer(status=400, body=b'{"jsonrpc"', headers=JSON, declared=500), LOST),
    ("half an event", Answer(body=b"data: {", headers={"Content-Type": "text/event-stream"}, declared=500), LOST),
]


class Server:
    """Holds the call of `slow` until `bad` was answered and `go` is set; counts how often it was greeted."""

    def __init__(self, bad: Answer | None) -> None:
        self.bad = bad
        self.held = asyncio.Event()
        self.go = asyncio.Event()
        self.greetings = 0

    async def reply(self, request: Received) -> Answer | None:
        message = json.loads(request.body or b"{}")
        self.greetings += message.get("method") == "initialize"
        if message.get("method") != "tools/call":
            return legacy_answer(message)
        if message["params"]["name"] == "bad":
            return self.bad
        if message["params"]["name"] == "slow":
            self.held.set()
            await self.go.wait()
        return json_answer(message["id"], FINE)


def named(name: str, url: str, servers: McpServers) -> McpTool:
    known = frozen(kind="mcp", remote_name=name, timeout_s=10)
    return McpTool(known, entry(kind="mcp", url=url), open_servers=opened(servers), resolve_secret=no_secrets)


@pytest.mark.parametrize(
    ("bad", "expected"), [(bad, told) for _, bad, told in HARMS], ids=[name for name, _, _ in HARMS]
)
async def test_what_becomes_of_one_call_harms_no_call_beside_it(bad: Answer | None, expected: tuple[Any, ...]) -> None:
    """SPEC T2, T4: each has its own outcome, over the one connection they share."""
    server, servers = Server(bad), McpServers(http_client_for=small, folder=ROOT)
    async with tool_server(server.reply) as http:
        slow = asyncio.create_task(verdict(named("slow", http.url, servers)))
        await server.held.wait()
        found: Verdict = await verdict(named("bad", http.url, servers))
        server.go.set()
        beside = await slow
        after = await verdict(named("echo", http.url, servers))
        await servers.aclose()
    assert told(found) == expected
    assert [getattr(one, "content", one) for one in (beside, after)] == ["fine", "fine"]
    assert server.greetings <= 2  # `slow` and `bad` shared one; whoever came after may have got another


async def test_a_word_that_goes_astray_harms_no_call() -> None:
    """SPEC T4: the notice that nobody waits for a call any more is answered with a broken connection."""
    server, servers = Server(None), McpServers(http_client_for=small, folder=ROOT)

    async def reply(request: Received) -> Answer | None:
        return None if b"notifications/cancelled" in request.body else await server.reply(request)

    async with tool_server(reply) as http:
        impatient = McpTool(
            frozen(kind="mcp", remote_name="slow", timeout_s=0.3),
            entry(kind="mcp", url=http.url),
            open_servers=opened(servers),
            resolve_secret=no_secrets,
        )
        slow = asyncio.create_task(verdict(named("slow", http.url, servers)))
        await server.held.wait()
        late = await verdict(impatient)
        server.go.set()
        beside = await slow
        await servers.aclose()
    assert any(b"notifications/cancelled" in one.body for one in http.requests)
    assert told(late) == ("timeout", 0, True)
    assert getattr(beside, "content", beside) == "fine"

"""Answers of MCP servers that are odd, broken or no JSON: each is its call's result, at once (SPEC T7, T9, Y5)."""

import json
import sys
from os import devnull
from typing import Any

import pytest

from tests.integration.tools.conftest import ROOT, opened
from tests.support.tool_calls import entry, frozen, invocation, no_progress, no_secrets
from tools import mcp_streams
from tools.mcp import McpTool
from tools.mcp_servers import McpServers
from tools.port import ToolOutcome
from tools.running import run_within_limit

COMMAND = [sys.executable, "-I", "-S", str(ROOT / "tests" / "support" / "plain_mcp_server.py"), devnull]
DEEP = 2_000


async def answered(servers: McpServers, result: str, **fields: Any) -> ToolOutcome:
    """The outcome of a call whose answer is this text, in place of a result; the next call must work too."""
    written = entry(kind="mcp", command=COMMAND)
    for remote_name in ("answers", "echo"):
        known = frozen(kind="mcp", remote_name=remote_name, timeout_s=8)
        tool = McpTool(known, written, open_servers=opened(servers), resolve_secret=no_secrets)
        outcome = await run_within_limit(tool, invocation(result=result, **fields), on_progress=no_progress)
        if remote_name == "answers":
            first = outcome
    assert outcome.content == "echo"
    return first


def error_type(outcome: ToolOutcome) -> Any:
    assert outcome.status == "error"
    return json.loads(outcome.content)["error"]["type"]


async def test_half_of_a_surrogate_pair_is_replaced_and_marked(servers: McpServers) -> None:
    """SPEC Y5; case 061: a cut emoji, in a text and in a value, as other languages' JSON writers let it pass."""
    text = await answered(servers, r'{"content": [{"type": "text", "text": "cut \ud83d"}]}')
    assert (text.status, text.content, text.transforms) == ("ok", "cut \ufffd", ("lone_surrogates_replaced",))
    value = await answered(servers, r'{"content": [], "structuredContent": {"\ud800": "\udfff"}}')
    assert json.loads(value.content) == {"\ufffd": "\ufffd"}
    whole = await answered(servers, r'{"content": [{"type": "text", "text": "\ud83d\ude42"}]}')
    assert (whole.content, whole.transforms) == ("\U0001f642", ())


@pytest.mark.parametrize("noise", [b"\xff\xfe\x00\n", b"caf\xe9: starting\n\xe9\n", b"plain words\n[]\n\n"])
async def test_a_line_that_is_no_utf8_costs_no_answer(servers: McpServers, noise: bytes) -> None:
    """SPEC T1: noise on a server's output is skipped, whatever its bytes are."""
    outcome = await answered(servers, '{"content": [{"type": "text", "text": "fine"}]}', noise=list(noise))
    assert (outcome.status, outcome.content, outcome.transforms) == ("ok", "fine", ())


async def test_a_line_that_is_longer_than_any_answer_is_refused_at_once(
    servers: McpServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC T9; decision 0124: its call is told, and neither its own end nor the next answer is lost."""
    monkeypatch.setattr(mcp_streams, "MAX_LINE_BYTES", 100_000)
    outcome = await answered(servers, json.dumps({"content": [{"type": "text", "text": "z" * 300_000}]}))
    assert error_type(outcome) == "McpError"
    assert "more than 100000 bytes" in outcome.content


async def test_noise_without_a_lines_end_takes_no_answer_along(
    servers: McpServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC T1, T9: nobody is told of it; the line that ends it is lost with it, and not the one behind."""
    monkeypatch.setattr(mcp_streams, "MAX_LINE_BYTES", 100_000)
    noise = list(b"x" * 300_000 + b"\n")
    outcome = await answered(servers, '{"content": [{"type": "text", "text": "fine"}]}', noise=noise)
    assert (outcome.status, outcome.content) == ("ok", "fine")


async def test_a_byte_in_an_answer_that_is_no_utf8_is_replaced_and_marked(servers: McpServers) -> None:
    """SPEC Y5, T9."""
    outcome = await answered(servers, '{"content": [{"type": "text", "text": "cafBYTE"}]}')
    assert (outcome.content, outcome.transforms) == ("caf\ufffd", ("undecodable_bytes_replaced",))


@pytest.mark.parametrize(
    "result",
    ["null", "[1]", "7", "{{", "", f'{{"content": [], "structuredContent": {{"t": {"[" * DEEP}{"]" * DEEP}}}}}',
     f'{{"content": [], "structuredContent": {{"t": {"[" * 300}{"]" * 300}}}}}', '{"content": [{"type": "hologram"}]}',
     '{"content": [{"type": "text", "text": null}]}', "{}"],
    ids=["null", "list", "number", "garbage", "nothing", "deep", "less-deep", "unknown-block", "no-text", "no-content"],
)  # fmt: skip
async def test_an_answer_that_cannot_be_read_is_an_error_result_and_no_time_out(
    servers: McpServers, result: str
) -> None:
    """SPEC T9: the tool has answered, so nothing is unknown and nobody waits; the server goes on."""
    assert error_type(await answered(servers, result)) in ("McpError", "InvalidToolResult")


@pytest.mark.parametrize("data", ["\u00e9", "a", "a*==", "\ud800"])
async def test_binary_content_that_is_none_is_said_to_be_so(servers: McpServers, data: str) -> None:
    """SPEC T7."""
    block = {"type": "image", "data": data, "mimeType": "image/png"}
    assert error_type(await answered(servers, json.dumps({"content": [block]}))) == "InvalidToolResult"


async def test_numbers_that_json_lacks_are_words(servers: McpServers) -> None:
    """SPEC T9: NaN and Infinity, which some writers send, make no later request invalid."""
    outcome = await answered(servers, '{"content": [], "structuredContent": {"t": NaN, "u": [-Infinity]}}')
    assert json.loads(outcome.content, parse_constant=pytest.fail) == {"t": "nan", "u": ["-inf"]}
    assert json.loads(outcome.raw, parse_constant=pytest.fail)["structuredContent"] == {"t": "nan", "u": ["-inf"]}


@pytest.mark.parametrize("is_error", [False, True])
async def test_a_value_beside_texts_that_say_nothing_is_the_result(servers: McpServers, is_error: bool) -> None:
    """SPEC T9: servers write the value into the structured part alone, of errors too."""
    answer = {"content": [{"type": "text", "text": " "}], "structuredContent": {"t": 21}, "isError": is_error}
    outcome = await answered(servers, json.dumps(answer))
    assert (outcome.status, "21" in outcome.content) == ("error" if is_error else "ok", True)


async def test_an_error_of_the_tools_own_without_words_is_named(servers: McpServers) -> None:
    """SPEC T9, A11."""
    assert error_type(await answered(servers, '{"content": [], "isError": true}')) == "ToolError"

"""What a person is told who publishes an agent with an MCP server that can't be used (SPEC B3, E)."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from context.errors import ConfigurationInvalidError
from tests.integration.tools.conftest import ROOT, free_port, guarded, opened
from tests.integration.tools.test_mcp_tools import json_answer, legacy_answer
from tests.support.tool_calls import entry, no_secrets
from tests.support.tool_server import Answer, Received, tool_server
from tools.mcp import list_frozen
from tools.mcp_servers import McpServers

ECHO = {"name": "echo", "inputSchema": {"type": "object"}}
Page = Callable[[dict[str, Any]], dict[str, Any]]


async def refusal(*, connect_timeout_s: float = 15, **where: Any) -> str:
    """The words that the server 'clock' is refused with."""
    servers = McpServers(http_client_for=guarded, folder=ROOT, connect_timeout_s=connect_timeout_s)
    with pytest.raises(ConfigurationInvalidError) as refused:
        await list_frozen(
            entry(kind="mcp", name="clock", **where), open_servers=opened(servers), resolve_secret=no_secrets
        )
    assert refused.value.__cause__ is None
    assert refused.value.message.startswith("The MCP server 'clock'")
    assert "MARK" not in refused.value.message
    return refused.value.message


async def refusal_of_list(page: Page, **fields: Any) -> str:
    """The words for a server over HTTP that answers each question for its tools with such a result."""

    async def reply(request: Received) -> Answer:
        message = json.loads(request.body or b"{}")
        if message.get("method") != "tools/list":
            return legacy_answer(message)
        return json_answer(message["id"], page(message.get("params") or {}))

    async with tool_server(reply) as server:
        return await refusal(url=server.url, **fields)


def program(path: Path, text: str, mode: int) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


async def test_a_program_that_is_not_there_is_told_from_one_that_may_not_run(tmp_path: Path) -> None:
    """SPEC B3, E: by path, by name, and by the interpreter that a script names."""
    script = program(tmp_path / "script", "#!/nonexistent/MARK\n", 0o755)
    for command in (["/nonexistent/MARK"], ["no-such-program-MARK", "x"], [script]):
        words = await refusal(command=command)
        assert "does not exist" in words
        assert "`command`" in words
    assert "may not be executed" in await refusal(command=[program(tmp_path / "plain", "text", 0o644)])
    assert "can't be started" in await refusal(command=[program(tmp_path / "text", "MARK no program", 0o755)])


@pytest.mark.parametrize("body", ["pass", "print('MARK is no message')", "import sys; sys.exit(127)"])
async def test_a_program_that_ends_at_once_is_told_so(body: str) -> None:
    """SPEC B3, E: it did start, so its command is not what is wrong."""
    words = await refusal(command=[sys.executable, "-I", "-S", "-c", body])
    assert "ended before it answered" in words
    assert "does not exist" not in words


async def test_a_program_that_says_nothing_is_told_so() -> None:
    """SPEC B3, E."""
    words = await refusal(command=["sleep", "60"], connect_timeout_s=1)
    assert "`timeout_s`" in words
    assert "ended" not in words


async def test_an_address_where_nobody_listens_is_told_so() -> None:
    """SPEC B3, E."""
    assert "`url`" in await refusal(url=f"http://127.0.0.1:{free_port()}/mcp")


def rising(params: dict[str, Any]) -> dict[str, Any]:
    return {"tools": [ECHO], "nextCursor": str(int(params.get("cursor", 0)) + 1)}


def circling(params: dict[str, Any]) -> dict[str, Any]:
    return {"tools": [ECHO], "nextCursor": "b" if params.get("cursor") == "a" else "a"}


@pytest.mark.parametrize("page", [rising, circling])
async def test_a_list_that_never_ends_is_told_so(page: Page) -> None:
    """SPEC B3, E: a cursor that is always there, new or one that was there before."""
    assert "does not end" in await refusal_of_list(page)


async def test_a_list_of_a_few_pages_is_taken_whole() -> None:
    """SPEC T1."""

    async def reply(request: Received) -> Answer:
        message = json.loads(request.body or b"{}")
        if message.get("method") != "tools/list":
            return legacy_answer(message)
        number = int((message.get("params") or {}).get("cursor", 0))
        more = {"nextCursor": str(number + 1)} if number < 4 else {}
        return json_answer(message["id"], {"tools": [ECHO | {"name": f"echo{number}"}]} | more)

    servers = McpServers(http_client_for=guarded)
    async with tool_server(reply) as server:
        written = entry(kind="mcp", url=server.url)
        tools = await list_frozen(written, open_servers=opened(servers), resolve_secret=no_secrets)
    assert [tool.name for tool in tools] == [f"echo{number}" for number in range(5)]


SCHEMAS = [
    ({"type": "object", "properties": {"a": {"type": "strng"}}}, "properties.a.type"),
    ({"type": "object", "properties": {"a": 3}}, "properties.a"),
    ({"type": "object", "properties": []}, "properties"),
    ({"type": "object", "required": "a"}, "required"),
    ({"type": "object", "properties": {"a": {"$ref": "#/nope"}}}, "#/nope"),
    ({"type": "string"}, '"type": "object"'),
    ({}, '"type": "object"'),
    ("object", "inputSchema"),
    (None, "inputSchema"),
]


@pytest.mark.parametrize(("schema", "place"), SCHEMAS)
async def test_a_tool_whose_schema_is_none_is_named_with_the_place(schema: Any, place: str) -> None:
    """SPEC B3, T1, E: whichever of us and the SDK sees it first."""
    bad = {"name": "turn_back", "inputSchema": schema}
    words = await refusal_of_list(lambda params: {"tools": [ECHO, {k: v for k, v in bad.items() if v is not None}]})
    assert "'turn_back'" in words
    assert place in words


async def test_a_tool_without_a_name_is_refused() -> None:
    """SPEC T1, A11: a provider would refuse each request that lists it."""
    assert "without a name" in await refusal_of_list(lambda params: {"tools": [ECHO, ECHO | {"name": ""}]})


@pytest.mark.parametrize(
    ("result", "place"),
    [
        ({"tools": [ECHO, ECHO | {"description": 7}]}, "tools.1.description"),
        ({"tools": [ECHO, {"inputSchema": {"type": "object"}}]}, "tools.1.name"),
        ({"tools": [ECHO, "MARK"]}, "tools.1"),
        ({"tools": "MARK"}, "tools"),
        ({}, "tools"),
    ],
)
async def test_a_list_that_is_none_is_told_with_the_place(result: dict[str, Any], place: str) -> None:
    """SPEC B3, E."""
    assert f"'{place}'" in await refusal_of_list(lambda params: result)


async def test_a_server_without_tools_is_told_by_its_own_error() -> None:
    """SPEC B3, E: the number of a protocol error is no content."""

    async def reply(request: Received) -> Answer:
        message = json.loads(request.body or b"{}")
        if message.get("method") != "tools/list":
            return legacy_answer(message)
        error = {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "MARK"}}
        return Answer(body=json.dumps(error).encode())

    async with tool_server(reply) as server:
        assert "-32601" in await refusal(url=server.url)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(status=401, body=b"MARK", headers={}), "HTTP 401; check the key"),
        (Answer(status=307, headers={"Location": "http://127.0.0.1:9/MARK"}), "redirect"),
        (Answer(status=503, body=b"MARK", headers={}), "HTTP 503"),
    ],
)
async def test_what_the_server_answers_to_the_question_for_its_tools_is_told(answer: Answer, words: str) -> None:
    """SPEC B3, E: as if it had answered so when the connection was opened."""

    async def reply(request: Received) -> Answer:
        message = json.loads(request.body or b"{}")
        return answer if message.get("method") == "tools/list" else legacy_answer(message)

    async with tool_server(reply) as server:
        assert words in await refusal(url=server.url)

"""The tools of a release from its definition to its calls."""

import json
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import yaml

from context.errors import ConfigurationInvalidError
from context.policy import AgentDefinition, FrozenTool, Release
from egress.client import build_client
from tests.integration.tools.conftest import opened
from tests.integration.tools.test_mcp_tools import json_answer, legacy_answer
from tests.support.tool_calls import SESSION, invocation, no_progress, no_secrets
from tests.support.tool_server import Answer, Received, tool_server
from tools.arguments import Accepted, check_arguments
from tools.builtin import Backends
from tools.mcp_servers import McpServers
from tools.port import ToolOutcome
from tools.registry import Adapters, ToolBox, ToolBoxes, freeze_tools

PYTHON = {"kind": "python", "name": "add", "entry": "tests.support.python_tools:add", "effect": "read_only"}
SERVER = {
    "kind": "mcp",
    "name": "ours",
    "command": [sys.executable, "-m", "tests.support.mcp_server"],
    "allow": ["echo"],
    "effect": {"echo": "idempotent"},
}

SERVER_FILE = Path(__file__).resolve().parents[2] / "support" / "plain_mcp_server.py"
PLAIN = {"kind": "mcp", "name": "ours", "command": [sys.executable, "-I", "-S", str(SERVER_FILE), os.devnull]}


def definition(*tools: dict[str, Any]) -> AgentDefinition:
    model = {"provider": "demo", "model": "demo"}
    return AgentDefinition.model_validate({"name": "a", "model": model, "tools": list(tools)})


async def frozen(servers: McpServers, *tools: dict[str, Any]) -> tuple[FrozenTool, ...]:
    return await freeze_tools(definition(*tools), open_servers=opened(servers), resolve_secret=no_secrets)


async def stored(result_ref: str, session_id: UUID) -> str | None:
    return "whole" if session_id == SESSION else None


@pytest.fixture
async def adapters(servers: McpServers) -> AsyncIterator[Adapters]:
    async with build_client(private_addresses="loopback") as client:
        yield Adapters(http=client, open_servers=opened(servers), backends=Backends(read_result=stored))


def release(tools: tuple[FrozenTool, ...], *written: dict[str, Any]) -> Release:
    return Release(
        definition=definition(*written),
        tools=tools,
        context_window=32_768,
        window_source="manual",
        provider_output_limit=None,
        estimator_id="utf8-bytes/v1",
        base_url=None,
    )


async def test_every_kind_is_frozen_in_the_order_of_the_definition(servers: McpServers) -> None:
    """SPEC T1."""
    http = {"kind": "http", "name": "weather", "url": "https://example.org"}
    tools = await frozen(servers, http, SERVER, PYTHON)
    assert [tool.name for tool in tools] == ["weather", "echo", "add", "result_read"]
    assert [tool.kind for tool in tools] == ["http", "mcp", "python", "builtin"]


async def test_result_read_comes_with_the_first_tool_and_only_once(servers: McpServers) -> None:
    """SPEC T5: what is shown shortened can be read; SPEC A11: no tools, no list."""
    assert await frozen(servers) == ()
    tools = await frozen(servers, {"kind": "builtin", "name": "result_read", "description": "Page."}, PYTHON)
    assert [(tool.name, tool.description) for tool in tools if tool.kind == "builtin"] == [("result_read", "Page.")]


async def test_two_tools_of_one_name_are_told_apart_by_their_servers(servers: McpServers) -> None:
    """SPEC T1: names are unique per release."""
    tools = await frozen(servers, SERVER, SERVER | {"name": "theirs"}, PYTHON | {"name": "echo"})
    assert [tool.name for tool in tools][:3] == ["ours_echo", "theirs_echo", "echo"]
    assert [tool.remote_name for tool in tools][:2] == ["echo", "echo"]


async def test_tools_that_no_provider_lets_have_their_own_names_are_told_apart(servers: McpServers) -> None:
    """SPEC T1: two in Chinese, two that are too long; each keeps its name whatever the server lists beside it."""
    remote = ["\u641c\u7d22", "\u67e5\u8be2", "n" * 70 + "1", "n" * 70 + "2", "plain"]
    listed = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in remote]}

    async def reply(request: Received) -> Answer:
        message = json.loads(request.body or b"{}")
        is_question = message.get("method") == "tools/list"
        return json_answer(message["id"], listed) if is_question else legacy_answer(message)

    async with tool_server(reply) as server:
        written = {"kind": "mcp", "name": "ours", "url": server.url}
        tools = (await frozen(servers, written))[:5]
        listed["tools"].reverse()
        again = (await frozen(servers, written))[:5]
    names = [tool.name for tool in tools]
    assert [tool.remote_name for tool in tools] == remote
    assert len(set(names)) == len(names)
    assert all(re.fullmatch("[A-Za-z0-9_-]{1,64}", name) for name in names)
    assert (names[4], sorted(names)) == ("plain", sorted(tool.name for tool in again))


async def test_names_that_still_meet_are_refused(servers: McpServers) -> None:
    """SPEC T1."""
    taken = PYTHON | {"name": "ours_echo"}
    with pytest.raises(ConfigurationInvalidError, match="ours_echo"):
        await frozen(servers, SERVER, PYTHON | {"name": "echo"}, taken)


async def test_nobody_takes_the_name_of_the_tool_that_reads_results(servers: McpServers) -> None:
    """SPEC T1, T5: a reference in a shortened result is always one that can be read."""
    with pytest.raises(ConfigurationInvalidError, match="'result_read'"):
        await frozen(servers, PYTHON | {"name": "result_read"})
    tools = await frozen(servers, PLAIN | {"allow": ["result_read"]})
    assert [(tool.name, tool.kind) for tool in tools] == [("ours_result_read", "mcp"), ("result_read", "builtin")]


async def answer(box: ToolBox, name: str, **arguments: Any) -> ToolOutcome:
    tool = box.get(name)
    assert tool is not None
    assert isinstance(check_arguments(json.dumps(arguments), tool.frozen.parameters), Accepted)
    return await tool.run(invocation(name=name, **arguments), on_progress=no_progress)


async def test_a_box_calls_every_kind_by_its_frozen_name(servers: McpServers, adapters: Adapters) -> None:
    """SPEC T1."""
    async with tool_server(Answer(body=b"21")) as server:
        written = (PYTHON, SERVER, {"kind": "http", "name": "weather", "url": server.url})
        box = ToolBox(release(await frozen(servers, *written), *written), adapters=adapters, resolve_secret=no_secrets)
        assert (await answer(box, "add", a=1, b=2)).content == "3"
        assert (await answer(box, "echo", text="hi")).content == "hi"
        assert (await answer(box, "weather")).content == "21"
        assert (await answer(box, "result_read", result_ref="r")).content.endswith("\nwhole")
    assert box.get("nothing") is None
    assert box.names == ("add", "echo", "weather", "result_read")


async def test_a_renamed_tool_is_called_by_its_servers_own_name(servers: McpServers, adapters: Adapters) -> None:
    """SPEC T1."""
    written = (SERVER, SERVER | {"name": "theirs"})
    box = ToolBox(release(await frozen(servers, *written), *written), adapters=adapters, resolve_secret=no_secrets)
    assert (await answer(box, "theirs_echo", text="hi")).content == "hi"


async def test_a_builtin_that_this_version_lost_is_answered(adapters: Adapters) -> None:
    """SPEC T9: an old release goes on as far as it can."""
    gone = FrozenTool(name="old", description="", parameters={"type": "object"}, kind="builtin", entry_name="old")
    box = ToolBox(release((gone,)), adapters=adapters, resolve_secret=no_secrets)
    assert "ToolMissing" in (await answer(box, "old")).content


async def test_boxes_are_built_once_per_release_and_forgotten_when_there_are_many(adapters: Adapters) -> None:
    """DESIGN 4: nothing grows with the number of releases ever used."""
    boxes = ToolBoxes(adapters, capacity=2)
    ids = [UUID(int=number) for number in range(3)]

    def box(release_id: UUID) -> ToolBox:
        return boxes.box(release_id, release(()), resolve_secret=no_secrets)

    first = box(ids[0])
    assert box(ids[0]) is first
    box(ids[1]), box(ids[2])
    assert box(ids[0]) is not first


async def test_the_demo_agents_tools_read_the_repository_and_nothing_else(
    servers: McpServers, adapters: Adapters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC T1: the example is a real agent over real files."""
    folder = Path(__file__).resolve().parents[3] / "examples" / "docs_agent"
    monkeypatch.syspath_prepend(str(folder))
    entries = [
        {"kind": "python", "name": name, "entry": f"docs_tools:{name}", "effect": "read_only"}
        for name in ("list_files", "read_file", "search_files")
    ]
    tools = await frozen(servers, *entries)
    assert all(tool.description for tool in tools)
    box = ToolBox(release(tools, *entries), adapters=adapters, resolve_secret=no_secrets)
    assert "pyproject.toml" in json.loads((await answer(box, "list_files")).content)
    assert "[project]" in (await answer(box, "read_file", path="pyproject.toml")).content
    hits = json.loads((await answer(box, "search_files", words="docs_agent list_files")).content)
    assert {"examples/docs_agent/agent.yaml"} <= {hit["path"] for hit in hits}
    about = json.loads((await answer(box, "search_files", words="survive worker")).content)
    assert about[0]["path"] == "docs/architecture.md"  # it has a heading about it, whoever else speaks of it densely
    for path in ("../../etc/passwd", "/etc/passwd", ".git/config", "examples/../..", "missing.md"):
        assert (await answer(box, "read_file", path=path)).status == "error"


def test_the_examples_definition_is_valid() -> None:
    """SPEC 18."""
    path = Path(__file__).resolve().parents[3] / "examples" / "docs_agent" / "agent.yaml"
    agent = AgentDefinition.model_validate(yaml.safe_load(path.read_text()))
    assert [tool.name for tool in agent.tools] == ["list_files", "read_file", "search_files"]

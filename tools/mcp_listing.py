"""The list of tools that an MCP server offers, asked for when an agent is published (SPEC B3, T1).

A list that the SDK can't read is looked at once more as it came, since what the SDK says names no tool.
"""

from typing import Any

from mcp import Client
from mcp.types import ListToolsResult
from mcp.types import Tool as RemoteTool
from pydantic import ValidationError

from context.errors import ConfigurationInvalidError
from tools.errors import ServerUnusableError
from tools.mcp_streams import Heard
from tools.schemas import checked_schema

_MAX_PAGES = 100
_PARTS = 3
_LONGEST_NAME = 100


async def all_tools(client: Client, heard: Heard) -> list[RemoteTool]:
    """All tools, over all pages; `heard` is what was heard on this client's stream.

    Raises ServerUnusableError for what is no list or never ends, ConfigurationInvalidError for a schema that is none,
    and the SDK's errors.
    """
    tools: list[RemoteTool] = []
    cursors: set[str | None] = {None}
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await _page(client, cursor, heard)
        tools += page.tools
        cursor = page.next_cursor
        if cursor is None:
            return tools
        if cursor in cursors:
            break
        cursors.add(cursor)
    raise ServerUnusableError("endless_list")


async def _page(client: Client, cursor: str | None, heard: Heard) -> ListToolsResult:
    try:
        return await client.list_tools(cursor=cursor)
    except ValidationError as error:
        steps = error.errors(include_url=False, include_context=False, include_input=False)[0]["loc"]
    for tool in heard.tools or ():
        _check_schema(tool)
    raise ServerUnusableError("no_list", place=".".join(map(str, steps[:_PARTS])))


def _check_schema(tool: Any) -> None:
    """Raises ConfigurationInvalidError, naming the tool, if it has a name and no schema."""
    name = tool.get("name") if isinstance(tool, dict) else None
    if not isinstance(name, str):
        return
    schema = tool.get("inputSchema")
    if not isinstance(schema, dict):
        raise ConfigurationInvalidError(f"The tool '{name[:_LONGEST_NAME]}' has no object as its inputSchema.")
    checked_schema(schema, tool=name[:_LONGEST_NAME], declared=False)

"""An MCP server as others write them: `python -m tests.support.mcp_server [--http PORT] [--hold FILE]`.

Each call that `count` gets appends its key to FILE, so that a test can see how often it ran, and with what key.
"""

import asyncio
import base64
import os
import sys
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import BlobResourceContents, CallToolResult, EmbeddedResource, ImageContent, TextContent

server = MCPServer("testing")
PNG = b"\x89PNG\r\n\x1a\n\x00\xff"


@server.tool()
def echo(text: str) -> CallToolResult:
    """Say it again."""
    return CallToolResult(content=[TextContent(text=text)])


@server.tool()
def big(size: int) -> CallToolResult:
    """Say a lot."""
    return CallToolResult(content=[TextContent(text="z" * size)])


@server.tool()
def mixed() -> CallToolResult:
    """Text, a picture and a file."""
    data = base64.b64encode(PNG).decode()
    blob = BlobResourceContents(uri="file:///a.bin", blob=data, mime_type="application/x-a")
    return CallToolResult(
        content=[
            TextContent(text="see:"),
            ImageContent(data=data, mime_type="image/png"),
            EmbeddedResource(resource=blob),
        ]
    )


@server.tool()
def structured() -> CallToolResult:
    """Only a value."""
    return CallToolResult(content=[], structured_content={"t": 21})


@server.tool()
def refuses() -> CallToolResult:
    """Fails in its own business."""
    return CallToolResult(content=[TextContent(text="no such city")], is_error=True)


@server.tool()
def raises() -> str:
    """Fails by accident."""
    raise RuntimeError("MARK-raised")


@server.tool(name="odd.name/with:signs")
def odd() -> CallToolResult:
    """Has a name that providers refuse."""
    return CallToolResult(content=[TextContent(text="odd")])


@server.tool()
def count(context: Context[Any], path: str) -> CallToolResult:
    """Leave a trace of the call."""
    meta: Any = context.request_context.meta or {}
    with Path(path).open("a") as trace:
        trace.write(f"{dict(meta).get('idempotencyKey')}\n")
    return CallToolResult(content=[TextContent(text="counted")])


@server.tool()
def dies(path: str) -> str:
    """Leave a trace and end the whole server."""
    with Path(path).open("a") as trace:
        trace.write("died\n")
    os._exit(7)


@server.tool()
async def waits(context: Context[Any], seconds: float) -> CallToolResult:
    """Take long, and say so."""
    await context.report_progress(1, 2)
    await asyncio.sleep(seconds)
    return CallToolResult(content=[TextContent(text="waited")])


def main() -> None:
    if "--noise" in sys.argv:
        print("MARK-noise", file=sys.stderr, flush=True)
    if "--http" not in sys.argv:
        server.run("stdio")
        return
    port = int(sys.argv[sys.argv.index("--http") + 1])
    uvicorn.run(server.streamable_http_app(), host="127.0.0.1", port=port, log_level="error")


if __name__ == "__main__":
    main()

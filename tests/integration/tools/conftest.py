"""Real MCP servers as processes of their own, by stdio and by HTTP."""

import asyncio
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from egress.mcp import build_mcp_http_client
from tools.mcp_access import OpenServers
from tools.mcp_servers import McpServers

ROOT = Path(__file__).resolve().parents[3]


def guarded(headers: Mapping[str, str]) -> httpx2.AsyncClient:
    return build_mcp_http_client(private_addresses="loopback", headers=headers)


@pytest.fixture
async def servers() -> AsyncIterator[McpServers]:
    pool = McpServers(http_client_for=guarded, folder=ROOT, connect_timeout_s=15)
    yield pool
    await pool.aclose()


def opened(servers: McpServers) -> OpenServers:
    """A way to servers that are there already."""

    async def open_servers() -> McpServers:
        return servers

    return open_servers


@dataclass
class HttpServer:
    """A server process on a port that stays the same over its restarts."""

    module: tuple[str, ...]
    port: int
    process: Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def start(self) -> None:
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", *self.module, str(self.port), cwd=ROOT, stdout=DEVNULL, stderr=DEVNULL
        )
        async with asyncio.timeout(20):
            while not await self._listens():
                await asyncio.sleep(0.05)

    async def stop(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    async def _listens(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        await writer.wait_closed()
        return True


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


StartServer = Callable[..., Awaitable[HttpServer]]


@pytest.fixture
async def start_server() -> AsyncIterator[StartServer]:
    """Starts a module as an MCP server over HTTP; ended with the test."""
    async with AsyncExitStack() as stack:

        async def start(*module: str) -> HttpServer:
            server = HttpServer(module, free_port())
            stack.push_async_callback(server.stop)
            await server.start()
            return server

        yield start

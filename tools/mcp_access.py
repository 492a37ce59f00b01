"""The way to a process's MCP servers, opened by the first tool that needs one (SPEC T1).

The SDK takes longer to import than everything else a worker starts with, and most releases have no such tool.
"""

import asyncio
import importlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from context.policy import ToolEntry
from egress.addresses import PrivateAddresses

if TYPE_CHECKING:
    from tools.mcp_servers import McpServers

OpenServers = Callable[[], Awaitable["McpServers"]]
"""Gives the process's servers, the same ones each time."""

_SDK_USERS = ("egress.mcp", "tools.mcp_answers", "tools.mcp_servers")


@dataclass(frozen=True)
class McpServer:
    """Where a server is and how it is greeted; equal ones share a connection. Never logged: it may hold a secret."""

    command: tuple[str, ...] | None
    url: str | None
    headers: tuple[tuple[str, str], ...] = field(repr=False)

    @classmethod
    def of(cls, entry: ToolEntry, secret: str | None) -> "McpServer":
        headers = entry.headers | ({"Authorization": f"Bearer {secret}"} if secret else {})
        return cls(entry.command if entry.url is None else None, entry.url, tuple(sorted(headers.items())))


class McpAccess:
    """The servers of one process. Closed with `aclose`, in any task; closing what was never opened does nothing."""

    def __init__(self, *, private_addresses: PrivateAddresses, folder: Path | None = None) -> None:
        self._private_addresses = private_addresses
        self._folder = folder
        self._servers: McpServers | None = None

    async def servers(self) -> "McpServers":
        """The servers; the first call imports the SDK, in a thread, since heartbeats must go on meanwhile."""
        if self._servers is None:
            await asyncio.to_thread(_import_sdk)
        if self._servers is None:  # nobody else was first while the import went on
            self._servers = self._made()
        return self._servers

    async def aclose(self) -> None:
        """Closes every connection, if there ever was one."""
        if self._servers is not None:
            await self._servers.aclose()

    def _made(self) -> "McpServers":
        from egress.mcp import build_mcp_http_client
        from tools.mcp_servers import McpServers

        private = self._private_addresses
        return McpServers(
            http_client_for=lambda headers: build_mcp_http_client(private_addresses=private, headers=headers),
            folder=self._folder,
        )


def _import_sdk() -> None:
    for module in _SDK_USERS:
        importlib.import_module(module)

"""A real HTTP server on a real socket that answers as a test says and records what it was sent."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Received:
    """One request as it came over the wire."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    """What the server sends. `declared` is the length it claims, if that shall differ from the body's."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})
    declared: int | None = None

    def as_bytes(self) -> bytes:
        length = len(self.body) if self.declared is None else self.declared
        lines = [f"HTTP/1.1 {self.status} X", f"Content-Length: {length}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + self.body


Reply = Callable[[Received], Awaitable[Answer | None]]
"""From a request to its answer; None closes the connection without one."""


@dataclass
class ToolServer:
    """The running server."""

    url: str
    requests: list[Received]


@asynccontextmanager
async def tool_server(reply: Reply | Answer) -> AsyncIterator[ToolServer]:
    """Serves on a free loopback port while the block runs."""
    requests: list[Received] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await _received(reader)
            requests.append(request)
            answer = reply if isinstance(reply, Answer) else await reply(request)
            writer.write(b"" if answer is None else answer.as_bytes())
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield ToolServer(f"http://127.0.0.1:{port}/tool", requests)
    finally:
        server.close()


async def _received(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
    return Received(method, path, headers, await reader.readexactly(int(headers.get("content-length", 0))))

"""The scripted model: a real HTTP server on a real socket that answers by script and records what it was sent.

In a test: `async with ModelServer(["hello"]) as server`. As a process of its own, which survives the death of those
who call it: `ModelServerProcess`, or by hand `python -m tests.support.model_server --script FILE --record FILE`.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support import replies as scripted
from tests.support.replies import Reply
from tests.support.strict_chat import Dialect, violations


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """One request as it came. `at` is in seconds of the wall clock."""

    no: int
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    at: float

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Scripted = Reply | str | Callable[[RecordedRequest], Reply | str]


class ModelServer:
    """Answers with `replies` one after the other; a request whose body contains a marker gets that marker's replies.

    A script that has run out answers 400. `strict` refuses what a strict server of that dialect would (400).
    """

    def __init__(
        self,
        replies: Sequence[Scripted] = (),
        *,
        by_marker: Mapping[str, Sequence[Scripted]] | None = None,
        strict: Dialect | None = None,
        record: Path | None = None,
        port: int = 0,
    ) -> None:
        self.requests: list[RecordedRequest] = []
        self.refusals: list[str] = []
        self.disconnects = 0
        """Connections that the client closed while an answer was under way."""
        self._scripts = {marker: list(script) for marker, script in (by_marker or {}).items()}
        self._default = list(replies)
        self._strict = strict
        self._record = record
        self._port = port
        self._gates: dict[str, asyncio.Event] = {}
        self._arrived = asyncio.Condition()
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self._port, limit=1 << 26)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def port(self) -> int:
        return self._port

    def add(self, *replies: Scripted) -> None:
        """Append to the script."""
        self._default.extend(replies)

    def forget_replies(self) -> None:
        """Drop the replies that nobody has asked for yet."""
        self._default.clear()

    def release(self, gate: str) -> None:
        """Let the replies held at this gate go on, now and later."""
        self._gate(gate).set()

    async def wait_for_requests(self, count: int, *, timeout_s: float = 30) -> list[RecordedRequest]:
        """Wait until this many requests have come."""
        async with asyncio.timeout(timeout_s), self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= count)
        return self.requests

    def _gate(self, name: str) -> asyncio.Event:
        return self._gates.setdefault(name, asyncio.Event())

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while (request := await self._received(reader)) is not None:
                await self._answer(request, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError, EOFError):
            pass  # the client has gone, or the server is closing
        finally:
            self._connections.discard(task)
            writer.close()

    async def _received(self, reader: asyncio.StreamReader) -> RecordedRequest | None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        request = RecordedRequest(len(self.requests) + 1, method, path, headers, body, time.time())
        async with self._arrived:
            self.requests.append(request)
            self._write_down(request)
            self._arrived.notify_all()
        return request

    def _write_down(self, request: RecordedRequest) -> None:
        if self._record is None:
            return
        row = {"no": request.no, "method": request.method, "path": request.path, "headers": dict(request.headers)}
        row |= {"body": request.body.decode(errors="replace"), "at": request.at}
        with self._record.open("a") as file:
            file.write(json.dumps(row) + "\n")

    async def _answer(
        self, request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        sending = asyncio.ensure_future(_send(self._reply_to(request), writer, self._gate))
        watching = asyncio.ensure_future(_closed(reader))
        try:
            await asyncio.wait([sending, watching], return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                self.disconnects += 1
                raise ConnectionResetError
            sending.result()
        finally:
            for task in (sending, watching):
                task.cancel()
            await asyncio.gather(sending, watching, return_exceptions=True)

    def _reply_to(self, request: RecordedRequest) -> Reply:
        if self._strict is not None and (found := violations(request.body, dialect=self._strict)):
            self.refusals += found
            return scripted.error(400, found[0], type="invalid_request_error")
        script = next((s for marker, s in self._scripts.items() if marker.encode() in request.body), self._default)
        if not script:
            return scripted.error(400, "the script has run out")
        chosen = script.pop(0)
        chosen = chosen(request) if callable(chosen) else chosen
        return scripted.text(chosen) if isinstance(chosen, str) else chosen


async def _closed(reader: asyncio.StreamReader) -> None:
    """Return when the client has closed its side; it sends nothing while it waits for an answer."""
    while not reader.at_eof():
        await asyncio.sleep(0.01)


async def _send(reply: Reply, writer: asyncio.StreamWriter, gate: Callable[[str], asyncio.Event]) -> None:
    if reply.hold and reply.hold_after is None:
        await gate(reply.hold).wait()
    await asyncio.sleep(reply.delay_s)
    lines = [f"HTTP/1.1 {reply.status} Scripted", *(f"{name}: {value}" for name, value in reply.headers)]
    writer.write("\r\n".join([*lines, "transfer-encoding: chunked", "", ""]).encode("latin-1"))
    left = reply.break_after
    for place, piece in enumerate(reply.pieces):
        if reply.hold and reply.hold_after == place:
            await gate(reply.hold).wait()
        if left is not None and len(piece) >= left:
            await _write_chunk(writer, piece[:left])
            writer.transport.abort()
            raise ConnectionResetError
        await _write_chunk(writer, piece)
        left = left - len(piece) if left is not None else None
        await asyncio.sleep(reply.pause_s)
    await asyncio.sleep(reply.keep_open_s)
    writer.write(b"0\r\n\r\n")
    await writer.drain()


async def _write_chunk(writer: asyncio.StreamWriter, piece: bytes) -> None:
    if piece:
        writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        await writer.drain()
        await asyncio.sleep(0)


class ModelServerProcess:
    """The scripted model as a process of its own. `script` is JSON: `{"replies": […], "by_marker": {…: […]}}`."""

    def __init__(self, script: Mapping[str, Any], folder: Path) -> None:
        self._folder = folder
        self._script = folder / "model-script.json"
        self._record = folder / "model-requests.jsonl"
        self._script.write_text(json.dumps(script))
        self.base_url = ""

    async def __aenter__(self) -> Self:
        options = ["--script", str(self._script), "--record", str(self._record)]
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.support.model_server", *options, stdout=asyncio.subprocess.PIPE
        )
        assert self._process.stdout is not None
        self.base_url = (await self._process.stdout.readline()).decode().strip()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        await self._process.wait()

    @property
    def requests(self) -> list[RecordedRequest]:
        """What has come so far, read from the record."""
        if not self._record.exists():
            return []
        rows = [json.loads(line) for line in self._record.read_text().splitlines()]
        return [
            RecordedRequest(row["no"], row["method"], row["path"], row["headers"], row["body"].encode(), row["at"])
            for row in rows
        ]


async def _serve(options: argparse.Namespace) -> None:
    script = json.loads(options.script.read_text())
    markers = {
        marker: [scripted.reply_from(reply) for reply in script]
        for marker, script in script.get("by_marker", {}).items()
    }
    default = [scripted.reply_from(reply) for reply in script.get("replies", [])]
    async with ModelServer(default, by_marker=markers, record=options.record, port=options.port) as server:
        print(server.base_url, flush=True)
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="A chat-completions server that answers by script.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--script", type=Path, required=True)
    parser.add_argument("--record", type=Path, required=True)
    asyncio.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()

"""The SDK's streams as we listen to them: they say when the server's side ends, and leave no call without an answer.

The SDK drops a line that its parser refuses, and the call would wait for its time limit. A line that carries an answer
is read again here: half of a surrogate pair (a cut emoji), or a byte that is no UTF-8, is replaced and marked; anything
else is an error. A line without end is cut off (decision 0124).
"""

import json
import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from anyio.streams.text import TextReceiveStream
from mcp.client._transport import ReadStream, Transport, TransportStreams
from mcp.shared.message import SessionMessage
from mcp.types import (
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from context.messages import SURROGATES_REPLACED, UNDECODABLE_REPLACED, without_lone_surrogates

REPLACED = "agentloom/replaced"
"""In the `_meta` of a result: some of its text was replaced, as this transform says."""
UNDECODABLE = "surrogateescape"
"""How bytes of a server's output that are no UTF-8 are read: they make their own line unreadable, and no other."""
MAX_LINE_BYTES = 64 << 20
_BEGINNING = 4_096
_ID = re.compile(r'"id"\s*:\s*(\d{1,18}|"[^"\\]{1,100}")')
_CANNOT_START = "notifications/agentloom/cannot_start"


@dataclass
class Heard:
    """What was heard on a stream that the SDK does not tell.

    `errno` is the warden's word about a program that can't be started. `tools` is the newest page of the server's list
    as it came, kept where somebody made it a list.
    """

    errno: int | None = None
    tools: list[Any] | None = None

    def note(self, item: SessionMessage | Exception) -> None:
        """Looks at one message."""
        message = item.message if isinstance(item, SessionMessage) else None
        if isinstance(message, JSONRPCNotification) and message.method == _CANNOT_START:
            errno = (message.params or {}).get("errno")
            self.errno = errno if isinstance(errno, int) else 0
        if isinstance(message, JSONRPCResponse) and self.tools is not None:
            tools = message.result.get("tools")
            self.tools = tools if isinstance(tools, list) else []


class WholeLines(TextReceiveStream):
    """A server's output as text, in place of the SDK's own stream: lines as a whole, and none beyond all bounds.

    The SDK puts what it is given behind what it has of a line and looks for its end from the beginning, piece by piece.
    """

    _pieces: list[bytes]
    _size = 0
    _is_skipping = False

    def __post_init__(self, encoding: str, errors: str) -> None:
        super().__post_init__(encoding, errors)
        self._pieces, self._errors = [], errors

    async def receive(self) -> str:
        while True:
            piece = await self.transport_stream.receive()
            ends, newline, rest = piece.rpartition(b"\n")
            if newline:
                whole = self._whole(ends)
                self._pieces, self._size, self._is_skipping = [rest], len(rest), False
                return whole
            if not self._is_skipping:
                self._pieces.append(piece)
                self._size += len(piece)
            if self._size > MAX_LINE_BYTES:
                return self._given_up()

    def _whole(self, ends: bytes) -> str:
        """The lines that are complete now; of one that was given up only what follows it."""
        if self._is_skipping:
            return (ends.partition(b"\n")[2] + b"\n").decode(errors=self._errors)
        return b"".join([*self._pieces, ends, b"\n"]).decode(errors=self._errors)

    def _given_up(self) -> str:
        """A line in the place of one without end: a refusal, if its beginning says which call it answers."""
        beginning = b"".join(self._pieces)[:_BEGINNING].decode(errors="replace")
        self._pieces, self._size, self._is_skipping = [], 0, True
        refusal = _refusal(beginning, f"The server's answer has more than {MAX_LINE_BYTES} bytes.")
        return f"{refusal.model_dump_json(by_alias=True)}\n" if refusal else "\n"


class WatchedTransport(AbstractAsyncContextManager[TransportStreams]):
    """A transport that says when the server's side has ended, which the SDK keeps to itself until the next call."""

    def __init__(self, transport: Transport, lost: Callable[[], None], heard: Heard) -> None:
        self._transport = transport
        self._lost = lost
        self._heard = heard

    async def __aenter__(self) -> TransportStreams:
        read, write = await self._transport.__aenter__()
        return WatchedStream(read, self._lost, self._heard), write

    async def __aexit__(self, *details: Any) -> bool | None:
        return await self._transport.__aexit__(*details)


class WatchedStream:
    """The read stream of a transport, with a word about its end."""

    def __init__(self, stream: ReadStream[SessionMessage | Exception], lost: Callable[[], None], heard: Heard) -> None:
        self._stream = stream
        self._lost = lost
        self._heard = heard

    @property
    def last_context(self) -> Any:
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        return readable(await self._stream.receive())

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> "WatchedStream":
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        ended = True
        try:
            item = readable(await self._stream.__anext__())
            self._heard.note(item)
            ended = False
        finally:
            if ended:
                self._lost()
        return item

    async def __aenter__(self) -> "WatchedStream":
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *details: Any) -> bool | None:
        return await self._stream.__aexit__(*details)


def readable(item: SessionMessage | Exception) -> SessionMessage | Exception:
    """The item, or what became of an answer that the SDK could not read."""
    line = _answer_in(item) if isinstance(item, ValidationError) else None
    if line is None:
        return item
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(_mended(line), by_name=False))
    except (ValueError, RecursionError):
        refusal = _refusal(line, "The server's answer can't be read.")
        return SessionMessage(refusal) if refusal else item


def _answer_in(error: ValidationError) -> str | None:
    """The line that was refused, if it carries the result of a call."""
    for one in error.errors(include_url=False, include_context=False):
        line = one["input"] if isinstance(one["input"], str) else None
        if isinstance(one["input"], dict) and "jsonrpc" in one["input"]:
            line = json.dumps(one["input"])
        if line is not None and ('"result"' in line or '"error"' in line):
            return line
    return None


def _mended(line: str) -> str:
    """The line with whole characters only, and a mark that says so; ValueError if it carries no object as result."""
    value: Any = json.loads(line)
    result = value.get("result") if isinstance(value, dict) else None
    if not isinstance(result, dict):
        raise ValueError
    meta = result.get("_meta")
    mark = SURROGATES_REPLACED if without_lone_surrogates(line) == line else UNDECODABLE_REPLACED
    result["_meta"] = {**(meta if isinstance(meta, dict) else {}), REPLACED: mark}
    return without_lone_surrogates(json.dumps(value, ensure_ascii=False))


def _refusal(line: str, words: str) -> JSONRPCError | None:
    found = _ID.search(line)
    if found is None:
        return None
    return JSONRPCError(jsonrpc="2.0", id=json.loads(found[1]), error=ErrorData(code=PARSE_ERROR, message=words))

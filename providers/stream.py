"""The one decoder of server-sent events: bytes in, in any pieces; events out, as soon as they are complete (SPEC L1).

It knows the framing only: lines, comments, fields, blank lines. What an event means is up to `assembler`. Lines are
turned into text when they are complete, so a character split over two pieces never breaks.
"""

import re
from dataclasses import dataclass

_LINE_END = re.compile(rb"[\r\n]")
_BOM = b"\xef\xbb\xbf"


class UndecodableStreamError(Exception):
    """A complete data line is not UTF-8. Carries nothing of it."""


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event: its type (`message` if none was given) and its data lines, joined by line feeds."""

    type: str
    data: str


class StreamDecoder:
    """Feed it the bytes as they come, then close it. Linear in the number of bytes, however they are cut."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._scanned = 0  # bytes of `_pending` known to hold no line end
        self._after_cr = False
        self._at_start = True
        self._type = ""
        self._data: list[str] = []

    def feed(self, piece: bytes) -> list[ServerEvent]:
        """The events that this piece completes. Raises UndecodableStreamError."""
        self._pending += piece
        if self._at_start and not self._passed_start():
            return []
        return [event for line in self._complete_lines() if (event := self._take(line))]

    def close(self) -> list[ServerEvent]:
        """What the end of the bytes completes: a last line without an end, a last event without a blank line."""
        rest = bytes(self._pending).removeprefix(_BOM if self._at_start else b"")
        self._pending.clear()
        events = [self._take(rest), self._take(b"")]
        return [event for event in events if event]

    def _passed_start(self) -> bool:
        """Drop a byte order mark; False while it can't be told whether there is one."""
        if len(self._pending) < len(_BOM) and _BOM.startswith(bytes(self._pending)):
            return False
        if self._pending.startswith(_BOM):
            del self._pending[: len(_BOM)]
        self._at_start = False
        return True

    def _complete_lines(self) -> list[bytes]:
        lines: list[bytes] = []
        start = 0
        while found := _LINE_END.search(self._pending, self._scanned):
            end = found.start()
            is_second_half = self._after_cr and end == start and self._pending[end] == 0x0A
            if not is_second_half:
                lines.append(bytes(self._pending[start:end]))
            self._after_cr = self._pending[end] == 0x0D
            start = self._scanned = end + 1
        if start < len(self._pending):
            self._after_cr = False
        del self._pending[:start]
        self._scanned = len(self._pending)
        return lines

    def _take(self, line: bytes) -> ServerEvent | None:
        if not line:
            return self._finish_event()
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(_text(value.removeprefix(b" ")))
        elif name == b"event":
            self._type = value.removeprefix(b" ").decode(errors="replace")
        elif name == b"error":  # no field of the standard; servers that had nothing else to say wrote it
            self._type = "error"
            self._data.append(_text(value.removeprefix(b" ")))
        return None

    def _finish_event(self) -> ServerEvent | None:
        data, kind = self._data, self._type
        self._data, self._type = [], ""
        return ServerEvent(kind or "message", "\n".join(data)) if data else None


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise UndecodableStreamError from None

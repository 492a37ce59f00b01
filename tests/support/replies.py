"""What the scripted model answers, as values: texts, calls, raw bytes, errors, delays, broken connections."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

USAGE = {"prompt_tokens": 50, "completion_tokens": 10, "total_tokens": 60}
EVENT_STREAM = (("content-type", "text/event-stream"),)
JSON_BODY = (("content-type", "application/json"),)


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer as it goes over the socket; each piece is written and flushed on its own."""

    pieces: tuple[bytes, ...] = ()
    status: int = 200
    headers: tuple[tuple[str, str], ...] = EVENT_STREAM
    delay_s: float = 0
    """Seconds before the status line."""
    pause_s: float = 0
    """Seconds between two pieces."""
    break_after: int | None = None
    """Bytes of the body after which the connection is cut."""
    hold: str | None = None
    """Name of the gate that must be released before the status line goes out."""
    hold_after: int | None = None
    """Number of pieces after which `hold` applies, instead of before the status line."""
    keep_open_s: float = 0
    """Seconds the connection stays open after the last piece, without an end of the body."""

    def but(self, **changes: Any) -> "Reply":
        return replace(self, **changes)


def text(content: str, **options: Any) -> Reply:
    """A streamed text answer. Options: reasoning, finish_reason, usage, pieces_of (characters per delta)."""
    deltas: list[dict[str, Any]] = []
    if reasoning := options.get("reasoning"):
        deltas.append({"reasoning_content": reasoning})
    size = options.get("pieces_of", max(1, len(content)))
    deltas += [{"content": content[i : i + size]} for i in range(0, len(content), size)]
    return deltas_reply(deltas, finish_reason=options.get("finish_reason", "stop"), usage=options.get("usage", USAGE))


def calls(*asked: tuple[str, object] | tuple[str, object, str], **options: Any) -> Reply:
    """A streamed answer that calls tools: `(name, arguments)` or `(name, arguments, id)`; text arguments go raw.

    Options: content, reasoning, finish_reason, usage.
    """
    deltas: list[dict[str, Any]] = []
    if reasoning := options.get("reasoning"):
        deltas.append({"reasoning_content": reasoning})
    if content := options.get("content"):
        deltas.append({"content": content})
    for index, (name, arguments, *rest) in enumerate(asked):
        written = arguments if isinstance(arguments, str) else json.dumps(arguments)
        function = {"name": name, "arguments": written}
        call_id = str(rest[0]) if rest else f"call_{index}"
        deltas.append({"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]})
    reason = options.get("finish_reason", "tool_calls")
    return deltas_reply(deltas, finish_reason=reason, usage=options.get("usage", USAGE))


def deltas_reply(
    deltas: Iterable[Mapping[str, Any]], *, finish_reason: str | None = "stop", usage: object = USAGE, done: bool = True
) -> Reply:
    """A stream of these deltas, a finish reason, a usage chunk and `[DONE]`; each can be left out."""
    pieces = [event({"choices": [{"index": 0, "delta": delta}]}) for delta in deltas]
    if finish_reason is not None:
        pieces.append(event({"choices": [{"index": 0, "delta": {}, "finish_reason": finish_reason}]}))
    if usage is not None:
        pieces.append(event({"choices": [], "usage": usage}))
    if done:
        pieces.append(b"data: [DONE]\n\n")
    return Reply(pieces=tuple(pieces))


def event(document: object) -> bytes:
    """One event of a stream."""
    return b"data: " + json.dumps(document, ensure_ascii=True).encode() + b"\n\n"


def raw(*pieces: bytes, **changes: Any) -> Reply:
    """These bytes, piece by piece, as an event stream."""
    return Reply(pieces=pieces, **changes)


def body(content: object, *, status: int = 200, headers: Sequence[tuple[str, str]] = (), **changes: Any) -> Reply:
    """One body in one piece: bytes and texts as they are, anything else as JSON."""
    written = content if isinstance(content, bytes) else content.encode() if isinstance(content, str) else None
    piece = written if written is not None else json.dumps(content).encode()
    return Reply(pieces=(piece,) if piece else (), status=status, headers=(*JSON_BODY, *headers), **changes)


def error(status: int, message: str = "refused", **options: Any) -> Reply:
    """An error answer. Options: code, type, headers."""
    about = {"message": message, "type": options.get("type"), "code": options.get("code")}
    return body({"error": about}, status=status, headers=options.get("headers", ()))


def reply_from(script: Mapping[str, Any]) -> Reply:
    """A reply written down as JSON, in the form of script files and of the handed cases."""
    timing = {key: script[key] for key in ("delay_s", "pause_s", "break_after", "hold", "hold_after") if key in script}
    return _untimed(script).but(**timing) if timing else _untimed(script)


def _untimed(script: Mapping[str, Any]) -> Reply:
    if "text" in script:
        return text(script["text"], **script.get("options", {}))
    if "calls" in script:
        asked = [
            (call["name"], call["arguments"], call.get("id", f"call_{i}")) for i, call in enumerate(script["calls"])
        ]
        return calls(*asked, **script.get("options", {}))
    if "sse" in script:
        return raw(*(piece.encode() for piece in script["sse"]))
    if "raw_chunks_hex" in script:
        return raw(*(bytes.fromhex(piece) for piece in script["raw_chunks_hex"]))
    if "sse_deltas" in script:
        return _from_deltas(script)
    headers = tuple(script.get("headers", {}).items())
    return body(script.get("json", script.get("body", b"")), status=script.get("status", 200), headers=headers)


def _from_deltas(script: Mapping[str, Any]) -> Reply:
    deltas = [dict(delta) for delta in script["sse_deltas"]]
    reason = next((delta.pop("finish_reason") for delta in deltas if "finish_reason" in delta), None)
    return deltas_reply([delta for delta in deltas if delta], finish_reason=reason, done=script.get("done", False))

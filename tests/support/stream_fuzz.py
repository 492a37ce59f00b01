"""Makes streams as servers really send them, with what the server meant beside the bytes, and checks the reading.

A stream is made from a seed alone. The suite runs a few thousand; `python -m tests.support.stream_fuzz 100000`
runs as many as one likes and prints the seed of each difference.
"""

import itertools
import json
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from context.errors import ModelCallError
from context.messages import without_lone_surrogates
from context.replies import ModelReply
from providers.reading import AnswerReader

ALPHABET = 'ab {}":,\\\n\r\t\u00e9\u4f60\u597d\U0001f525\U0001f642\u2028\ufeff[]data:'
NAMES = ["f", "get_weather", "g", "read_file"]

# How a server marks the pieces of its calls. Those without index and id can't interleave; no reader could tell.
STYLES = [
    "index",
    "index_id_once",
    "index_all",
    "text_index",
    "new_id_per_piece",
    "id_only",
    "bare",
    "zero_index",
    "whole",
]
INTERLEAVING = {"index", "index_id_once", "index_all", "text_index", "new_id_per_piece", "id_only"}
WHOLE = {"zero_index", "whole"}


@dataclass(frozen=True, slots=True)
class Meant:
    """What the server meant to say."""

    content: str
    reasoning: str
    calls: tuple[tuple[str | None, str, str], ...]
    finish: str


@dataclass(frozen=True, slots=True)
class Sent:
    """What it sent: the bytes in pieces. `fault` names what is wrong with them, None if nothing is."""

    meant: Meant
    pieces: tuple[bytes, ...]
    fault: str | None


def make(seed: int) -> Sent:
    """The stream of this seed."""
    rng = random.Random(seed)
    style = rng.choice(STYLES)
    meant = _meaning(rng, style)
    if rng.random() < 0.1:
        body = _document(rng, meant)
        fault = None
    else:
        fault = rng.choice([None, None, None, "cut", "error", "garbage", "not_utf8", "breakdown"])
        body = _stream(rng, meant, style, fault)
    return Sent(meant, tuple(_pieces(rng, body)), fault)


def check(sent: Sent) -> str | None:
    """None if what was read is what was meant, or a failure by name where one is due; else the difference."""
    reader = AnswerReader()
    try:
        for piece in sent.pieces:
            reader.feed(piece)
        reply = reader.finish()
    except ModelCallError as failure:
        return None if sent.fault is not None else f"a whole stream failed: {failure}"
    if sent.fault not in (None, "cut"):
        return f"a stream with the fault '{sent.fault}' was taken for an answer"
    return _difference(sent.meant, reply)


def _difference(meant: Meant, reply: ModelReply) -> str | None:
    calls = tuple((call.provider_id, call.name, call.arguments) for call in reply.calls)
    got = (reply.content or "", reply.reasoning_content or "", calls, reply.provider_finish_reason)
    wanted = (meant.content, meant.reasoning, meant.calls, meant.finish)
    return None if got == wanted else f"meant {wanted!r}, got {got!r}"


def _meaning(rng: random.Random, style: str) -> Meant:
    count = rng.choice([0, 0, 1, 2, 3])
    calls = []
    for place in range(count):
        call_id = None if style in ("bare", "whole") and rng.random() < 0.7 else f"id{place}"
        if style == "index" and rng.random() < 0.3:
            call_id = None
        name = rng.choice(NAMES)
        calls.append((call_id, name, _arguments(rng, style)))
    content = _text(rng) if rng.random() < 0.7 or not calls else ""
    return Meant(content, _text(rng) if rng.random() < 0.3 else "", tuple(calls), "tool_calls" if calls else "stop")


def _arguments(rng: random.Random, style: str) -> str:
    value = {_text(rng, 3): rng.choice([_text(rng), 1, None, {"x": [_text(rng, 3)]}]) for _ in range(rng.randint(0, 2))}
    text = json.dumps(value, ensure_ascii=rng.random() < 0.5)
    # A model may break off its JSON; where calls are told apart by completeness, the server sends whole ones.
    broken = style in INTERLEAVING - {"id_only"} and rng.random() < 0.15
    return text[: rng.randint(0, len(text) - 1)] if broken else text


def _text(rng: random.Random, longest: int = 12) -> str:
    return "".join(rng.choice(ALPHABET) for _ in range(rng.randint(1, longest)))


def _document(rng: random.Random, meant: Meant) -> bytes:
    message: dict[str, Any] = {"role": "assistant", "content": meant.content or None}
    if meant.reasoning:
        message["reasoning_content"] = meant.reasoning
    if meant.calls:
        message["tool_calls"] = [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for call_id, name, arguments in meant.calls
        ]
    whole = {"id": "x", "choices": [{"index": 0, "message": message, "finish_reason": meant.finish}]}
    blank = rng.choice([b"", b"\n\n", b" \r\n", b"\xef\xbb\xbf"])
    return blank + json.dumps(whole, ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, 1])).encode()


def _stream(rng: random.Random, meant: Meant, style: str, fault: str | None) -> bytes:
    events = [_event(rng, delta) for delta in _deltas(rng, meant, style)]
    place = rng.randint(0, len(events))
    if fault == "error":
        events.insert(place, _lines(rng, {"error": {"message": "x", "code": rng.choice([502, 400, "server_error"])}}))
    elif fault == "garbage":
        events.insert(place, b'data: {"choices": [{"del\n\n')
    elif fault == "not_utf8":
        events.insert(place, b'data: {"choices":[{"delta":{"content":"\xff\xe5"}}]}\n\n')
    finish = rng.choice(["error", "insufficient_system_resource"]) if fault == "breakdown" else meant.finish
    events.append(_lines(rng, {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}))
    if rng.random() < 0.5:
        events.append(_lines(rng, {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}))
    ending = rng.choice([b"data: [DONE]\n\n", b"data:[DONE]\r\n\r\n", b"data: [DONE]", b""])
    body = rng.choice([b"", b"", b"\xef\xbb\xbf"]) + b"".join(_noise(rng) + event for event in events)
    body += _noise(rng) + ending
    if fault == "cut":
        return body[: rng.randint(0, len(body))]
    return body.rstrip(b"\r\n") if rng.random() < 0.1 else body


def _deltas(rng: random.Random, meant: Meant, style: str) -> Iterator[dict[str, Any]]:
    yield from ({rng.choice(["reasoning_content", "reasoning"]): part} for part in _parts(rng, meant.reasoning))
    texts = [{"content": part} for part in _parts(rng, meant.content)]
    calls = _call_deltas(rng, meant, style)
    while texts or calls:
        source = texts if texts and (not calls or rng.random() < 0.7) else calls
        yield source.pop(0)


def _call_deltas(rng: random.Random, meant: Meant, style: str) -> list[dict[str, Any]]:
    queues = [list(_one_call(rng, place, call, style)) for place, call in enumerate(meant.calls)]
    if style in INTERLEAVING and rng.random() < 0.6:
        mixed: list[dict[str, Any]] = []
        if style == "id_only":
            # Without an index the calls are counted as they begin, so they begin in order.
            mixed = [queue.pop(0) for queue in queues]
        while any(queues):
            mixed.append(rng.choice([queue for queue in queues if queue]).pop(0))
        return [{"tool_calls": [piece]} for piece in mixed]
    pieces = [piece for queue in queues for piece in queue]
    return (
        [{"tool_calls": pieces}]
        if style in WHOLE and pieces and rng.random() < 0.3
        else [{"tool_calls": [p]} for p in pieces]
    )


def _one_call(
    rng: random.Random, place: int, call: tuple[str | None, str, str], style: str
) -> Iterator[dict[str, Any]]:
    call_id, name, arguments = call
    parts = [arguments] if style in WHOLE else [rng.choice(["", None]), *_parts(rng, arguments)]
    for number, part in enumerate(parts):
        function: dict[str, Any] = {"arguments": part}
        piece: dict[str, Any] = {"function": function}
        if number == 0 or style == "index_all":
            function["name"] = name
        if style in ("index", "index_id_once", "index_all", "text_index", "new_id_per_piece"):
            piece["index"] = str(place) if style == "text_index" else place
        if style == "zero_index":
            piece["index"] = 0
        if number == 0 or style in ("index_all", "id_only"):
            piece["id"] = call_id
        elif style == "new_id_per_piece":
            piece["id"] = f"other{number}"
        yield piece


def _parts(rng: random.Random, text: str) -> list[str]:
    """The text in pieces; half of a surrogate pair can end one, as JSON escapes allow."""
    units = text.encode("utf-16-le", "surrogatepass")
    cuts = sorted(rng.sample(range(1, len(units) // 2), min(len(units) // 2 - 1, rng.randint(0, 3)))) if text else []
    ends = [0, *(2 * cut for cut in cuts), len(units)]
    spans = itertools.pairwise(ends)
    return [part for a, b in spans if (part := units[a:b].decode("utf-16-le", "surrogatepass"))]


def _event(rng: random.Random, delta: dict[str, Any]) -> bytes:
    choice: dict[str, Any] = {"delta": delta}
    if rng.random() < 0.5:
        choice |= {"index": 0, "finish_reason": None}
    if rng.random() < 0.2:
        delta.setdefault("content", None)
    return _lines(rng, {"id": "x", "choices": [choice], "usage": None} if rng.random() < 0.3 else {"choices": [choice]})


def _lines(rng: random.Random, document: dict[str, Any]) -> bytes:
    text = json.dumps(document, ensure_ascii=True)
    if "\\ud" not in text and rng.random() < 0.5:
        text = json.dumps(document, ensure_ascii=False)
    elif without_lone_surrogates(text_of := json.dumps(document, ensure_ascii=False)) == text_of and rng.random() < 0.5:
        text = text_of
    end = rng.choice(["\n", "\n", "\r\n", "\r"])
    space = rng.choice([" ", " ", ""])
    rows = json.dumps(document, indent=1).split("\n") if rng.random() < 0.05 else [text]
    head = rng.choice(["", "", "", f"event: message{end}", f"id: 7{end}"])
    # Some servers forget the blank line between two events.
    closing = end if rng.random() > 0.03 or len(rows) > 1 else ""
    return (head + "".join(f"data:{space}{row}{end}" for row in rows) + closing).encode()


def _noise(rng: random.Random) -> bytes:
    if rng.random() < 0.8:
        return b""
    return rng.choice(
        [b": keep-alive\n\n", b":\n", b"\n\n", b"event: ping\ndata:\n\n", b"retry: 3000\n\n", b": \xff\n\n"]
    )


def _pieces(rng: random.Random, body: bytes) -> Iterator[bytes]:
    if rng.random() < 0.2:
        yield from (body[i : i + 1] for i in range(len(body)))
        return
    start = 0
    while start < len(body):
        end = start + rng.randint(1, rng.choice([3, 20, 400]))
        yield body[start:end]
        start = end


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    differences = 0
    for seed in range(count):
        sent = make(seed)
        if difference := check(sent):
            differences += 1
            print(f"seed {seed} ({sent.fault}): {difference}")
            if differences > 20:
                break
    print(f"{count} streams, {differences} silent differences")
    sys.exit(bool(differences))


if __name__ == "__main__":
    main()

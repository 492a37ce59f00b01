"""Request bodies: how many bytes may come, and what counts as JSON (SPEC Y5).

The middleware counts the bytes that really arrive, whatever `Content-Length` says, before anything parses them, and
refuses what announces too much before it comes. The parser takes UTF-8 JSON without duplicate keys, non-finite numbers,
NUL, lone surrogates or deep nesting.
"""

import json
import math
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import domain_problem
from api.places import step_of
from context.errors import InputInvalidError, TooLargeError

MAX_BODY_BYTES = 8 << 20
MAX_DEPTH = 64

# Objects, lists and what is in them: what a body costs grows with these more than with its bytes.
MAX_VALUES = 100_000

# An oversized body that was not announced is read on (and thrown away) up to this size before it is answered: many a
# client looks for an answer only when it has sent everything.
DRAIN_BYTES = 64 << 20

Path = tuple[str, ...]


class BodyLimit:
    """ASGI middleware: reads the body up to the limit and hands it on in one piece, or answers 413 TOO_LARGE."""

    def __init__(self, app: ASGIApp, *, max_bytes: int = MAX_BODY_BYTES) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            # What is announced is not waited for; the server throws away what comes all the same.
            body = await self._read(receive) if _announced(scope) <= self._max_bytes else None
        except ClientDisconnect:  # half a request is none, even if it could be read; nobody waits for an answer
            return
        if body is None:
            answer = domain_problem(TooLargeError(limit_bytes=self._max_bytes))
            await answer(scope, receive, send)
            return
        await self._app(scope, _replayed(body, receive), send)

    async def _read(self, receive: Receive) -> bytes | None:
        """The body, or None if it is too large. Raises ClientDisconnect if its end never came."""
        pieces: list[bytes] = []
        size = 0
        async for piece in _pieces(receive):
            size += len(piece)
            if size > DRAIN_BYTES:
                return None
            if size <= self._max_bytes:
                pieces.append(piece)
            else:
                pieces.clear()
        return b"".join(pieces) if size <= self._max_bytes else None


def _announced(scope: Scope) -> int:
    """The bytes that `Content-Length` announces; 0 without it."""
    return next((int(value) for name, value in scope["headers"] if name == b"content-length"), 0)


async def _pieces(receive: Receive) -> AsyncIterator[bytes]:
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        yield message.get("body", b"")
        more = message.get("more_body", False)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body first and then whatever the server says, such as a disconnect."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return pending.pop() if pending else await receive()

    return replay


def strict_json(body: bytes) -> Any:
    """The JSON value of a body. Raises InputInvalidError or TooLargeError, naming the place and never the content."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise InputInvalidError("The body is not valid UTF-8.") from None
    objects = _Objects()
    try:
        value = json.loads(text, object_pairs_hook=objects.made_of, parse_constant=_refused, parse_float=_finite)
    except json.JSONDecodeError as error:
        raise InputInvalidError(f"The body is not valid JSON at character {error.pos}.", character=error.pos) from None
    except RecursionError:
        raise InputInvalidError(f"The body is nested deeper than {MAX_DEPTH} levels.") from None
    except _StrictError as error:
        raise InputInvalidError(error.sentence) from None
    except ValueError:  # Python refuses integers of thousands of digits
        raise InputInvalidError("The body holds a number that is too large.") from None
    _check(value)
    return value


class _StrictError(Exception):
    """Leaves the parser from inside a hook, with one sentence of ours."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


class _Objects:
    """Makes the objects of one body, and stops at a number of fields that no honest body has."""

    def __init__(self) -> None:
        self._left = MAX_VALUES

    def made_of(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        self._left -= 1 + len(pairs)
        if self._left < 0:
            raise _too_many()
        value = dict(pairs)
        if len(value) < len(pairs):
            counts = Counter(name for name, _ in pairs)
            position = next(place for place, (name, _) in enumerate(pairs, 1) if counts[name] > 1)
            raise _StrictError(f"The body has a field twice: {step_of(pairs[position - 1][0], position)}.")
        return value


def _too_many() -> TooLargeError:
    return TooLargeError(f"The body holds more than {MAX_VALUES} values.", limit_values=MAX_VALUES)


def _refused(name: str) -> Any:
    raise _StrictError("The body holds NaN or Infinity, which are not JSON.")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _StrictError("The body holds a number that is too large.")
    return number


def _check(value: Any) -> None:
    """Walk the value without recursion: how many and how deep, and every string and key."""
    stack: list[tuple[Any, Path]] = [(value, ("body",))]
    seen = 0
    while stack:
        current, path = stack.pop()
        seen += 1
        if isinstance(current, str):
            _check_text(current, path)
        elif isinstance(current, (dict, list)):
            if len(path) > MAX_DEPTH:
                raise InputInvalidError(f"The body is nested deeper than {MAX_DEPTH} levels.")
            if seen + len(stack) + len(current) > MAX_VALUES:
                raise _too_many()
            stack.extend((child, (*path, step)) for step, child in _children(current, path))


def _children(value: dict[str, Any] | list[Any], path: Path) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list):
        yield from ((str(place), child) for place, child in enumerate(value))
        return
    for position, (name, child) in enumerate(value.items(), 1):
        _check_text(name, path)
        yield step_of(name, position), child


def _check_text(text: str, path: Path) -> None:
    if "\x00" in text:
        raise InputInvalidError(f"{'.'.join(path)} holds a NUL character.")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InputInvalidError(f"{'.'.join(path)} holds half of a surrogate pair, which is not a character.") from None

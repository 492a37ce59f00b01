"""What is seen of one HTTP exchange from below the MCP SDK, which keeps most of it to itself (SPEC T4).

The SDK makes a request in the context of whoever asked for it, so that calls at once over one connection stay apart.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from http import HTTPStatus

import httpx2

from egress.errors import EgressError
from egress.mcp import refusal_of
from tools.http_answers import HttpAnswer

NOT_FOUND = HTTPStatus.NOT_FOUND
_FIRST_REFUSAL = HTTPStatus.BAD_REQUEST


@dataclass
class Exchange:
    """The newest request of a call, or of opening a connection, and the answer that refused it."""

    of_a_call: bool = False
    request: httpx2.Request | None = None
    answer: HttpAnswer | None = None

    @property
    def refusal(self) -> EgressError | None:
        """What the guard stopped."""
        return refusal_of(self.request) if self.request is not None else None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Notes the requests that begin in this context."""
        token = _EXCHANGE.set(self)
        try:
            yield
        finally:
            _EXCHANGE.reset(token)


_EXCHANGE: ContextVar[Exchange | None] = ContextVar("exchange", default=None)


async def note_request(request: httpx2.Request) -> None:
    """A hook of the client."""
    exchange = _EXCHANGE.get()
    if exchange is None or request.method != "POST":
        return
    if not exchange.of_a_call or b'"tools/call"' in request.content:
        exchange.request, exchange.answer = request, None


async def note_answer(response: httpx2.Response) -> None:
    """A hook of the client: reads an answer that refuses, which the SDK may not do."""
    exchange = _EXCHANGE.get()
    if exchange is None or exchange.request is not response.request or response.status_code < _FIRST_REFUSAL:
        return
    body = await response.aread()
    exchange.answer = HttpAnswer(response.status_code, response.headers, response.charset_encoding, body)


def is_protocol_error(answer: HttpAnswer) -> bool:
    """Whether the body is the server's own word in the protocol; a gateway's or a busy server's never is."""
    if answer.media_type != "application/json" or answer.is_open:
        return False
    try:
        body = json.loads(answer.body)
    except (ValueError, RecursionError):
        return False
    return isinstance(body, dict) and isinstance(body.get("error"), dict) and "jsonrpc" in body

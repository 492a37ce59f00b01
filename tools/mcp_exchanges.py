"""What is seen of one HTTP exchange from below the MCP SDK, which keeps most of it to itself (SPEC T4).

The SDK makes a request in the context of whoever asked for it, so that calls at once over one connection stay apart.
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from http import HTTPStatus

import httpx2

from egress.errors import EgressError
from egress.mcp import AnswerBrokenError, Failure, allow_silence, contain, failure_of, is_read_to_its_end
from tools.errors import ToolTimeoutError, ToolUnavailableError
from tools.http_answers import HttpAnswer

NOT_FOUND = HTTPStatus.NOT_FOUND
_EVENT_STREAM = "text/event-stream"
_RESOLUTION_S = 0.01
_FIRST_REFUSAL = HTTPStatus.BAD_REQUEST


@dataclass
class Exchange:
    """The newest request of a call, or of opening a connection, and the answer that refused it.

    `is_contained` says whether a failure must leave the connection as it is: others may use it. `limit_s` is how long
    a call may take, and be silent, even if the client's own limit for silence is shorter.
    """

    of_a_call: bool = False
    limit_s: float = 0
    began: float = field(default_factory=lambda: asyncio.get_running_loop().time())
    is_contained: bool = True
    request: httpx2.Request | None = None
    answer: HttpAnswer | None = None
    media_type: str = ""

    @property
    def failure(self) -> Failure | None:
        """What the guard stopped, or how the network failed."""
        return failure_of(self.request) if self.request is not None else None

    @property
    def refusal(self) -> EgressError | None:
        """What the guard stopped."""
        return self.failure if isinstance(self.failure, EgressError) else None

    @property
    def is_answered(self) -> bool:
        """Whether the server has said something about the call: in its body, or in an event before the stream's end."""
        if self.request is None or not self.media_type:
            return False
        return is_read_to_its_end(self.request) != self.media_type.startswith(_EVENT_STREAM)

    @property
    def is_over_time(self) -> bool:
        """Whether the call has taken all of its time; a timer may be early by the resolution of its clock."""
        return asyncio.get_running_loop().time() - self.began >= self.limit_s - _RESOLUTION_S

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
    if exchange is None or exchange.is_contained:
        contain(request)
    if exchange is None or request.method != "POST":
        return
    if not exchange.of_a_call or b'"tools/call"' in request.content:
        exchange.request, exchange.answer = request, None
        allow_silence(request, exchange.limit_s)


async def note_answer(response: httpx2.Response) -> None:
    """A hook of the client: notes the kind of an answer, and reads one that refuses, which the SDK may not do."""
    exchange = _EXCHANGE.get()
    if exchange is None or exchange.request is not response.request:
        return
    exchange.media_type = response.headers.get("Content-Type", "").lower()
    if response.status_code < _FIRST_REFUSAL:
        return
    try:
        body = await response.aread()
    except AnswerBrokenError:
        return
    if exchange.failure is None:
        exchange.answer = HttpAnswer(response.status_code, response.headers, response.charset_encoding, body)


def raise_failure(failure: Failure | None) -> None:
    """Raises what a request failed with as a call's failure: EgressError or ToolUnavailableError."""
    match failure:
        case None:
            return
        case EgressError():
            raise failure from None
        case httpx2.ConnectError() | httpx2.ConnectTimeout() | httpx2.PoolTimeout():
            raise ToolUnavailableError("unreachable", may_have_run=False) from None
        case httpx2.TimeoutException():
            raise ToolTimeoutError from None
        case _:
            raise ToolUnavailableError("connection_lost", may_have_run=True) from None


def is_protocol_error(answer: HttpAnswer) -> bool:
    """Whether the body is the server's own word in the protocol; a gateway's or a busy server's never is."""
    if answer.media_type != "application/json" or answer.is_open:
        return False
    try:
        body = json.loads(answer.body)
    except (ValueError, RecursionError):
        return False
    return isinstance(body, dict) and isinstance(body.get("error"), dict) and "jsonrpc" in body

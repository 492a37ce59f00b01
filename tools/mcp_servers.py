"""Connections to MCP servers: one owner task per server, which alone opens and closes the SDK's client.

Calls come from any task. A connection that is lost or idle ends its task, and the next call opens a new one; a call is
never sent twice from here. Every error of the SDK ends here, since its words are content.
"""

import asyncio
import errno
import logging
import os
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client import stdio
from mcp.client._transport import Transport
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.types import CONNECTION_CLOSED, REQUEST_TIMEOUT, CallToolResult
from mcp.types import Tool as RemoteTool
from opentelemetry import trace
from pydantic import ValidationError

from tools.errors import Problem, ServerUnusableError, ToolTimeoutError, ToolUnavailableError
from tools.http_answers import HttpAnswer
from tools.mcp_access import McpServer
from tools.mcp_exchanges import (
    NOT_FOUND,
    Exchange,
    is_protocol_error,
    note_answer,
    note_request,
    raise_failure,
)
from tools.mcp_listing import all_tools
from tools.mcp_streams import UNDECODABLE, Heard, WatchedTransport, WholeLines
from tools.port import Delivery
from tools.running import Caught, unless_stopped

# Its own takes time in the square of a line's length, and memory without bounds (decision 0124).
stdio.TextReceiveStream = WholeLines  # type: ignore[attr-defined]

_IDLE_S = 600.0
_WARDEN = (sys.executable, "-I", "-S", str(Path(__file__).with_name("warden.py")))
"""In front of a server's command: nothing of the server outlives its connection or this process."""
_CANNOT_START: dict[int, Problem] = {
    errno.ENOENT: "no_program",
    errno.ENOTDIR: "no_program",
    errno.EACCES: "not_executable",
    errno.EPERM: "not_executable",
}


def _cannot_start(number: int, command: Sequence[str] | None) -> Problem:
    """A name that is nowhere looks like a forbidden one if a folder of PATH may not be read."""
    if command and "/" not in command[0] and shutil.which(command[0]) is None:
        return "no_program"
    return _CANNOT_START.get(number, "not_startable")


HttpClientFor = Callable[[Mapping[str, str]], httpx2.AsyncClient]
"""A new guarded client that sends these headers with each request; closed by whoever asked for it."""


@dataclass(frozen=True)
class ServerRefusal:
    """The server answered with a protocol error, such as an unknown tool or invalid parameters."""

    code: int
    message: str


class McpServers:
    """The connections of one process. Closed with `aclose`, in any task."""

    def __init__(
        self, *, http_client_for: HttpClientFor, folder: Path | None = None, connect_timeout_s: float = 20.0
    ) -> None:
        self._http_client_for = http_client_for
        self._folder = folder
        self._connect_timeout_s = connect_timeout_s
        self._links: dict[McpServer, _Link] = {}
        self._closing: set[_Link] = set()
        # What the SDK logs about a failure is the message that failed, which is content (SPEC Y6).
        logging.getLogger("mcp").setLevel(logging.CRITICAL + 1)

    async def list_tools(self, server: McpServer, *, timeout_s: float) -> list[RemoteTool]:
        """All tools of the server, over a connection opened and closed for it.

        Raises ToolUnavailableError if it can't be reached or doesn't answer as a server should, EgressError if the
        guard does not allow it, and ConfigurationInvalidError for a tool whose schema is none.
        """
        opening = self._open(server)
        opening.heard.tools = []
        link = _Link(opening, idle_s=self._connect_timeout_s)
        try:
            async with asyncio.timeout(min(self._connect_timeout_s, timeout_s)):
                return await link.tools()
        except TimeoutError:
            raise ToolTimeoutError(may_have_run=False) from None
        finally:
            await link.aclose()

    async def call(
        self,
        server: McpServer,
        name: str,
        arguments: dict[str, Any],
        *,
        timeout_s: float,
        idempotency_key: str | None,
        delivery: Delivery,
        on_progress: Callable[[], None],
    ) -> CallToolResult | ServerRefusal | HttpAnswer:
        """One call of one tool; an HttpAnswer is one that says no.

        Raises ToolUnavailableError if it could not be sent or its answer was lost, EgressError if the guard stopped it.
        """
        link = await self._link(server)
        client = await link.client()
        if isinstance(client, HttpAnswer):
            return client
        delivery.begins()
        meta: Any = {"idempotencyKey": idempotency_key} if idempotency_key else None

        async def progressed(progress: float, total: float | None, message: str | None) -> None:
            on_progress()

        exchange = Exchange(of_a_call=True, limit_s=timeout_s)
        with link.in_use(), exchange.watched():
            answer = await unless_stopped(_asked(client.call_tool(name, arguments, timeout_s, progressed, meta=meta)))
            return link.settled(answer, exchange)

    async def aclose(self) -> None:
        """Closes every connection and ends the servers started here."""
        links, self._links = {*self._links.values(), *self._closing}, {}
        await asyncio.gather(*(link.aclose() for link in links))

    async def _link(self, server: McpServer) -> "_Link":
        link = self._links.get(server)
        if link is None or link.is_over:
            if link is not None:
                link.when_closed(self._closing)
            link = self._links[server] = _Link(self._open(server), idle_s=_IDLE_S)
        await link.opened(self._connect_timeout_s)
        return link

    def _open(self, server: McpServer) -> "_Opening":
        return _Opening(server, self._http_client_for, self._folder)


@dataclass
class _Opening:
    """How one connection is opened, and what is seen of it from below the SDK."""

    server: McpServer
    http_client_for: HttpClientFor
    folder: Path | None
    exchange: Exchange = field(default_factory=lambda: Exchange(is_contained=False))
    heard: Heard = field(default_factory=Heard)

    @asynccontextmanager
    async def client(self, lost: Callable[[], None]) -> AsyncIterator[Client]:
        async with AsyncExitStack() as stack:
            transport = await self._http(stack) if self.server.url else self._stdio(stack)
            client = await stack.enter_async_context(Client(WatchedTransport(transport, lost, self.heard)))
            # The SDK would ask for the list behind a call, check a result by it without bounds, and drop what differs.
            client.session.validate_tool_result = _taken_as_it_came  # type: ignore[method-assign]
            yield client

    async def _http(self, stack: AsyncExitStack) -> Transport:
        client = await stack.enter_async_context(self.http_client_for(dict(self.server.headers)))
        client.event_hooks["request"].append(note_request)
        client.event_hooks["response"].append(note_answer)
        # The guard bounds every answer; the SDK's own limit for one event, 1 MB, is too small for results.
        return streamable_http_client(self.server.url or "", http_client=client, max_sse_event_size=None)

    def _stdio(self, stack: AsyncExitStack) -> Transport:
        command = (*_WARDEN, str(os.getpid()), *(self.server.command or ()))
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
        known = stdio.get_default_environment()
        # Programs that were installed beside this interpreter are found without an activated environment.
        path = os.pathsep.join(filter(None, (str(Path(sys.executable).parent), known.get("PATH"))))
        env = {"PATH": path}
        parameters = StdioServerParameters(command=command[0], args=list(command[1:]), env=env, cwd=self.folder)
        # A copy is not validated: the SDK's type names three of Python's handlers, its reader takes each of them.
        parameters = parameters.model_copy(update={"encoding_error_handler": UNDECODABLE})
        # What a server writes to its standard error may be content, so it goes nowhere.
        return stdio.stdio_client(parameters, stack.enter_context(open(os.devnull, "w")))


class _Link:
    """One open connection and the task that owns it."""

    def __init__(self, opening: _Opening, *, idle_s: float) -> None:
        self._opening = opening
        self._idle_s = idle_s
        self._calls_open = self._calls_made = 0
        self._is_retired = False
        self._began = asyncio.get_running_loop().time()
        self._end = asyncio.Event()
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._failure: BaseException | None = None
        self._has_served = False
        self._owner = asyncio.create_task(self._own(), name="mcp server")

    @property
    def is_over(self) -> bool:
        """Whether new calls need another connection."""
        return self._is_retired or self._is_closed

    @property
    def _is_closed(self) -> bool:
        return self._end.is_set() or self._owner.done()

    async def client(self) -> Client | HttpAnswer:
        """The SDK's client, or the answer of a server that does not let us in.

        Raises ToolUnavailableError if the connection can't be opened, EgressError if the guard does not allow it.
        """
        either: set[asyncio.Future[Any]] = {self._ready, self._owner}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        return self._ready.result() if self._ready.done() else self._not_let_in()

    def _not_let_in(self) -> HttpAnswer:
        answer = _answer_in(self._opening.exchange)
        if answer is None:
            raise self._unusable(self._failure)
        if answer.status >= 500:
            raise ToolUnavailableError("server_error", may_have_run=False, status=answer.status)
        return answer

    def _unusable(self, failure: BaseException | None) -> ToolUnavailableError:
        """Why nothing came of a question, as far as it is known; `failure` is what the SDK raised."""
        heard = self._opening.heard
        if heard.errno is not None:
            return ServerUnusableError(_cannot_start(heard.errno, self._opening.server.command), number=heard.errno)
        refusal = _refusal_in(failure)
        if refusal is not None and refusal.code != CONNECTION_CLOSED:
            return ServerUnusableError("protocol_error", number=refusal.code)
        if refusal is not None and self._opening.server.url is None:
            return ServerUnusableError("ended")
        return ToolUnavailableError("unreachable", may_have_run=False)

    async def tools(self) -> list[RemoteTool]:
        """The tools of a server that is asked for nothing else; raises as `McpServers.list_tools` does."""
        client = await self.client()
        found = client if isinstance(client, HttpAnswer) else await self._listed(client)
        if isinstance(found, HttpAnswer):
            raise ToolUnavailableError("unreachable", may_have_run=False, status=found.status)
        return found

    async def _listed(self, client: Client) -> list[RemoteTool] | HttpAnswer:
        exchange = Exchange()
        try:
            with exchange.watched(), _untraced():
                return await all_tools(client, self._opening.heard)
        except (MCPError, RuntimeError) as error:
            failure = error
        answer = _answer_in(exchange)
        if answer is None:
            raise self._unusable(failure)
        return answer

    async def opened(self, timeout_s: float) -> None:
        """Returns once calls can be made; a server that takes too long to start is given up for all that wait."""
        left_s = self._began + timeout_s - asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(left_s):
                await self.client()
        except TimeoutError:
            self._end.set()
            if not self._ready.done():
                self._owner.cancel()
            raise ToolUnavailableError("unreachable", may_have_run=False) from None

    def when_closed(self, closing: "set[_Link]") -> None:
        """Stands among those that are closing until it is closed."""
        closing.add(self)
        self._owner.add_done_callback(lambda owner: closing.discard(self))

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Counts a call while it lasts; the last one out closes a retired connection.

        A server of ours that a call got no answer from in time may hang, and may go on with what nobody waits for: it
        is ended as soon as it has no other call, and the next call gets a new one.
        """
        self._calls_open += 1
        self._calls_made += 1
        try:
            yield
        except (asyncio.CancelledError, ToolTimeoutError):
            self._is_retired |= self._opening.server.url is None
            raise
        finally:
            self._calls_open -= 1
            if self._is_retired and not self._calls_open:
                self._end.set()

    def settled(
        self, answer: CallToolResult | ServerRefusal, exchange: Exchange
    ) -> CallToolResult | ServerRefusal | HttpAnswer:
        """What the SDK's answer means: the server's own word, or the SDK's about a connection that failed."""
        if not isinstance(answer, ServerRefusal):
            self._has_served = True
            return answer
        if answer.code == REQUEST_TIMEOUT and exchange.is_over_time:
            raise ToolTimeoutError
        if self._opening.server.url is None:
            if answer.code == CONNECTION_CLOSED and self.is_over:
                raise ToolUnavailableError("connection_lost", may_have_run=True)
            return answer
        return self._settled_over_http(answer, exchange)

    def _settled_over_http(self, refusal: ServerRefusal, exchange: Exchange) -> ServerRefusal | HttpAnswer:
        """Over HTTP the SDK gives a broken exchange codes that servers use too; what was seen tells them apart."""
        if exchange.failure is not None:
            self._is_retired = True
            raise_failure(exchange.failure)
        if exchange.answer is not None:
            return self._refused(exchange.answer, refusal)
        if refusal.code == CONNECTION_CLOSED and (self._is_closed or not exchange.is_answered):
            raise ToolUnavailableError("connection_lost", may_have_run=True)
        return refusal

    def _refused(self, answer: HttpAnswer, refusal: ServerRefusal) -> ServerRefusal | HttpAnswer:
        """The next call starts anew: its session may be forgotten, its key no longer taken."""
        self._is_retired = True
        if answer.status == NOT_FOUND and self._has_served:
            raise ToolUnavailableError("server_error", may_have_run=False, status=answer.status)
        return refusal if is_protocol_error(answer) else answer

    async def aclose(self) -> None:
        self._end.set()
        if not self._ready.done():
            self._owner.cancel()
        await asyncio.wait({self._owner})

    async def _own(self) -> None:
        caught = Caught()
        with caught, _untraced(), self._opening.exchange.watched():
            async with self._opening.client(self._end.set) as client:
                self._opening.exchange.is_contained = True
                self._ready.set_result(client)
                while not await self._idle_or_over():
                    pass
        self._failure = caught.error
        self._end.set()

    async def _idle_or_over(self) -> bool:
        made = self._calls_made
        try:
            async with asyncio.timeout(self._idle_s):
                await self._end.wait()
        except TimeoutError:
            return made == self._calls_made and self._calls_open == 0
        return True


async def _taken_as_it_came(name: str, result: CallToolResult) -> None:
    """In place of the SDK's check of a result: what a server declares of its results is its own matter (SPEC T5)."""


async def _asked(call: Awaitable[CallToolResult]) -> CallToolResult | ServerRefusal:
    try:
        with _untraced():
            return await call
    except MCPError as error:
        return ServerRefusal(error.code, error.message)
    except (RuntimeError, ValidationError):
        return ServerRefusal(0, "The server's result does not fit the protocol.")


@contextmanager
def _untraced() -> Iterator[None]:
    """Keeps the SDK's spans, which quote what servers say, out of traces: an unsampled parent drops its children."""
    here = trace.get_current_span().get_span_context()
    unsampled = trace.SpanContext(here.trace_id or 1, here.span_id or 1, is_remote=False)
    with trace.use_span(trace.NonRecordingSpan(unsampled)):
        yield


def _answer_in(exchange: Exchange) -> HttpAnswer | None:
    """The answer of a server that refused. Raises EgressError, and ToolUnavailableError for a failed connection."""
    if exchange.refusal is not None:
        raise exchange.refusal from None
    if exchange.failure is not None:
        raise ToolUnavailableError("unreachable", may_have_run=False)
    return exchange.answer


def _refusal_in(failure: BaseException | None) -> MCPError | None:
    """The protocol error among what was raised, at once or in a group."""
    if isinstance(failure, BaseExceptionGroup):
        return next(filter(None, map(_refusal_in, failure.exceptions)), None)
    return failure if isinstance(failure, MCPError) else None

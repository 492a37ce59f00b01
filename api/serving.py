"""Serving the application, and ending it: streams and long polls are let go first, so that they hold nothing.

What is no HTTP, or has a head that is too long or too late, reaches no application; the server's own answer to it is a
problem document too (SPEC E).
"""

import asyncio
import socket
import sys
from http import HTTPStatus

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from api.errors import problem
from api.wiring import Services
from context.errors import InputInvalidError, TooLargeError

# For an answer that is really being written; nothing that waits for a Run is left by then.
GRACEFUL_SHUTDOWN_S = 3
# Longer than clients keep an unused connection (httpx: 5 s), so that none is closed while a request is on its way.
KEEP_ALIVE_S = 75
LINGER_S = 2
LONGEST_HEAD = 64 << 10
HEAD_S = 30
"""From the first byte of a request to the last of its head; else a byte now and then keeps a connection for ever."""

NO_HTTP, HEAD_TOO_LATE, HEAD_TOO_LONG = 400, 408, 431
REFUSALS = {
    NO_HTTP: (InputInvalidError.code, "This is no valid HTTP request."),
    HEAD_TOO_LATE: (InputInvalidError.code, "The request line and headers did not come to their end in time."),
    HEAD_TOO_LONG: (
        TooLargeError.code,
        f"The request line and headers are longer than {LONGEST_HEAD >> 10} KiB together.",
    ),
}


class ProblemProtocol(H11Protocol):
    """HTTP whose own refusals are problem documents."""

    _is_refused = False
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # As after an answer: whoever says nothing at all is not waited for either.
        self.timeout_keep_alive_task = self.loop.call_later(KEEP_ALIVE_S, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._stop_head_timer()

    def data_received(self, data: bytes) -> None:
        if not self._is_refused:
            super().data_received(data)

    def handle_events(self) -> None:
        super().handle_events()
        if self.conn.their_state is not h11.IDLE or not self.conn.trailing_data[0]:
            self._stop_head_timer()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_S, self._refuse, HEAD_TOO_LATE)

    def send_400_response(self, msg: str) -> None:
        """Called while the error of the parser is handled."""
        hint = getattr(sys.exception(), "error_status_hint", NO_HTTP)
        self._refuse(hint if hint in REFUSALS else NO_HTTP)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self, status: int) -> None:
        """Answer and close; after an answer has begun there is nothing more to say."""
        if self.transport.is_closing() or self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()
            return
        self.transport.write(self._refusal(status))
        # Closed at once, with bytes of the client on their way, the connection would be reset, and the answer lost.
        self._is_refused = True
        self.transport.write_eof()
        self.loop.call_later(LINGER_S, self.transport.close)

    def _refusal(self, status: int) -> bytes:
        """A whole answer."""
        code, sentence = REFUSALS[status]
        answer = problem(status, code, sentence, headers={"Connection": "close"})
        head = h11.Response(status_code=status, headers=answer.raw_headers, reason=HTTPStatus(status).phrase.encode())
        parts = (head, h11.Data(data=bytes(answer.body)), h11.EndOfMessage())
        return b"".join(self.conn.send(part) or b"" for part in parts)


class ApiServer(uvicorn.Server):
    """A server of one application that is told to close when the server is."""

    def __init__(self, app: FastAPI, *, host: str, port: int) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                host=host,
                port=port,
                http=ProblemProtocol,
                ws="none",  # else a library that a tool brings would answer upgrades here
                h11_max_incomplete_event_size=LONGEST_HEAD,
                loop="none",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=GRACEFUL_SHUTDOWN_S,
                timeout_keep_alive=KEEP_ALIVE_S,
            )
        )
        self._services: Services = app.state.services

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._services.close_soon()
        await super().shutdown(sockets)

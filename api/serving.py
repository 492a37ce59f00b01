"""Serving the application, and ending it: streams and long polls are let go first, so that they hold nothing.

What is no HTTP, or has a head that is too long, reaches no application; the server's own answer to it is a problem
document too (SPEC E).
"""

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
HEAD_TOO_LONG = 431
LONG_HEAD = f"The request line and headers are longer than {LONGEST_HEAD >> 10} KiB together."
NO_HTTP = "This is no valid HTTP request."


class ProblemProtocol(H11Protocol):
    """HTTP whose own refusals are problem documents."""

    _is_refused = False

    def data_received(self, data: bytes) -> None:
        if not self._is_refused:
            super().data_received(data)

    def send_400_response(self, msg: str) -> None:
        """Called while the error of the parser is handled; after an answer has begun there is nothing more to say."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()
            return
        hint = getattr(sys.exception(), "error_status_hint", 400)
        self.transport.write(self._refusal(is_too_long=hint == HEAD_TOO_LONG))
        # Closed at once, with bytes of the client on their way, the connection would be reset, and the answer lost.
        self._is_refused = True
        self.transport.write_eof()
        self.loop.call_later(LINGER_S, self.transport.close)

    def _refusal(self, *, is_too_long: bool) -> bytes:
        """A whole answer."""
        code = TooLargeError.code if is_too_long else InputInvalidError.code
        status, sentence = (HEAD_TOO_LONG, LONG_HEAD) if is_too_long else (400, NO_HTTP)
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

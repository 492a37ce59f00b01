"""Serving the application, and ending it: streams and long polls are let go first, so that they hold nothing."""

import socket

import uvicorn
from fastapi import FastAPI

from api.wiring import Services

# For an answer that is really being written; nothing that waits for a Run is left by then.
GRACEFUL_SHUTDOWN_S = 3
# Longer than clients keep an unused connection (httpx: 5 s), so that none is closed while a request is on its way.
KEEP_ALIVE_S = 75


class ApiServer(uvicorn.Server):
    """A server of one application that is told to close when the server is."""

    def __init__(self, app: FastAPI, *, host: str, port: int) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                host=host,
                port=port,
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

"""Connections that notice whether the other side speaks HTTP, from its first bytes (SPEC L2).

Without it, an SSH banner or a database's greeting looks like a connection that broke off, which one would try again.
"""

import ssl
from typing import Any

import httpcore

from egress.errors import NotHttpError

_START = b"HTTP/"
_NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"})


class SpeakingStream(httpcore.AsyncNetworkStream):
    """Passes everything through; raises NotHttpError if what is read first can't begin an HTTP answer."""

    def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
        self._inner = inner
        self._is_new = True

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = await self._inner.read(max_bytes, timeout)
        if self._is_new and data[: len(_START)] != _START[: len(data)]:
            raise NotHttpError
        self._is_new = False
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        try:
            return SpeakingStream(await self._inner.start_tls(ssl_context, server_hostname, timeout))
        except httpcore.ConnectError as error:
            if isinstance(error.__cause__, ssl.SSLError) and error.__cause__.reason in _NOT_TLS:
                raise NotHttpError from None
            raise

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)

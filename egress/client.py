"""The guarded HTTP client for providers, tools and hooks: checked addresses, bounded answers, no redirects, no retries.

Proxies and certificates from the environment are not used, and no cookie is kept: one client serves all spaces. The
client follows no redirect: a 3xx answer is handed to the caller, who refuses it. It never interprets an answer.
"""

import ssl
from collections.abc import AsyncIterator, Iterable
from http.cookiejar import CookieJar, DefaultCookiePolicy

import httpcore
import httpx

from egress.addresses import PrivateAddresses
from egress.certificates import bundled_authorities, is_untrusted
from egress.dialling import dial_first, permitted_addresses
from egress.errors import (
    AddressRefusedError,
    AnswerEncodedError,
    AnswerTooLargeError,
    CertificateUntrustedError,
    HostUnknownError,
)
from egress.limits import EgressLimits, has_readable_encoding
from egress.speaking import SpeakingStream

SocketOptions = Iterable[tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]]


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """Dials judged addresses only; local sockets are refused."""

    def __init__(self, *, private: PrivateAddresses) -> None:
        self._private = private
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: SocketOptions | None = None,
    ) -> httpcore.AsyncNetworkStream:
        async def connect(address: str) -> httpcore.AsyncNetworkStream:
            stream = await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
            return SpeakingStream(stream)

        try:
            addresses = await permitted_addresses(host, port, private=self._private, timeout_s=timeout)
        except OSError:
            raise HostUnknownError("the host name does not resolve") from None
        return await dial_first(addresses, connect, unreachable=(httpcore.ConnectError, httpcore.ConnectTimeout))

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: SocketOptions | None = None
    ) -> httpcore.AsyncNetworkStream:
        raise AddressRefusedError

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


class BoundedStream(httpx.AsyncByteStream):
    """Passes an answer through until it grows over its limit, then fails."""

    def __init__(self, inner: httpx.AsyncByteStream, *, limit: int) -> None:
        self._inner = inner
        self._left = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._inner:
            self._left -= len(piece)
            if self._left < 0:
                raise AnswerTooLargeError
            yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()


class GuardedTransport(httpx.AsyncHTTPTransport):
    """An httpx transport whose connections go through `GuardedBackend` and whose answers are bounded."""

    def __init__(
        self, *, limits: EgressLimits, private_addresses: PrivateAddresses, verify: ssl.SSLContext | None = None
    ) -> None:
        context = verify or bundled_authorities()
        super().__init__(verify=context, trust_env=False, retries=0)
        self._max_answer_bytes = limits.max_answer_bytes
        # httpx has no parameter for the network backend, so its pool is replaced by one that dials through the guard.
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=context,
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_connections,
            keepalive_expiry=30,
            retries=0,
            network_backend=GuardedBackend(private=private_addresses),
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.scheme not in ("http", "https"):
            raise AddressRefusedError
        try:
            response = await super().handle_async_request(request)
        except httpx.ConnectError as error:
            if is_untrusted(error):
                raise CertificateUntrustedError from None
            raise
        if not has_readable_encoding(response.headers.get("content-encoding")):
            await response.aclose()
            raise AnswerEncodedError(response.status_code)
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = BoundedStream(response.stream, limit=self._max_answer_bytes)
        return response


def build_client(
    *,
    limits: EgressLimits | None = None,
    private_addresses: PrivateAddresses = "none",
    verify: ssl.SSLContext | None = None,
) -> httpx.AsyncClient:
    """The guarded client. `verify` replaces the bundled certificate authorities, for servers with their own.

    Raises AddressRefusedError, CertificateUntrustedError, AnswerTooLargeError and AnswerEncodedError where the guard
    stops a call, and httpx's own errors where the network does.
    """
    limits = limits or EgressLimits()
    return httpx.AsyncClient(
        transport=GuardedTransport(limits=limits, private_addresses=private_addresses, verify=verify),
        trust_env=False,
        follow_redirects=False,
        timeout=httpx.Timeout(connect=limits.connect_s, read=limits.read_s, write=limits.write_s, pool=limits.pool_s),
        headers={"accept-encoding": "identity", "user-agent": "agentloom"},
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
    )

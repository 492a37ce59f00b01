"""The same guard for the MCP SDK, which speaks through `httpx2`. Redirects end in an error here, because the SDK would
otherwise follow them itself; everything else is as in `egress.client`.

An error that the SDK meets while it makes one request ends the connection for all others. So a request can be
contained: what fails then is kept with the request, and the SDK gets an answer that fails this request alone.
"""

import ssl
from collections.abc import AsyncIterator, Iterable, Mapping

import httpcore2
import httpx2

from egress.addresses import PrivateAddresses
from egress.certificates import bundled_authorities, is_untrusted
from egress.dialling import dial_first, permitted_addresses
from egress.errors import (
    AddressRefusedError,
    AnswerEncodedError,
    AnswerTooLargeError,
    CertificateUntrustedError,
    EgressError,
    RedirectRefusedError,
)
from egress.limits import REDIRECTS, EgressLimits, has_readable_encoding

SocketOptions = Iterable[tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]]

Failure = EgressError | httpx2.TransportError
_FAILURE = "agentloom.failure"
_CONTAINED = "agentloom.contained"
_READ = "agentloom.read"
_STAND_IN_STATUS = 502


class AnswerBrokenError(httpx2.StreamError):
    """The body of a contained request's answer ended too early; of this kind the SDK makes that request's failure."""

    def __init__(self) -> None:
        super().__init__("the answer broke off")


def contain(request: httpx2.Request) -> None:
    """From here on a failure of this request is its own."""
    request.extensions[_CONTAINED] = True


def allow_silence(request: httpx2.Request, seconds: float) -> None:
    """Wait at least this long for each piece of the answer to this request."""
    limits = request.extensions.get("timeout", {})
    if (read_s := limits.get("read")) is not None:
        request.extensions["timeout"] = limits | {"read": max(read_s, seconds)}


def failure_of(request: httpx2.Request) -> Failure | None:
    """What the guard refused of this request or its answer, or how the network failed it; the SDK keeps that."""
    failure = request.extensions.get(_FAILURE)
    return failure if isinstance(failure, Failure) else None


def is_read_to_its_end(request: httpx2.Request) -> bool:
    """Whether the whole answer to this request was read; a reader of events stops at the one it waits for."""
    return bool(request.extensions.get(_READ))


def _note(failure: Failure, request: httpx2.Request) -> bool:
    """Keeps the failure with the request; whether it is contained there."""
    request.extensions[_FAILURE] = failure
    return bool(request.extensions.get(_CONTAINED))


class GuardedMcpBackend(httpcore2.AsyncNetworkBackend):
    """Dials judged addresses only; local sockets are refused."""

    def __init__(self, *, private: PrivateAddresses) -> None:
        self._private = private
        self._inner = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: SocketOptions | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        async def connect(address: str) -> httpcore2.AsyncNetworkStream:
            return await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)

        try:
            addresses = await permitted_addresses(host, port, private=self._private, timeout_s=timeout)
        except OSError:
            raise httpcore2.ConnectError("the host name does not resolve") from None
        return await dial_first(addresses, connect, unreachable=(httpcore2.ConnectError, httpcore2.ConnectTimeout))

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: SocketOptions | None = None
    ) -> httpcore2.AsyncNetworkStream:
        raise AddressRefusedError

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


class BoundedMcpStream(httpx2.AsyncByteStream):
    """Passes an answer through until it grows over its limit, then fails; it keeps with the request how it failed."""

    def __init__(self, inner: httpx2.AsyncByteStream, *, limit: int, request: httpx2.Request) -> None:
        self._inner = inner
        self._left = limit
        self._request = request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._inner:
                self._left -= len(piece)
                if self._left < 0:
                    raise AnswerTooLargeError
                yield piece
            self._request.extensions[_READ] = True
        except (EgressError, httpx2.TransportError) as failure:
            if _note(failure, self._request):
                raise AnswerBrokenError from None
            raise

    async def aclose(self) -> None:
        await self._inner.aclose()


class GuardedMcpTransport(httpx2.AsyncHTTPTransport):
    """An httpx2 transport whose connections go through the guard; a redirect is an error.

    A contained request that fails is answered by a 502 without a body, which `failure_of` tells from a server's.
    """

    def __init__(
        self, *, limits: EgressLimits, private_addresses: PrivateAddresses, verify: ssl.SSLContext | None = None
    ) -> None:
        context = verify or bundled_authorities()
        super().__init__(verify=context, trust_env=False, retries=0)
        self._max_answer_bytes = limits.max_answer_bytes
        # As in egress.client: the pool is replaced by one that dials through the guard.
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=context,
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_connections,
            keepalive_expiry=30,
            retries=0,
            network_backend=GuardedMcpBackend(private=private_addresses),
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            return await self._guarded(request)
        except (EgressError, httpx2.TransportError) as failure:
            if _note(failure, request):
                return httpx2.Response(_STAND_IN_STATUS, request=request)
            raise

    async def _guarded(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.scheme not in ("http", "https"):
            raise AddressRefusedError
        try:
            response = await super().handle_async_request(request)
        except httpx2.ConnectError as error:
            if is_untrusted(error):
                raise CertificateUntrustedError from None
            raise
        if refusal := _refusal(response):
            await response.aclose()
            raise refusal
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = BoundedMcpStream(response.stream, limit=self._max_answer_bytes, request=request)
        return response


def _refusal(response: httpx2.Response) -> RedirectRefusedError | AnswerEncodedError | None:
    if response.status_code in REDIRECTS:
        return RedirectRefusedError()
    if not has_readable_encoding(response.headers.get("content-encoding")):
        return AnswerEncodedError()
    return None


def build_mcp_http_client(
    *,
    limits: EgressLimits | None = None,
    private_addresses: PrivateAddresses = "none",
    headers: Mapping[str, str] | None = None,
    verify: ssl.SSLContext | None = None,
) -> httpx2.AsyncClient:
    """The guarded client for the SDK's `streamable_http_client(http_client=...)`. `headers` go with each request."""
    limits = limits or EgressLimits()
    own = {"accept-encoding": "identity", "user-agent": "agentloom"}
    return httpx2.AsyncClient(
        transport=GuardedMcpTransport(limits=limits, private_addresses=private_addresses, verify=verify),
        trust_env=False,
        follow_redirects=False,
        timeout=httpx2.Timeout(connect=limits.connect_s, read=limits.read_s, write=limits.write_s, pool=limits.pool_s),
        headers={**own, **(headers or {})},
    )

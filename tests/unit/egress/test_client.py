"""The guarded clients against real sockets, for httpx and for the MCP SDK's httpx2 alike."""

import asyncio
import gzip
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import httpx2
import pytest

from egress.addresses import PrivateAddresses
from egress.client import build_client
from egress.errors import (
    AddressRefusedError,
    AnswerEncodedError,
    AnswerTooLargeError,
    CertificateUntrustedError,
    RedirectRefusedError,
)
from egress.limits import EgressLimits
from egress.mcp import build_mcp_http_client
from tests.support.certificates import tls_server
from tests.support.model_server import ModelServer
from tests.support.replies import Reply, body, raw

Fetch = Callable[..., Awaitable[tuple[int, bytes]]]


async def fetch_with_httpx(
    url: str, private: PrivateAddresses, limits: EgressLimits | None = None
) -> tuple[int, bytes]:
    async with build_client(private_addresses=private, limits=limits) as client:
        response = await client.get(url)
        return response.status_code, response.content


async def fetch_with_httpx2(
    url: str, private: PrivateAddresses, limits: EgressLimits | None = None
) -> tuple[int, bytes]:
    async with build_mcp_http_client(private_addresses=private, limits=limits) as client:
        response = await client.get(url)
        return response.status_code, response.content


both = pytest.mark.parametrize("fetch", [fetch_with_httpx, fetch_with_httpx2])


@both
async def test_a_loopback_server_is_reached_only_with_leave(fetch: Fetch) -> None:
    """SPEC Y4."""
    async with ModelServer([body("yes"), body("no")]) as server:
        assert await fetch(server.base_url, "loopback") == (200, b"yes")
        with pytest.raises(AddressRefusedError):
            await fetch(server.base_url, "none")
        assert len(server.requests) == 1


@both
@pytest.mark.parametrize("host", ["localhost", "127.1", "2130706433", "0x7f.0.0.1", "[::ffff:127.0.0.1]", "0.0.0.0"])
async def test_no_spelling_of_loopback_gets_past_the_guard(fetch: Fetch, host: str) -> None:
    """SPEC Y4: what counts is what a name resolves to."""
    async with ModelServer([body("no")]) as server:
        with pytest.raises(AddressRefusedError):
            await fetch(f"http://{host}:{server.port}/", "none")
        assert server.requests == []


@both
async def test_a_name_that_changes_its_address_after_the_check_reaches_nothing(
    fetch: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC Y4: the checked address is dialled, not the name again (DNS rebinding)."""
    answers = iter(["93.184.216.34", "127.0.0.1"])
    asked: list[str] = []
    dialled: list[str] = []

    def resolve(host: str, port: int, *_: object, **__: object) -> list[tuple[object, ...]]:
        asked.append(host)
        address = next(answers) if host == "rebind.test" else host
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    async def connect(self: object, sock: socket.socket, address: tuple[str, int]) -> None:
        dialled.append(address[0])
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_connect", connect)
    with pytest.raises((httpx.ConnectError, httpx2.ConnectError)):
        await fetch("http://rebind.test/", "none")
    assert asked.count("rebind.test") == 1
    assert set(dialled) == {"93.184.216.34"}


@both
async def test_an_answer_over_the_limit_is_cut_off(fetch: Fetch) -> None:
    """SPEC Y4: size limit, whatever the headers promise."""
    async with ModelServer([body(b"x" * 10_000), body(b"x" * 10_001)]) as server:
        limits = EgressLimits(max_answer_bytes=10_000)
        assert len((await fetch(server.base_url, "loopback", limits))[1]) == 10_000
        with pytest.raises(AnswerTooLargeError):
            await fetch(server.base_url, "loopback", limits)


@both
async def test_a_compressed_answer_is_refused(fetch: Fetch) -> None:
    """SPEC Y4: a small answer can't unfold into a large one."""
    packed = gzip.compress(b"0" * 10_000_000)
    async with ModelServer([body(packed, headers=[("content-encoding", "gzip")])]) as server:
        with pytest.raises(AnswerEncodedError):
            await fetch(server.base_url, "loopback")
        assert server.requests[0].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_never_followed(status: int) -> None:
    """Case 107: the target of a redirect gets no request."""
    async with ModelServer([body("stolen")]) as target:
        answer = body("", status=status, headers=[("location", target.base_url)])
        async with ModelServer([answer, answer]) as server:
            assert (await fetch_with_httpx(server.base_url, "loopback"))[0] == status
            with pytest.raises(RedirectRefusedError):
                await fetch_with_httpx2(server.base_url, "loopback")
        assert target.requests == []


@both
async def test_a_proxy_of_the_environment_is_not_used(fetch: Fetch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case 107."""
    async with ModelServer([body("proxied")]) as proxy, ModelServer([body("direct")]) as server:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert await fetch(server.base_url, "loopback") == (200, b"direct")
        assert proxy.requests == []


@both
@pytest.mark.parametrize("url", ["ftp://127.0.0.1/x", "file:///etc/passwd", "ws://127.0.0.1/x"])
async def test_other_schemes_are_refused(fetch: Fetch, url: str) -> None:
    """SPEC Y4."""
    with pytest.raises((AddressRefusedError, httpx.UnsupportedProtocol, httpx2.UnsupportedProtocol)):
        await fetch(url, "all")


@both
async def test_a_silent_server_is_given_up_after_the_read_limit(fetch: Fetch) -> None:
    """SPEC Y4: time limit."""
    async with ModelServer([raw(b"").but(hold="never")]) as server:
        with pytest.raises((httpx.ReadTimeout, httpx2.ReadTimeout)):
            await fetch(server.base_url, "loopback", EgressLimits(read_s=0.1))


@both
async def test_a_failed_connection_is_not_tried_again(fetch: Fetch) -> None:
    """DESIGN 8: retries belong to the caller."""
    async with ModelServer([Reply(pieces=(b"part",), break_after=2), body("second")]) as server:
        with pytest.raises((httpx.RemoteProtocolError, httpx2.RemoteProtocolError, httpx.ReadError, httpx2.ReadError)):
            await fetch(server.base_url, "loopback")
        assert len(server.requests) == 1


@both
async def test_a_name_that_does_not_resolve_is_a_network_error(fetch: Fetch) -> None:
    """SPEC L2: the network is retried, the guard's verdict is not."""
    with pytest.raises((httpx.ConnectError, httpx2.ConnectError)):
        await fetch("http://no-such-host.invalid/", "all")


async def test_tls_is_checked_against_the_name_although_an_address_is_dialled(tmp_path: Path) -> None:
    """SPEC Y4: server name and Host header are the URL's."""
    async with tls_server(tmp_path) as server:
        trusting = ssl.create_default_context(cafile=str(server.certificate))
        async with build_client(private_addresses="loopback", verify=trusting) as client:
            assert (await client.get(server.url)).text == "ok"
            assert f"Host: localhost:{server.port}".encode() in server.heard[0]
            with pytest.raises(CertificateUntrustedError):
                await client.get(f"https://127.0.0.1:{server.port}/")
        assert len(server.heard) == 1


@both
async def test_a_certificate_that_is_not_trusted_is_refused_by_name_and_nothing_is_sent(
    fetch: Fetch, tmp_path: Path
) -> None:
    """SPEC L2, Y4, Y6: told from a network that failed, without a word of the certificate's."""
    async with tls_server(tmp_path) as server:
        with pytest.raises(CertificateUntrustedError) as refused:
            await fetch(server.url, "loopback")
        assert server.heard == []
    assert refused.value.__cause__ is None
    assert "localhost" not in refused.value.message

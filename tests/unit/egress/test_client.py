"""The guarded clients against real sockets, for httpx and for the MCP SDK's httpx2 alike."""

import asyncio
import datetime
import gzip
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from egress.addresses import PrivateAddresses
from egress.client import build_client
from egress.errors import AddressRefusedError, AnswerEncodedError, AnswerTooLargeError, RedirectRefusedError
from egress.limits import EgressLimits
from egress.mcp import build_mcp_http_client
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
    certificate, key = _certificate_for("localhost", tmp_path)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate, key)
    heard: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=serving)
    port = server.sockets[0].getsockname()[1]
    trusting = ssl.create_default_context(cafile=str(certificate))
    async with server, build_client(private_addresses="loopback", verify=trusting) as client:
        response = await client.get(f"https://localhost:{port}/")
        assert response.text == "ok"
        assert f"Host: localhost:{port}".encode() in heard[0]
        with pytest.raises(httpx.ConnectError):
            await client.get(f"https://127.0.0.1:{port}/")


def _certificate_for(name: str, folder: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate_file, key_file = folder / "certificate.pem", folder / "key.pem"
    certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return certificate_file, key_file

"""Servers that break HTTP itself, over real sockets: each is a failure by name, soon, with nothing of what was said.

What servers do wrong within a proper answer is in `test_reading.py` and `test_chat.py`.
"""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from context.errors import ModelCallError
from egress.client import build_client
from egress.limits import EgressLimits
from providers.chat import ChatClient, CompletedCall, ModelTarget
from providers.errors import BrokenStreamError
from tests.support.certificates import tls_server

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

MARK = b"planted-marker"
WHOLE = json.dumps({"choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}]}).encode()
DELTA = b'data: {"choices":[{"delta":{"content":"hel"}}]}\n\n'
FINISH = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
LIMITS = EgressLimits(connect_s=1, write_s=1, pool_s=1, max_answer_bytes=200_000)


@asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[str]:
    """The address of a server that does this with each connection."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except ConnectionError:
            pass  # the client had enough
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()


async def nothing() -> None:
    """No evidence is kept."""


async def call(address: str, *, idle_timeout_s: float = 0.5, body: bytes = b"{}") -> CompletedCall:
    """One attempt, which must be over within seconds whatever the server does."""
    to = ModelTarget(address, None, idle_timeout_s=idle_timeout_s)
    async with asyncio.timeout(8), build_client(private_addresses="loopback", limits=LIMITS) as http:
        return await ChatClient(http).complete(to, body, on_first_output=nothing, on_bytes=lambda: None)


async def failure(serve: Serve, **options: float | bytes) -> ModelCallError:
    """How the attempt at this server failed; the error holds none of its words."""
    async with serving(serve) as address:
        with pytest.raises(ModelCallError) as caught:
            await call(address, **options)  # type: ignore[arg-type]
    error = caught.value
    assert MARK.decode() not in f"{error!r} {error.numbers} {error.__cause__!r} {error.__context__!r}"
    return error


def answering(*pieces: bytes, pause_s: float = 0, reset: bool = False, hold_s: float = 0) -> Serve:
    """Reads the request, then writes these bytes; `reset` ends the connection with RST."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause_s)
        await asyncio.sleep(hold_s)
        if reset:
            writer.transport.abort()

    return serve


def http(status: str, body: bytes, *headers: str, length: int | None = None) -> bytes:
    """An answer as bytes."""
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body) if length is None else length}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def endless(piece: bytes, head: bytes, *, pause_s: float = 0) -> Serve:
    """Writes a head and then the same piece for ever."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head)
        while True:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause_s)

    return serve


STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
UNREADABLE = [
    answering(reset=True),
    answering(b"HTTP"),
    answering(STREAM),
    answering(b"HTTP/1.1 2", reset=True),
    answering(b"HTTP/1.1 999999 " + MARK + b"\r\n\r\n"),
    answering(b"HTTP/1.1 200 OK\r\nx: " + MARK, reset=True),
    answering(b"HTTP/1.1 200 OK\r\nx: " + MARK * 20_000 + b"\r\n\r\n"),
    answering(b"HTTP/1.1 200 OK\r\ncontent-length: " + MARK + b"\r\n\r\n"),
    answering(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n" + MARK),
    answering(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nff\r\n" + WHOLE[:20]),
    answering(http("200 OK", WHOLE[:30], length=len(WHOLE))),
    answering(http("200 OK", WHOLE, length=len(WHOLE) + 1)),
    answering(http("200 OK", WHOLE[:30])),
    answering(http("200 OK", WHOLE[:30], length=len(WHOLE)), reset=True),
    answering(http("200 OK", b"\xff\xfe" + MARK)),
    answering(http("200 OK", b'{"choices":[{"message":{"content":"\xff"}}]}')),
    answering(http("200 OK", b"data: \xff\xff\n\n", "content-type: text/event-stream")),
    answering(http("200 OK", b"[" * 100_000, "content-type: application/json")),
    answering(http("200 OK", b'{"choices":[{"message":{"content":NaN}}]}')),
    answering(http("200 OK", b'{"choices":[]}')),
    answering(http("200 OK", b'{"choices":[null]}')),
    answering(http("200 OK", b'{"error":{"code":"' + b"9" * 5_000 + b'"}}')),
    answering(http("200 OK", b'{"usage":{"prompt_tokens":' + b"9" * 5_000 + b"}}")),
    answering(hold_s=5),
    answering(STREAM, hold_s=5),
    answering(STREAM + DELTA, hold_s=5),
    answering(STREAM + DELTA, reset=True),
    endless(b"x", b"HTTP/1.1 200 OK\r\nx: ", pause_s=0.05),
    endless(b"HTTP/1.1 100 Continue\r\n\r\n", b"", pause_s=0.05),
]


@pytest.mark.parametrize("serve", UNREADABLE, ids=[str(number) for number in range(len(UNREADABLE))])
async def test_an_answer_that_is_none_may_be_tried_again(serve: Serve) -> None:
    """SPEC L1, L2, Y6: broken lines, cut bodies, silence, heads that never end; within seconds, and by name."""
    error = await failure(serve)
    assert (error.reason, error.retryable) == ("model_unavailable", True)


NO_API = [
    answering(MARK),
    answering(b"SSH-2.0-" + MARK + b"\r\n", hold_s=0.1),
    answering(http("200 OK", b"<!doctype html><title>" + MARK, "content-type: text/html")),
    answering(http("200 OK", b"\xef\xbb\xbf\r\n <html>" + MARK)),
    endless(MARK, b"HTTP/1.1 200 OK\r\n\r\n<html>"),
    answering(http("405 Method Not Allowed", b"<html>" + MARK)),
    answering(http("400 Bad Request", b"<html>The plain HTTP request was sent to HTTPS port " + MARK)),
    answering(b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"),
]


@pytest.mark.parametrize("serve", NO_API, ids=[str(number) for number in range(len(NO_API))])
async def test_what_is_no_model_api_is_not_asked_again(serve: Serve) -> None:
    """SPEC L2, Y6: a web page, another protocol, TLS where there is none or none where there is: none of it clears."""
    error = await failure(serve)
    assert (error.reason, error.retryable) == ("model_no_api", False)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 204 No Content\r\n\r\n", http("200 OK", b""), http("200 OK", b" \n")])
async def test_an_empty_answer_may_clear_and_else_means_the_address(answer: bytes) -> None:
    """SPEC L2: tried again; if it never clears, the reason is the address."""
    error = await failure(answering(answer))
    assert (error.reason, error.retryable) == ("model_no_api", True)


async def test_tls_to_a_server_without_it_is_a_wrong_address() -> None:
    """SPEC L2: https where http is spoken."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()

    async with serving(serve) as address:
        with pytest.raises(ModelCallError) as caught:
            await call(address.replace("http:", "https:"))
    assert (caught.value.reason, caught.value.retryable) == ("model_no_api", False)


async def test_a_certificate_that_is_not_trusted_is_not_asked_again(tmp_path: Path) -> None:
    """SPEC L2, S2, Y6: somebody has to act; nothing was sent."""
    async with tls_server(tmp_path) as server:
        with pytest.raises(ModelCallError) as caught:
            await call(server.url)
        assert server.heard == []
    error = caught.value
    assert (error.reason, error.retryable) == ("model_certificate_untrusted", False)
    assert "localhost" not in f"{error!r} {error.numbers} {error.__cause__!r} {error.__context__!r}"


async def test_a_host_that_does_not_resolve_may_be_misspelt_or_come_back() -> None:
    """SPEC L2: name services fail for moments, so it is tried again; the reason names what to look at."""
    with pytest.raises(ModelCallError) as caught:
        await call("http://nowhere.invalid/v1")
    assert (caught.value.reason, caught.value.retryable) == ("model_host_unknown", True)


async def test_a_break_after_the_first_output_is_told_apart() -> None:
    """SPEC L2: with what had come."""
    error = await failure(answering(STREAM + DELTA, reset=True))
    assert isinstance(error, BrokenStreamError)
    assert error.fragment is not None
    assert error.fragment.content == "hel"


BOMB = gzip.compress(b"0" * 50_000_000)
REFUSED = [
    answering(http("200 OK", BOMB, "content-encoding: gzip")),
    answering(http("200 OK", WHOLE, "content-encoding: br")),
    answering(http("200 OK", WHOLE, "content-encoding: identity, gzip")),
    endless(DELTA, STREAM),
    endless(b": keep-alive\n\n", STREAM),
    endless(b"{" * 1_000, b"HTTP/1.1 200 OK\r\n\r\n"),
]


@pytest.mark.parametrize("serve", REFUSED, ids=[str(number) for number in range(len(REFUSED))])
async def test_an_answer_beyond_all_bounds_is_not_asked_for_again(serve: Serve) -> None:
    """SPEC Y4: compressed ones can't be bounded, endless ones are."""
    error = await failure(serve, idle_timeout_s=5)
    assert (error.reason, error.retryable) == ("model_answer_refused", False)


@pytest.mark.parametrize(
    ("serve", "reason"),
    [
        (answering(http("401 Unauthorized", MARK, length=5_000)), "model_auth"),
        (answering(http("401 Unauthorized", MARK, length=5_000), reset=True), "model_auth"),
        (answering(http("402 Payment Required", gzip.compress(MARK), "content-encoding: gzip")), "model_quota"),
        (endless(b" ", b"HTTP/1.1 404 Not Found\r\n\r\n", pause_s=0.02), "model_not_found"),
        (endless(MARK * 1_000, b"HTTP/1.1 401 No\r\n\r\n"), "model_auth"),
        (answering(http("302 Found", b"", "location: http://127.0.0.1:1/")), "model_redirected"),
        (answering(http("302 Found", BOMB, "content-encoding: gzip")), "model_redirected"),
        (answering(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n", http("403 Forbidden", b"")), "model_auth"),
        (answering(http("400 Bad", b'{"error":{"code":"' + b"9" * 5_000 + b'"}}')), "model_rejected"),
    ],
)
async def test_the_status_decides_even_if_the_body_never_comes(serve: Serve, reason: str) -> None:
    """SPEC L2: what can't clear is not tried again because its explanation broke off."""
    error = await failure(serve)
    assert (error.reason, error.retryable) == (reason, False)


async def test_an_early_refusal_of_a_large_request_is_heard() -> None:
    """SPEC B7, L2: the server answers 413 before it has read everything, and reads on without looking."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(http("413 Payload Too Large", b"", "connection: close"))
        await writer.drain()
        while await reader.read(1 << 20):
            pass

    error = await failure(serve, body=b"x" * 8_000_000)
    assert (error.reason, error.retryable) == ("context_length", False)


async def test_a_server_that_does_not_read_is_given_up() -> None:
    """SPEC L2: the request itself has a time limit."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(6)

    error = await failure(serve, body=b"x" * 30_000_000)
    assert (error.reason, error.retryable) == ("model_unavailable", True)


READABLE = [
    answering(b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n", http("200 OK", WHOLE)),
    answering(http("201 Created", WHOLE)),
    answering(http("200 OK", WHOLE, "content-type: text/html; charset=latin-1")),
    answering(http("200 OK", WHOLE, "content-encoding: identity")),
    answering(b"HTTP/1.0 200 OK\r\n\r\n", WHOLE),
    answering(*(bytes([byte]) for byte in http("200 OK", WHOLE)), pause_s=0.001),
    answering(STREAM + DELTA + DELTA.replace(b"hel", b"lo") + FINISH, reset=True),
    answering(STREAM + DELTA + DELTA.replace(b"hel", b"lo") + FINISH, hold_s=5),
    endless(b": still here\n\n", STREAM + DELTA + DELTA.replace(b"hel", b"lo") + FINISH, pause_s=0.02),
    endless(b"x" * 1_000, STREAM + DELTA + DELTA.replace(b"hel", b"lo") + FINISH + b"data: [DONE]\n\n"),
]


@pytest.mark.parametrize("serve", READABLE, ids=[str(number) for number in range(len(READABLE))])
async def test_an_answer_is_taken_however_oddly_it_comes(serve: Serve) -> None:
    """SPEC L1: informational answers, odd types, byte by byte, no end after the finish reason."""
    async with serving(serve) as address:
        assert (await call(address)).reply.content == "hello"


@pytest.mark.parametrize("host", ["a" * 64 + ".test", "a..b", "xn--" + "a" * 300, "[::1%25lo]", "0x7f.1"])
async def test_a_host_that_no_name_server_can_know_is_a_failure_by_name(host: str) -> None:
    """SPEC L2: nothing raises but by name."""
    with pytest.raises(ModelCallError):
        await call(f"http://{host}:1/v1")


async def test_a_cookie_of_one_call_is_sent_with_no_other() -> None:
    """SPEC Y4, Y1: one client serves all spaces; what a server wants to remember of one is nobody's business."""
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(http("200 OK", WHOLE, "set-cookie: who=ann; path=/", "connection: close"))
        await writer.drain()

    async with serving(serve) as address, build_client(private_addresses="loopback") as client:
        for _ in range(2):
            assert (await client.post(address, json={})).status_code == 200
        assert dict(client.cookies) == {}
    assert b"cookie" not in heads[1].lower()


async def test_the_guard_itself_fails_by_httpx_names_for_an_impossible_host() -> None:
    """SPEC Y4: HTTP tools and discovery name it too."""
    async with build_client(private_addresses="loopback") as client:
        with pytest.raises(httpx.ConnectError):
            await client.get("http://a..b:1/")

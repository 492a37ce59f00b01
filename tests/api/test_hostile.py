"""Bytes that no honest client sends: never a 500, nothing of them in an answer or a log, nothing stored (Y5, Y6)."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from api import serving
from api.errors import PROBLEM_MEDIA_TYPE
from storage.store import Store
from tests.api.conftest import DEFINITION, Person, asked, opened
from tests.api.test_bad_requests import MARK, check_problem
from tests.integration.storage.world import count

MARKED = MARK.encode()
JSON_HEADER = {"Content-Type": "application/json"}


async def answered(address: str, request: bytes) -> bytes:
    """All that comes back for the bytes of one request on a connection of its own."""
    where = urlsplit(address)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    try:
        writer.write(request)
        await writer.drain()
        return await asyncio.wait_for(reader.read(), timeout=20)
    finally:
        writer.close()


def request(line: str, *headers: bytes, key: str, body: bytes = b"") -> bytes:
    """One request with a key, whatever its first line; the server closes behind it."""
    own = [b"Host: here", b"Connection: close", b"Authorization: Bearer " + key.encode()]
    return line.encode("latin-1") + b" HTTP/1.1\r\n" + b"\r\n".join([*own, *headers]) + b"\r\n\r\n" + body


LINES: dict[str, tuple[str, set[int]]] = {
    "HEAD": ("HEAD /api/v1/sessions", {405}),
    "OPTIONS": ("OPTIONS /api/v1/sessions", {405}),
    "OPTIONS of everything": ("OPTIONS *", {400, 404, 405}),
    "TRACE": ("TRACE /api/v1/sessions", {400, 405}),
    "a method of their own": (f"{MARK.upper()} /api/v1/sessions", {400, 405}),
    "CONNECT": ("CONNECT here:443", {400, 404, 405}),
    "a whole address": ("GET http://elsewhere.example/api/v1/usage", {200, 400, 404}),
    "two slashes": (f"GET //{MARK}.example/api/v1/sessions", {404}),
    "a slash at the end": ("GET /api/v1/sessions/", {404}),
    "dots": ("GET /api/v1/agents/../sessions", {404}),
    "dots in disguise": ("GET /api/v1/agents/%2e%2e/sessions", {404}),
    "a slash in a name": (f"GET /api/v1/agents/{MARK}%2fb", {404}),
    "NUL in a name": (f"GET /api/v1/agents/{MARK}%00", {404}),
    "no UTF-8 in a name": (f"GET /api/v1/agents/{MARK}%ff", {404}),
    "an upgrade": ("GET /api/v1/nothing HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: websocket\r\nX: x", {404}),
    "half an escape": (f"GET /api/v1/agents/{MARK}%f", {404}),
    "a line break in a name": (f"GET /api/v1/agents/{MARK}%0d%0aX:y", {404}),
    "a path of 30 000 characters": ("GET /api/v1/agents/" + MARK * 2_000, {400, 404, 414, 422, 431}),
    "no UTF-8 in a parameter": (f"GET /api/v1/sessions?limit=%ff{MARK}", {422}),
    "NUL in a parameter": (f"GET /api/v1/sessions?cursor={MARK}%00", {422}),
    "a parameter without a name": (f"GET /api/v1/sessions?={MARK}", {422}),
    "a thousand parameters": ("GET /api/v1/sessions?" + f"limit={MARK}&" * 1_000, {422}),
    "a number beyond numbers": ("GET /api/v1/sessions?limit=1e400", {422}),
    "seconds beyond numbers": ("GET /api/v1/runs/00000000-0000-0000-0000-000000000001?wait_s=1e400", {422}),
    "another script's digits": ("GET /api/v1/sessions?limit=%D9%A5", {422}),
    "raw bytes": (f"GET /api/v1/agents/{MARK}\xff\xfe", {400, 404}),
    "a line without a method": (MARK, {400}),
    "a path of 30 000 characters of another script": ("GET /api/v1/agents/" + "%e4%bd%a0" * 3_333, {404}),
}


@pytest.fixture
async def quiet(caplog: pytest.LogCaptureFixture) -> AsyncIterator[None]:
    """At the end no log line was an error, and none held the marker."""
    caplog.set_level(logging.INFO)
    yield
    told = [f"{one.name} {one.levelname} {one.getMessage()} {one.exc_text or ''}" for one in caplog.records]
    assert not [line for line in told if MARK in line or MARK.upper() in line]
    assert not [line for line in told if " ERROR " in line or " CRITICAL " in line]


def check(answer: bytes, statuses: set[int]) -> None:
    """A whole answer with one of the statuses, which repeats nothing of what was sent."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head, "the connection was closed without an answer"
    status = int(head.split(b" ", 2)[1])
    assert status in statuses, answer[:300]
    assert MARKED not in answer.lower()
    if status >= 400:
        assert PROBLEM_MEDIA_TYPE.encode() in head, answer[:300]
        if body:  # not of HEAD
            assert json.loads(body)["code"], answer[:300]


@pytest.mark.usefixtures("quiet")
async def test_a_strange_first_line_is_answered_and_not_repeated(
    ann: Person, address: str, subtests: pytest.Subtests
) -> None:
    """Y5, Y6."""
    for case, (line, statuses) in LINES.items():
        with subtests.test(case):
            check(await answered(address, request(line, key=ann.key)), statuses)


JSON = b"Content-Type: application/json"
BODY = b'{"text": "planted-marker"}'
LENGTH = b"Content-Length: %d" % len(BODY)

FRAMES: dict[str, tuple[list[bytes], bytes, set[int]]] = {
    "two lengths": ([JSON, LENGTH, b"Content-Length: 3"], BODY, {400}),
    "a length and pieces": ([JSON, b"Content-Length: 3", b"Transfer-Encoding: chunked"], b"0\r\n\r\n", {400, 422}),
    "a negative length": ([JSON, b"Content-Length: -5"], BODY, {400}),
    "a length beyond numbers": ([JSON, b"Content-Length: 1e400"], BODY, {400}),
    "pieces of no size": ([JSON, b"Transfer-Encoding: chunked"], b"planted-marker\r\n", {400}),
    "a header without a colon": ([JSON, LENGTH, b"planted-marker"], BODY, {400}),
    "NUL in a header": ([JSON, LENGTH, b"Idempotency-Key: planted-marker\0"], BODY, {400}),
    "a header of 20 000 bytes": ([JSON, LENGTH, b"Idempotency-Key: " + MARKED * 1_400], BODY, {422}),
    "an empty key": ([JSON, LENGTH, b"Idempotency-Key:"], BODY, {422}),
    "a long key": ([JSON, LENGTH, b"Idempotency-Key: " + MARKED * 20], BODY, {422}),
    "no content type": ([LENGTH], BODY, {415}),
    "a content type that is none": ([b"Content-Type: \xff;;;=planted-marker", LENGTH], BODY, {415}),
    "a form": ([b"Content-Type: application/x-www-form-urlencoded", LENGTH], BODY, {415}),
    "compressed": ([JSON, b"Content-Encoding: gzip", b"Content-Length: 5"], b"\x1f\x8b\x08\x00\x00", {415, 422}),
    "compressed as said only": ([JSON, b"Content-Encoding: gzip", LENGTH], BODY, {415}),
    "another charset as said": ([b"Content-Type: application/json; charset=utf-16", LENGTH], BODY, {415}),
}


@pytest.mark.usefixtures("quiet")
async def test_a_strange_frame_is_answered_and_stores_nothing(
    ann: Person, address: str, store: Store, subtests: pytest.Subtests
) -> None:
    """Y5, Y6."""
    line = f"POST /api/v1/sessions/{await opened(ann)}/inputs"
    for case, (headers, body, statuses) in FRAMES.items():
        with subtests.test(case):
            check(await answered(address, request(line, *headers, key=ann.key, body=body)), statuses)
    assert await count(store, "user_inputs") == 0
    assert await count(store, "client_keys") == 0


@pytest.mark.usefixtures("quiet")
async def test_what_is_no_http_is_answered_with_a_problem(address: str, subtests: pytest.Subtests) -> None:
    """E, Y6: by the server itself, before any application; so is a head without end."""
    for case, (sent, status, code) in {
        "no HTTP": (MARKED + b"\r\n\r\n", 400, "INPUT_INVALID"),
        "the hello of TLS": (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400, "INPUT_INVALID"),
        "a head without end": (b"GET / HTTP/1.1\r\nX: " + MARKED * 20_000, 431, "TOO_LARGE"),
        "a line without end": (b"GET /" + MARKED * 20_000, 431, "TOO_LARGE"),
    }.items():
        with subtests.test(case):
            answer = await answered(address, sent)
            check(answer, {status})
            problem = json.loads(answer.partition(b"\r\n\r\n")[2])
            assert (problem["code"], problem["status"]) == (code, status)
            assert problem["type"].startswith("urn:agentloom:problem:")
            assert b"connection: close" in answer.lower()
            assert answer.split(b"\r\n")[0].decode() == f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"


HALF_A_HEAD = b"GET /healthz HTTP/1.1\r\nHost: here\r\nX: " + MARKED


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("before", [b"", b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n"], ids=["first", "a later one"])
async def test_a_head_that_does_not_come_to_its_end_is_not_waited_for(
    address: str, monkeypatch: pytest.MonkeyPatch, before: bytes
) -> None:
    """Y5: else whoever sends a byte now and then keeps as many connections as they like."""
    monkeypatch.setattr(serving, "HEAD_S", 0.2)
    answer = await answered(address, before + HALF_A_HEAD)
    assert answer.count(b"HTTP/1.1 200 OK") == (1 if before else 0)
    late = answer[answer.index(b"HTTP/1.1 408 Request Timeout") :]
    check(late, {408})
    assert json.loads(late.partition(b"\r\n\r\n")[2])["code"] == "INPUT_INVALID"


@pytest.mark.usefixtures("quiet")
async def test_a_head_in_pieces_is_whole_as_soon_as_its_last_one_is_there(
    ann: Person, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Y5: the time for a head ends with it; the answer may take as long as it likes."""
    monkeypatch.setattr(serving, "HEAD_S", 1)
    run = (await asked(ann, await opened(ann)))["run_id"]
    where = urlsplit(address)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    whole = request(f"GET /api/v1/runs/{run}?wait_s=1.5", key=ann.key)
    for piece in (whole[:20], whole[20:]):
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0.01)
    check(await asyncio.wait_for(reader.read(), timeout=20), {200})
    writer.close()


@pytest.mark.usefixtures("quiet")
async def test_nonsense_behind_an_open_stream_ends_it_quietly(ann: Person, address: str) -> None:
    """Y6: an answer that has begun can't become another one; nothing is raised in the server."""
    run = (await asked(ann, await opened(ann)))["run_id"]
    where = urlsplit(address)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    line = f"GET /api/v1/runs/{run}/events"
    head = [b"Host: here", b"Authorization: Bearer " + ann.key.encode(), b"Transfer-Encoding: chunked"]
    writer.write(line.encode() + b" HTTP/1.1\r\n" + b"\r\n".join(head) + b"\r\n\r\n0\r\n\r\n" + MARKED + b"\r\n\r\n")
    assert b"200 OK" in await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), timeout=10)
    writer.close()
    assert (await ann.http.get("/usage")).status_code == 200


@pytest.mark.parametrize("expects", [b"", b"Expect: 100-continue\r\n"])
@pytest.mark.usefixtures("quiet")
async def test_a_body_that_is_announced_as_gigantic_is_refused_before_it_comes(address: str, expects: bytes) -> None:
    """Y5: nobody has to send it first, and who asks whether to send it is not told to."""
    where = urlsplit(address)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    head = b"POST /api/v1/sessions HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
    writer.write(head + expects + b"Content-Length: 10000000000\r\n\r\n")
    answer = await asyncio.wait_for(reader.readuntil(b"}"), timeout=10)
    writer.close()
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b'"code":"TOO_LARGE"' in answer


@pytest.mark.usefixtures("quiet")
async def test_a_body_that_is_cut_off_stores_nothing(ann: Person, address: str, store: Store) -> None:
    """S4, Y5: a request is taken when all of it was there."""
    line = f"POST /api/v1/sessions/{await opened(ann)}/inputs"
    where = urlsplit(address)
    for body in (BODY, BODY[:-3]):  # the first one would be whole JSON
        _, writer = await asyncio.open_connection(where.hostname, where.port)
        writer.write(request(line, JSON, b"Content-Length: 100", key=ann.key, body=body))
        await writer.drain()
        writer.close()
        await writer.wait_closed()
    assert (await ann.http.get("/usage")).status_code == 200
    assert await count(store, "user_inputs") == 0


async def test_a_body_where_none_belongs_is_counted_too(ann: Person) -> None:
    """Y5: no method may send more than the limit."""
    refused = await ann.http.request(
        "GET", "/usage", content=b"x" * ((8 << 20) + 1), headers={"Content-Type": "text/x"}
    )
    assert check_problem(refused, 413, "TOO_LARGE")["limit_bytes"] == 8 << 20


WRITES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("POST", "/agents", {"definition": DEFINITION | {"name": "other"}}),
    ("POST", "/sessions", {"agent": "helper", "title": "t"}),
    ("PATCH", "/sessions/{session}", {"title": "t", "archived": False}),
    ("POST", "/sessions/{session}/inputs", {"text": "x", "mode": "auto", "client_key": "k"}),
    (
        "POST",
        "/connections",
        {"name": "c", "provider": "openai", "base_url": "https://x/", "api_key": "k", "models": []},
    ),
    ("PUT", "/connections/c", {"provider": "openai", "base_url": "https://x/", "api_key": "k", "models": []}),
    ("POST", "/users", {"name": "carl", "role": "member"}),
    ("POST", "/keys", {"user": "ann"}),
)

VALUES: tuple[Any, ...] = (
    True,
    -1,
    2**63,
    10**400,
    1e308,
    [],
    {},
    {MARK: MARK},
    [[MARK]],
    f"{MARK}\n",
    f"{MARK}\u202e\ufffe\uffff\U0010ffff",
    MARK * 700,
)


@pytest.mark.usefixtures("quiet")
async def test_a_wrong_value_in_any_field_is_refused_and_stores_nothing(
    ann: Person, store: Store, subtests: pytest.Subtests
) -> None:
    """Y5, Y6, 16: every field of every request, with values of every other kind."""
    session = await opened(ann)
    tables = ("agents", "agent_releases", "sessions", "user_inputs", "client_keys", "connections", "users", "payloads")
    before = [await count(store, table) for table in tables]
    for method, path, body in WRITES:
        for name in body:
            for value in VALUES:
                if (name, value) in FITTING or (isinstance(value, str) and name in TEXTS):
                    continue
                with subtests.test(f"{method} {path} {name}", value=repr(value)[:30]):
                    sent = await ann.http.request(method, path.format(session=session), json=body | {name: value})
                    assert sent.status_code == 422, sent.text[:300]
                    assert sent.json()["code"] in ("INPUT_INVALID", "CONFIGURATION_INVALID")
                    assert MARK not in sent.text
    assert [await count(store, table) for table in tables] == before


TEXTS = ("text", "title", "client_key", "api_key")  # where texts such as these may be right
FITTING: tuple[tuple[str, Any], ...] = (("archived", True), ("models", []))


WIDE = b'{"definition": {"name": "a", "instructions": [%s[]]}}'
LARGE: dict[str, tuple[bytes, int]] = {
    "millions of lists": (WIDE % (b"[]," * 2_500_000), 413),
    "millions of objects": (WIDE % (b"{}," * 2_500_000), 413),
    "half a million fields": (b'{"definition": {' + b",".join(b'"k%d": 1' % n for n in range(500_000)) + b"}}", 413),
    "as many wrong values as there may be": (WIDE % (b"[]," * 99_000), 422),
    "as many unknown fields as there may be": (b"{" + b",".join(b'"k%d": 1' % n for n in range(99_000)) + b"}", 422),
    "a name of millions": (b'{"definition": {"' + b"instructions" * 600_000 + b'": 1}}', 422),
    "a number of millions": (b'{"definition": ' + b"9" * 8_000_000 + b"}", 422),
    "a text of millions": (b'{"definition": {"name": "' + b"a," * 4_000_000 + b'"}}', 422),
}


@pytest.mark.parametrize("case", LARGE)
async def test_the_largest_body_is_answered_soon_and_shortly(ann: Person, case: str) -> None:
    """Y5: nobody else waits long for what one client sends."""
    body, status = LARGE[case]
    async with asyncio.timeout(30):
        refused = await ann.http.post("/agents", content=body, headers=JSON_HEADER)
    code = "TOO_LARGE" if status == 413 else refused.json()["code"]
    assert check_problem(refused, status, code)["code"] in ("TOO_LARGE", "INPUT_INVALID", "CONFIGURATION_INVALID")
    assert len(refused.content) < 20_000


async def test_a_client_that_sends_no_key_learns_nothing_about_bodies(address: str) -> None:
    """Y1: who may not ask is told so, whatever they send."""
    async with httpx.AsyncClient(base_url=f"{address}/api/v1", trust_env=False) as nobody:
        for body in (b"{}", b'{"agent": 5}', b"[", b"\xff"):
            refused = await nobody.post("/sessions", content=body, headers=JSON_HEADER)
            check_problem(refused, 401, "UNAUTHENTICATED")

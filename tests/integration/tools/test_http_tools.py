"""HTTP tools against a real server on loopback, through the guarded client."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from egress.client import build_client
from egress.limits import EgressLimits
from tests.support.certificates import tls_server
from tests.support.tool_calls import OPERATION, entry, frozen, invocation, no_progress, no_secrets
from tests.support.tool_server import Answer, Received, tool_server
from tools.errors import ToolTimeoutError, ToolUnavailableError
from tools.http import HttpTool, freeze_http
from tools.http_answers import retry_after_s
from tools.port import ToolOutcome, may_repeat
from tools.running import run_within_limit

SECRET = "sk-MARK-secret-value"


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with build_client(private_addresses="loopback") as guarded:
        yield guarded


def http_tool(client: httpx.AsyncClient, url: str, *, secrets: Any = no_secrets, **fields: Any) -> HttpTool:
    limit = fields.pop("max_answer_bytes", 1_000_000)
    written = entry(kind="http", url=url, **fields)
    return HttpTool(freeze_http(written), written, client=client, resolve_secret=secrets, max_answer_bytes=limit)


async def outcome(client: httpx.AsyncClient, answer: Answer, **fields: Any) -> ToolOutcome:
    async with tool_server(answer) as server:
        return await http_tool(client, server.url, **fields).run(invocation(q="Zürich"), on_progress=no_progress)


async def failure(client: httpx.AsyncClient, answer: Answer, **fields: Any) -> ToolUnavailableError:
    with pytest.raises(ToolUnavailableError) as failed:
        await outcome(client, answer, **fields)
    return failed.value


async def test_the_arguments_go_as_a_json_body_by_post(client: httpx.AsyncClient) -> None:
    """SPEC T1."""
    async with tool_server(Answer(body=b'{"t": 21}')) as server:
        tool = http_tool(client, server.url, headers={"X-Team": "a"})
        result = await tool.run(invocation(q="Zürich", n=1), on_progress=no_progress)
    [request] = server.requests
    assert (request.method, request.path) == ("POST", "/tool")
    assert json.loads(request.body) == {"q": "Zürich", "n": 1}
    assert (request.headers["content-type"], request.headers["x-team"]) == ("application/json", "a")
    assert (result.status, result.content, result.raw) == ("ok", '{"t": 21}', b'{"t": 21}')


@pytest.mark.parametrize(("effect", "sent"), [("read_only", False), ("idempotent", True), ("side_effect", True)])
async def test_a_call_that_changes_something_carries_the_operation_as_its_key(
    client: httpx.AsyncClient, effect: str, sent: bool
) -> None:
    """SPEC T4; case 084: every try has the same key."""
    async with tool_server(Answer()) as server:
        tool = http_tool(client, server.url, effect=effect)
        for _ in range(2):
            await tool.run(invocation(), on_progress=no_progress)
    keys = [request.headers.get("idempotency-key") for request in server.requests]
    assert keys == ([str(OPERATION)] * 2 if sent else [None, None])


async def test_a_stored_secret_goes_as_bearer_and_never_comes_back(client: httpx.AsyncClient) -> None:
    """SPEC Y3, L6: a server that repeats its request would put the secret into the conversation."""

    async def secrets(name: str) -> str | None:
        return SECRET if name == "weather" else None

    async def repeat(request: Received) -> Answer:
        return Answer(body=json.dumps(request.headers).encode())

    async with tool_server(repeat) as server:
        tool = http_tool(client, server.url, connection="weather", secrets=secrets)
        result = await tool.run(invocation(), on_progress=no_progress)
    assert server.requests[0].headers["authorization"] == f"Bearer {SECRET}"
    assert SECRET not in result.content
    assert SECRET.encode() not in result.raw
    assert "credential_removed" in result.transforms


async def test_a_connection_that_is_gone_is_said_to_the_model_and_nothing_is_sent(client: httpx.AsyncClient) -> None:
    """SPEC T9."""
    async with tool_server(Answer()) as server:
        tool = http_tool(client, server.url, connection="weather")
        result = await tool.run(invocation(), on_progress=no_progress)
    assert json.loads(result.content)["error"]["type"] == "ConnectionMissing"
    assert server.requests == []


@pytest.mark.parametrize("body", [b"", b"  \n"])
async def test_an_empty_answer_is_an_empty_result(client: httpx.AsyncClient, body: bytes) -> None:
    """SPEC A11; case 017."""
    result = await outcome(client, Answer(body=body))
    assert (result.status, result.content, result.raw) == ("ok", body.decode(), body)


async def test_text_that_is_not_json_is_a_result_like_any_other(client: httpx.AsyncClient) -> None:
    """SPEC T1."""
    answer = Answer(body="Grüße".encode("latin-1"), headers={"Content-Type": "text/plain; charset=latin-1"})
    assert (await outcome(client, answer)).content == "Grüße"


async def test_text_that_does_not_decode_is_marked_and_kept_whole(client: httpx.AsyncClient) -> None:
    """SPEC Y5."""
    result = await outcome(client, Answer(body=b"caf\xe9", headers={"Content-Type": "text/plain"}))
    assert (result.content, result.raw, result.transforms) == ("caf\ufffd", b"caf\xe9", ("undecodable_bytes_replaced",))


@pytest.mark.parametrize("headers", [{"Content-Type": "image/png"}, {}])
async def test_binary_content_becomes_an_artifact(client: httpx.AsyncClient, headers: dict[str, str]) -> None:
    """SPEC T7."""
    body = b"\x89PNG\r\n\x1a\n\x00\xff"
    result = await outcome(client, Answer(body=body, headers=headers))
    [artifact] = result.artifacts
    assert artifact.body == body
    assert json.loads(result.content)["artifact_ref"] == f"artifact:{OPERATION}/1"


@pytest.mark.parametrize("media_type", ["text/plain", "text/plain; charset=latin-1", "application/json"])
@pytest.mark.parametrize("body", [bytes(range(256)), b"a\x00b", b"\x1f\x8b\x08\x04\xff\xfe"])
async def test_binary_content_that_is_called_text_becomes_an_artifact_too(
    client: httpx.AsyncClient, media_type: str, body: bytes
) -> None:
    """SPEC T7: binary content is never text, whatever its label says."""
    if "latin" in media_type and b"\0" not in body:
        body += b"\0"  # every byte is a letter or a sign there, so only this tells
    result = await outcome(client, Answer(body=body, headers={"Content-Type": media_type}))
    [artifact] = result.artifacts
    assert (artifact.body, result.status) == (body, "ok")
    assert artifact.media_type in ("application/octet-stream", "application/gzip")
    assert json.loads(result.content)["artifact_ref"] == f"artifact:{OPERATION}/1"


@pytest.mark.parametrize(("text", "charset"), [("a\tb\r\n\x0c\x1b[1mbold\x1b[0m", "utf-8"), ("Zürich 重", "utf-16")])
async def test_text_with_the_signs_of_terminals_or_of_another_charset_stays_text(
    client: httpx.AsyncClient, text: str, charset: str
) -> None:
    """SPEC T7, Y5."""
    answer = Answer(body=text.encode(charset), headers={"Content-Type": f"text/plain; charset={charset}"})
    result = await outcome(client, answer)
    assert (result.content, result.artifacts, result.transforms) == (text, (), ())


async def test_a_refusal_of_the_tool_is_its_answer(client: httpx.AsyncClient) -> None:
    """SPEC T9."""
    result = await outcome(client, Answer(status=422, body=b'{"why": "no such city"}'))
    error = json.loads(result.content)["error"]
    assert result.status == "error"
    assert error == {"type": "HttpError", "message": '{"why": "no such city"}', "status": 422}
    assert result.raw == b'{"why": "no such city"}'


async def test_a_refusal_without_words_is_not_an_empty_result(client: httpx.AsyncClient) -> None:
    """SPEC T9."""
    error = json.loads((await outcome(client, Answer(status=404))).content)["error"]
    assert error["type"] == "HttpError"
    assert error["message"]


async def test_a_redirect_is_not_followed(client: httpx.AsyncClient) -> None:
    """SPEC Y4; case 107: the secret stays where it was sent."""
    async with tool_server(Answer()) as other:
        result = await outcome(client, Answer(status=307, headers={"Location": other.url}))
    assert json.loads(result.content)["error"]["type"] == "RedirectRefused"
    assert other.requests == []


async def test_an_address_that_is_not_allowed_is_answered(client: httpx.AsyncClient) -> None:
    """SPEC Y4."""
    async with tool_server(Answer()) as server, build_client(private_addresses="none") as strict:
        result = await http_tool(strict, server.url).run(invocation(), on_progress=no_progress)
    assert json.loads(result.content)["error"]["type"] == "AddressRefused"
    assert server.requests == []


async def test_an_answer_over_the_limit_is_an_error_result_and_not_a_retry(client: httpx.AsyncClient) -> None:
    """SPEC Y4."""
    result = await outcome(client, Answer(body=b"x" * 2_000), max_answer_bytes=1_999)
    assert json.loads(result.content)["error"]["type"] == "ResultTooLarge"
    async with build_client(private_addresses="loopback", limits=EgressLimits(max_answer_bytes=100)) as small:
        result = await outcome(small, Answer(body=b"x" * 2_000))
    assert json.loads(result.content)["error"]["type"] == "ResultTooLarge"


async def test_an_answer_that_nobody_asked_to_compress_is_told_as_that(client: httpx.AsyncClient) -> None:
    """SPEC Y4, T9: the model is not told that it asked for too much."""
    packed = Answer(body=b"\x1f\x8b", headers={"Content-Type": "application/json", "Content-Encoding": "gzip"})
    result = await outcome(client, packed)
    assert json.loads(result.content)["error"]["type"] == "AnswerCompressed"


async def test_three_megabytes_come_whole(client: httpx.AsyncClient) -> None:
    """SPEC T5, T9."""
    result = await outcome(client, Answer(body=b"x" * 3_000_000), max_answer_bytes=4_000_000)
    assert len(result.content) == 3_000_000


@pytest.mark.parametrize("status", [408, 429])
async def test_a_busy_server_has_not_run_the_call_and_may_be_asked_again(
    client: httpx.AsyncClient, status: int
) -> None:
    """SPEC T4: whatever the effect."""
    error = await failure(client, Answer(status=status, headers={"Retry-After": "7"}, body=b"MARK"))
    assert (error.reason, error.may_have_run, error.retry_after_s, error.status) == ("busy", False, 7.0, status)
    assert may_repeat(freeze_http(entry(kind="http", url="http://x", effect="side_effect")), error)
    assert "MARK" not in str(error)


@pytest.mark.parametrize(("effect", "again"), [("read_only", True), ("idempotent", True), ("side_effect", False)])
async def test_a_gateway_that_lost_the_answer_leaves_the_outcome_open(
    client: httpx.AsyncClient, effect: str, again: bool
) -> None:
    """SPEC T4."""
    error = await failure(client, Answer(status=504), effect=effect)
    assert error.may_have_run
    assert may_repeat(freeze_http(entry(kind="http", url="http://x", effect=effect)), error) is again


async def test_a_server_error_is_raised_where_the_call_may_be_repeated(client: httpx.AsyncClient) -> None:
    """SPEC T9."""
    assert (await failure(client, Answer(status=500), effect="read_only")).reason == "server_error"


async def test_a_server_error_of_a_side_effect_is_shown_and_not_repeated(client: httpx.AsyncClient) -> None:
    """SPEC T4, T9."""
    result = await outcome(client, Answer(status=500, body=b"half done"), effect="side_effect")
    assert json.loads(result.content)["error"]["message"] == "half done"


async def test_nobody_there_means_that_nothing_ran(client: httpx.AsyncClient) -> None:
    """SPEC T4."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(ToolUnavailableError) as failed:
            await http_tool(client, f"http://127.0.0.1:{port}/").run(invocation(), on_progress=no_progress)
    assert (failed.value.reason, failed.value.may_have_run) == ("unreachable", False)
    assert failed.value.__cause__ is None


async def test_a_connection_lost_after_sending_leaves_the_outcome_open(client: httpx.AsyncClient) -> None:
    """SPEC T4; case 084."""

    async def hang_up(request: Received) -> None:
        return None

    async with tool_server(hang_up) as server:
        with pytest.raises(ToolUnavailableError) as failed:
            await http_tool(client, server.url).run(invocation(), on_progress=no_progress)
    assert (failed.value.reason, failed.value.may_have_run) == ("connection_lost", True)


def test_a_wish_for_an_endless_pause_is_cut() -> None:
    """SPEC L2's kind, for tools: what no clock can hold, and digits that are none."""
    assert retry_after_s("9" * 400) == 86_400
    assert retry_after_s("Fri, 31 Dec 9999 23:59:59 GMT") == 86_400
    assert retry_after_s("٣") is None


async def words_of(tool: HttpTool) -> str:
    """What is said of a call that was not sent, either way."""
    try:
        return (await run_within_limit(tool, invocation(), on_progress=no_progress)).content
    except ToolUnavailableError as error:
        return "" if error.may_have_run else str(error)


UNSENDABLE = [
    ({"headers": {"X-Bad": "a\r\nX: b"}}, None),
    ({"headers": {"X Bad": "a"}}, None),
    ({"headers": {"": "a"}}, None),
    ({"headers": {"X-Bad": "Zürich"}}, None),
    ({"headers": {"Zürich": "a"}}, None),
    ({"url": "http://127.0.0.1:99999/"}, None),
    ({"url": "http://127.0.0.1:0x/"}, None),
    ({"url": f"http://{'a' * 64}.example/"}, None),
    ({"url": "http://xn--zz--/"}, None),
    ({"url": "http://"}, None),
    ({"url": "ftp://127.0.0.1/"}, None),
    ({"connection": "weather"}, "sk-MARK\r\nX: y"),
    ({"connection": "weather"}, "sk-MARK-é"),
]


@pytest.mark.parametrize(("fields", "secret"), UNSENDABLE)
@pytest.mark.parametrize("effect", ["read_only", "side_effect"])
async def test_what_fails_before_a_byte_was_sent_is_never_unknown(
    client: httpx.AsyncClient, fields: dict[str, Any], secret: str | None, effect: str
) -> None:
    """SPEC T4, T9: a release of before, or a secret of today, that HTTP can't carry is the call's error result."""

    async def secrets(name: str) -> str | None:
        return secret

    async with tool_server(Answer()) as server:
        written = entry(kind="http", effect=effect, url=server.url).model_copy(update=fields)
        known = frozen(effect=effect, timeout_s=5)
        tool = HttpTool(known, written, client=client, resolve_secret=secrets)
        told = await words_of(tool)
    assert server.requests == []
    assert told
    assert "MARK" not in told


async def test_a_time_limit_that_ends_before_the_call_was_sent_leaves_nothing_open(client: httpx.AsyncClient) -> None:
    """SPEC T4: whatever a look-up of the secret or a connection that can't be made takes, nothing has run."""
    never = asyncio.Event()

    async def slow_secret(name: str) -> str | None:
        await never.wait()
        return None

    with socket.socket() as full:  # takes connections into a backlog of none, so that a dial hangs
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        waiting = [await asyncio.open_connection("127.0.0.1", port) for _ in range(1)]
        for fields in ({"url": "http://127.0.0.1:9/", "connection": "a"}, {"url": f"https://127.0.0.1:{port}/"}):
            tool = http_tool(client, secrets=slow_secret, timeout_s=0.3, **fields)
            with pytest.raises(ToolUnavailableError) as failed:
                await run_within_limit(tool, invocation(), on_progress=no_progress)
            assert not failed.value.may_have_run
        for _, writer in waiting:
            writer.close()


@pytest.mark.parametrize(
    "charset",
    ["idna", "punycode", "unicode_escape", "undefined", "zlib", "rot13", "a\\0b", "nonsense", "utf-7", "base64"],
)
async def test_a_charset_that_is_none_costs_no_result(client: httpx.AsyncClient, charset: str) -> None:
    """SPEC T9: the answer came, so it is the result, whatever its header says."""
    headers = {"Content-Type": f"text/plain; charset={charset}"}
    result = await outcome(client, Answer(body=b"." * 300, headers=headers))
    assert (result.status, result.content) == ("ok", "." * 300)


async def test_half_an_answer_is_no_answer(client: httpx.AsyncClient) -> None:
    """SPEC T9: nothing is invented."""
    error = await failure(client, Answer(body=b'{"t": 2', declared=100))
    assert (error.reason, error.may_have_run) == ("connection_lost", True)


async def test_a_server_that_does_not_answer_in_time_leaves_the_outcome_open(client: httpx.AsyncClient) -> None:
    """SPEC T4."""
    never = asyncio.Event()

    async def wait(request: Received) -> None:
        await never.wait()

    async with tool_server(wait) as server:
        with pytest.raises(ToolTimeoutError) as failed:
            await run_within_limit(http_tool(client, server.url, timeout_s=0.3), invocation(), on_progress=no_progress)
        never.set()
    assert failed.value.may_have_run


def test_the_time_to_wait_is_read_in_both_forms() -> None:
    """Case 037's kind, for tools."""
    moment = datetime.now(UTC) + timedelta(seconds=30)
    assert retry_after_s("3") == 3
    assert 28 < (retry_after_s(format_datetime(moment, usegmt=True)) or 0) <= 30
    assert retry_after_s(format_datetime(moment - timedelta(days=1), usegmt=True)) == 0
    assert [retry_after_s(text) for text in (None, "", "soon", "-1")] == [None, None, None, None]


def test_without_a_schema_any_object_is_taken() -> None:
    """SPEC T1."""
    assert freeze_http(entry(kind="http", url="http://example.org")).parameters == {"type": "object", "properties": {}}


async def test_a_certificate_that_is_not_trusted_is_answered_and_not_tried_again(
    client: httpx.AsyncClient, tmp_path: Path
) -> None:
    """SPEC T4, T9, Y4: nothing was sent, and no further try would help."""
    async with tls_server(tmp_path) as server:
        result = await http_tool(client, server.url).run(invocation(), on_progress=no_progress)
        assert server.heard == []
    assert json.loads(result.content)["error"]["type"] == "CertificateUntrusted"
    assert "localhost" not in result.content

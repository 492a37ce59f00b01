"""One attempt at a model call over a real socket: what is sent, what comes back, and how it fails."""

import asyncio
from collections.abc import AsyncIterator, Callable

import httpx
import pytest
from pydantic import SecretStr

from context.errors import ModelCallError
from context.messages import ChatMessage
from egress.client import build_client
from egress.credentials import REMOVED
from egress.limits import EgressLimits
from providers.chat import ChatClient, CompletedCall, ModelTarget
from providers.errors import BrokenStreamError, EndpointRefusedError, RedirectRefusedError
from providers.profiles import profile_for
from providers.redaction import WITHHELD
from tests.support.bodies import build_body
from tests.support.model_server import ModelServer
from tests.support.replies import Reply, body, calls, error, event, raw, text

KEY = "sk-test-4711-abcdef"
BODY = build_body(
    profile=profile_for("openai"),
    model="m",
    messages=[ChatMessage(role="user", content="q")],
    tools=[],
    max_output_tokens=10,
    parameters={},
)


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with build_client(private_addresses="loopback") as client:
        yield client


def target(server: ModelServer, *, idle_timeout_s: float = 5, key: str | None = KEY) -> ModelTarget:
    secret = SecretStr(key) if key is not None else None
    return ModelTarget(server.base_url, secret, idle_timeout_s=idle_timeout_s)


async def nothing() -> None:
    """No evidence is kept."""


async def attempt(
    http: httpx.AsyncClient,
    to: ModelTarget,
    *,
    on_bytes: Callable[[], None] = lambda: None,
) -> CompletedCall:
    return await ChatClient(http).complete(to, BODY, on_first_output=nothing, on_bytes=on_bytes)


async def test_exactly_the_given_bytes_are_sent_with_the_key(http: httpx.AsyncClient) -> None:
    """SPEC A9, R2: the frozen request, each time."""
    async with ModelServer(["hello"], strict="plain") as server:
        done = await attempt(http, target(server))
        (request,) = server.requests
    assert done.reply.content == "hello"
    assert request.body == BODY
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == f"Bearer {KEY}"


async def test_a_server_without_a_key_gets_none(http: httpx.AsyncClient) -> None:
    """SPEC L1: local servers."""
    async with ModelServer(["hello"]) as server:
        await attempt(http, target(server, key=None))
        assert "authorization" not in server.requests[0].headers


async def test_the_raw_answer_is_kept_as_it_came(http: httpx.AsyncClient) -> None:
    """Case 012: broken arguments byte for byte."""
    reply = calls(("shell", '{"cmd": "ls'))
    async with ModelServer([reply]) as server:
        done = await attempt(http, target(server))
    assert done.raw == b"".join(reply.pieces)
    assert done.reply.calls[0].arguments == '{"cmd": "ls'


async def test_a_connection_is_used_again_after_a_stream(http: httpx.AsyncClient) -> None:
    """DESIGN 8: one client per connection, kept alive."""
    ports: set[object] = set()
    async with ModelServer(["a", "b", "c"]) as server:
        for _ in range(3):
            async with http.stream("POST", server.base_url, content=BODY) as response:
                ports.add(response.extensions["network_stream"].get_extra_info("client_addr"))
                await response.aread()
    assert len(ports) == 1


async def test_a_server_that_never_closes_after_done_does_not_hold_the_answer(http: httpx.AsyncClient) -> None:
    """SPEC L1."""
    async with ModelServer([text("hello").but(keep_open_s=30)]) as server:
        async with asyncio.timeout(15):
            assert (await attempt(http, target(server))).reply.content == "hello"


async def test_first_output_is_reported_once_and_beside_the_reading(http: httpx.AsyncClient) -> None:
    """SPEC S6: recording does not hold up the stream, and the answer waits for the record."""
    order: list[str] = []
    recorded = asyncio.Event()

    async def record() -> None:
        order.append("first output")
        await recorded.wait()
        order.append("recorded")

    async with ModelServer([text("abcdef", pieces_of=1).but(hold="rest", hold_after=3)]) as server:
        done = asyncio.ensure_future(
            ChatClient(http).complete(target(server), BODY, on_first_output=record, on_bytes=lambda: None)
        )
        while not order:
            await asyncio.sleep(0.01)
        server.release("rest")
        await asyncio.wait([done], timeout=0.3)
        assert not done.done()
        recorded.set()
        assert (await done).reply.content == "abcdef"
    assert order == ["first output", "recorded"]


@pytest.mark.parametrize(
    "reply", [body({"choices": [{"message": {"content": "x"}}]}), calls(("f", "{}")), text("", reasoning="r")]
)
async def test_any_first_output_counts(http: httpx.AsyncClient, reply: Reply) -> None:
    """SPEC S6: text in one body, a call, reasoning."""
    seen: list[int] = []

    async def record() -> None:
        seen.append(1)

    async with ModelServer([reply]) as server:
        await ChatClient(http).complete(target(server), BODY, on_first_output=record, on_bytes=lambda: None)
    assert seen == [1]


async def test_an_empty_answer_is_no_output(http: httpx.AsyncClient) -> None:
    """SPEC S6, L1."""

    async def never() -> None:
        raise AssertionError("there was no output")

    async with ModelServer([text("")]) as server:
        done = await ChatClient(http).complete(target(server), BODY, on_first_output=never, on_bytes=lambda: None)
    assert done.reply.content is None


async def test_an_error_of_the_recording_ends_the_call(http: httpx.AsyncClient) -> None:
    """SPEC S6, W5: a superseded attempt goes no further."""

    async def refuse() -> None:
        raise LookupError("superseded")

    async with ModelServer([text("ab", pieces_of=1).but(pause_s=0.05), text("ab").but(break_after=100)]) as server:
        for _ in range(2):
            with pytest.raises(LookupError):
                await ChatClient(http).complete(target(server), BODY, on_first_output=refuse, on_bytes=lambda: None)


async def test_each_piece_is_a_sign_of_life_comments_too(http: httpx.AsyncClient) -> None:
    """Case 029: comments reset the idle timer and are no content."""
    signs: list[int] = []
    comments = [b": keep-alive\n\n"] * 8
    reply = raw(*comments, *text("ok").pieces).but(pause_s=0.1)
    async with ModelServer([reply]) as server:
        done = await attempt(http, target(server, idle_timeout_s=0.5), on_bytes=lambda: signs.append(1))
    assert done.reply.content == "ok"
    assert len(signs) >= len(comments)


async def test_silence_ends_the_attempt_and_it_may_be_tried_again(http: httpx.AsyncClient) -> None:
    """SPEC L2."""
    async with ModelServer(
        [text("x").but(hold="never"), text("xy", pieces_of=1).but(hold="never", hold_after=1)]
    ) as server:
        with pytest.raises(ModelCallError) as before:
            await attempt(http, target(server, idle_timeout_s=0.2))
        with pytest.raises(BrokenStreamError) as after:
            await attempt(http, target(server, idle_timeout_s=0.2))
    assert not isinstance(before.value, BrokenStreamError)
    assert before.value.retryable
    assert after.value.retryable


@pytest.mark.parametrize("cut", [0, 1, 30, 70, 130, 200])
async def test_a_broken_stream_is_a_failure_with_its_fragment(http: httpx.AsyncClient, cut: int) -> None:
    """SPEC L2, A5: kept, never an answer, and never joined with another attempt's."""
    whole = text("abc", pieces_of=1)
    async with ModelServer([whole.but(break_after=cut)]) as server:
        with pytest.raises(ModelCallError) as failure:
            await attempt(http, target(server))
    assert failure.value.retryable
    if isinstance(failure.value, BrokenStreamError):
        assert failure.value.fragment is not None
        assert "abc".startswith(failure.value.fragment.content or "")
        assert b"".join(whole.pieces).startswith(failure.value.raw)
    else:
        assert cut <= 70


async def test_a_break_behind_the_finish_reason_takes_nothing_away(http: httpx.AsyncClient) -> None:
    """SPEC L1: missing `[DONE]` and usage."""
    whole = text("abc")
    before_usage = sum(len(piece) for piece in whole.pieces[:2]) + 5
    async with ModelServer([whole.but(break_after=before_usage)]) as server:
        done = await attempt(http, target(server))
    assert (done.reply.content, done.reply.usage.input_tokens) == ("abc", None)


async def test_an_error_event_after_output_keeps_its_posture_and_the_fragment(http: httpx.AsyncClient) -> None:
    """SPEC L1, L2."""
    output = event({"choices": [{"delta": {"content": "half"}}]})
    refusals = [({"code": 400, "message": "MARKER"}, False), ({"code": 503, "message": "MARKER"}, True)]
    async with ModelServer([raw(output, event({"error": refusal})) for refusal, _ in refusals]) as server:
        for _, retryable in refusals:
            with pytest.raises(BrokenStreamError) as failure:
                await attempt(http, target(server))
            assert failure.value.retryable is retryable
            assert failure.value.fragment is not None
            assert failure.value.fragment.content == "half"
            assert "MARKER" not in str(failure.value)


async def test_an_error_answer_is_classed_with_its_wish_to_wait(http: httpx.AsyncClient) -> None:
    """Case 037."""
    async with ModelServer([error(429, "slow down", headers=[("Retry-After", "7")])]) as server:
        with pytest.raises(ModelCallError) as failure:
            await attempt(http, target(server))
    assert (failure.value.status, failure.value.retryable, failure.value.retry_after_s) == (429, True, 7)


async def test_an_endless_error_body_is_read_in_part_only(http: httpx.AsyncClient) -> None:
    """SPEC Y4."""
    flood = Reply(pieces=(b"x" * 100_000,) * 50, status=500)
    async with ModelServer([flood]) as server:
        with pytest.raises(ModelCallError) as failure:
            await attempt(http, target(server))
    assert failure.value.retryable


async def test_a_redirect_takes_the_key_nowhere(http: httpx.AsyncClient) -> None:
    """Case 107."""
    async with ModelServer(["stolen"]) as elsewhere:
        moved = [body("", status=s, headers=[("location", elsewhere.base_url)]) for s in (302, 307, 308)]
        async with ModelServer(moved) as server:
            for _ in moved:
                with pytest.raises(RedirectRefusedError) as failure:
                    await attempt(http, target(server))
                assert (failure.value.reason, failure.value.retryable) == ("model_redirected", False)
        assert elsewhere.requests == []


async def test_an_address_that_the_guard_refuses_is_not_tried_again() -> None:
    """SPEC Y4."""
    async with ModelServer(["x"]) as server, build_client(private_addresses="none") as strict:
        with pytest.raises(EndpointRefusedError) as failure:
            await attempt(strict, target(server))
        assert (failure.value.reason, failure.value.retryable) == ("model_address_refused", False)
        assert server.requests == []


async def test_an_answer_over_the_limit_is_a_failure_by_name() -> None:
    """SPEC Y4."""
    async with (
        ModelServer([text("x" * 5_000)]) as server,
        build_client(private_addresses="loopback", limits=EgressLimits(max_answer_bytes=1_000)) as small,
    ):
        with pytest.raises(ModelCallError) as failure:
            await attempt(small, target(server))
        assert (failure.value.reason, failure.value.retryable) == ("model_answer_refused", False)


async def test_a_server_that_is_away_may_be_tried_again(http: httpx.AsyncClient) -> None:
    """SPEC L2."""
    with pytest.raises(ModelCallError) as failure:
        await attempt(http, ModelTarget("http://127.0.0.1:1/v1", None))
    assert (failure.value.reason, failure.value.retryable) == ("model_unavailable", True)


@pytest.mark.parametrize("key", ["sk-with\nbreak", "sk-ключ"])
async def test_a_key_that_no_header_can_carry_is_refused_before_anything_is_sent(
    http: httpx.AsyncClient, key: str
) -> None:
    """SPEC Y6."""
    async with ModelServer(["x"]) as server:
        with pytest.raises(ModelCallError) as failure:
            await attempt(http, target(server, key=key))
        assert server.requests == []
    assert failure.value.reason == "model_connection_unusable"
    assert failure.value.__context__ is None
    assert "sk-" not in repr(failure.value)


async def test_cancelling_closes_the_connection_and_stops_the_recording(http: httpx.AsyncClient) -> None:
    """SPEC S8."""
    began, stopped = asyncio.Event(), asyncio.Event()

    async def record() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with ModelServer([text("ab", pieces_of=1).but(hold="never", hold_after=1)]) as server:
        call = asyncio.ensure_future(
            ChatClient(http).complete(target(server), BODY, on_first_output=record, on_bytes=lambda: None)
        )
        await began.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert stopped.is_set()
        async with asyncio.timeout(15):
            while not server.disconnects:
                await asyncio.sleep(0.01)


async def test_an_echoed_key_is_in_nothing_that_is_returned(http: httpx.AsyncClient) -> None:
    """SPEC L6: raw and read."""
    async with ModelServer([calls(("f", {"token": KEY}), content=f"your key is {KEY}")]) as server:
        done = await attempt(http, target(server))
    assert done.reply.content == f"your key is {REMOVED}"
    assert KEY not in done.reply.calls[0].arguments
    assert KEY.encode() not in done.raw
    assert REMOVED.encode() in done.raw


async def test_a_key_echoed_in_pieces_is_in_nothing_that_is_returned(http: httpx.AsyncClient) -> None:
    """SPEC L6: no search of the bytes finds it, so the raw form is withheld."""
    broken = text(f"<{KEY}> and on", pieces_of=4)
    before_finish = sum(len(piece) for piece in broken.pieces[:-3])
    async with ModelServer([text(f"<{KEY}>", pieces_of=4), broken.but(break_after=before_finish)]) as server:
        done = await attempt(http, target(server))
        with pytest.raises(BrokenStreamError) as failure:
            await attempt(http, target(server))
    assert done.reply.content == f"<{REMOVED}>"
    assert WITHHELD.encode() in done.raw
    assert WITHHELD.encode() in failure.value.raw
    assert KEY not in str(failure.value.fragment)


@pytest.mark.parametrize("name", ["id", "model"])
async def test_a_key_in_what_a_provider_says_of_its_answer_is_in_nothing_that_is_returned(
    http: httpx.AsyncClient, name: str
) -> None:
    """SPEC L6: beside a key in pieces, for which the reading is kept; and alone, as JSON may spell it."""
    spelt = event({name: "MARK", "choices": []}).replace(b"MARK", f"\\u{ord(KEY[0]):04x}{KEY[1:]}".encode())
    beside = text(f"<{KEY}>", pieces_of=4)
    alone = text("fine")
    replies = [one.but(pieces=(spelt, *one.pieces)) for one in (beside, alone)]
    async with ModelServer(replies) as server:
        for is_withheld in (True, False):
            done = await attempt(http, target(server))
            assert (WITHHELD.encode() in done.raw) == is_withheld
            assert KEY[1:].encode() not in done.raw
            assert KEY not in str(done.reply)


@pytest.mark.parametrize(
    "reply",
    [
        raw(event({"choices": [{"delta": {"content": "MARKER"}}]}), b'data: {"MARKER\n\n'),
        raw(b'{"choices": [{"message": {"content": "MARKER'),
        raw(b"data: MARKER \xff\n\n"),
        text("MARKER" * 9, pieces_of=1).but(break_after=130),
        error(400, "MARKER"),
    ],
)
async def test_no_failure_is_chained_to_one_with_content(http: httpx.AsyncClient, reply: Reply) -> None:
    """SPEC Y6: a JSON error, for one, holds the whole document."""
    async with ModelServer([reply]) as server:
        with pytest.raises(ModelCallError) as failure:
            await attempt(http, target(server))
    seen: list[BaseException | None] = [failure.value]
    while (link := seen[-1]) is not None:
        assert isinstance(link, ModelCallError)
        assert "MARKER" not in str(link)
        seen.append(link.__cause__ or link.__context__)

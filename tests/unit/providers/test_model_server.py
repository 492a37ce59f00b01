"""The scripted model itself: what other tests rely on."""

import json
from pathlib import Path

import httpx
import pytest

from tests.support.model_server import ModelServer, ModelServerProcess, RecordedRequest
from tests.support.replies import Reply, error, reply_from, text
from tests.support.strict_chat import Dialect, violations


async def post(url: str, content: str = "q", **fields: object) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False) as client:
        document = {"model": "m", "messages": [{"role": "user", "content": content}], **fields}
        return await client.post(url + "/chat/completions", json=document)


async def test_replies_come_in_order_and_by_marker() -> None:
    """DESIGN 9."""

    def echo(request: RecordedRequest) -> str:
        return f"request {request.no}"

    async with ModelServer(["one", echo], by_marker={"MARK-X": ["marked"]}) as server:
        answers = [(await post(server.base_url, content)).text for content in ("a", "about MARK-X", "b")]
        assert ["one" in answers[0], "marked" in answers[1], "request 3" in answers[2]] == [True] * 3
        assert (await post(server.base_url)).status_code == 400
        assert [request.json["messages"][0]["content"] for request in server.requests] == [
            "a",
            "about MARK-X",
            "b",
            "q",
        ]


async def test_a_strict_server_refuses_a_slip_and_remembers_it() -> None:
    """DESIGN 9."""
    async with ModelServer(["one"], strict="plain") as server:
        assert (await post(server.base_url, tools=[])).status_code == 400
        assert (await post(server.base_url)).status_code == 200
        assert server.refusals == ["tools is an empty list"]


async def test_the_server_in_a_process_of_its_own_keeps_a_record(tmp_path: Path) -> None:
    """DESIGN 9: it survives the death of a worker."""
    script = {
        "replies": [
            {"text": "hello"},
            {"calls": [{"name": "f", "arguments": {"a": 1}}]},
            {"status": 429, "headers": {"Retry-After": "2"}},
        ],
        "by_marker": {"MARK-X": [{"sse_deltas": [{"content": "x"}, {"finish_reason": "stop"}], "done": True}]},
    }
    async with ModelServerProcess(script, tmp_path) as server:
        assert "hello" in (await post(server.base_url)).text
        assert "[DONE]" in (await post(server.base_url, "MARK-X")).text
        assert '"tool_calls"' in (await post(server.base_url)).text
        limited = await post(server.base_url)
        assert (limited.status_code, limited.headers["retry-after"]) == (429, "2")
        assert [request.json["messages"][0]["content"] for request in server.requests] == ["q", "MARK-X", "q", "q"]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ({"status": 402, "json": {"error": {"message": "no"}}}, error(402).status),
        ({"body": "\n\n{}"}, 200),
        ({"sse": [": x\n\n", "data: [DONE]\n\n"], "delay_s": 0.5}, 200),
        ({"raw_chunks_hex": ["646174613a", "0a0a"]}, 200),
    ],
)
def test_replies_can_be_written_down_as_json(script: dict[str, object], expected: int) -> None:
    """DESIGN 9."""
    reply = reply_from(json.loads(json.dumps(script)))
    assert reply.status == expected
    assert isinstance(reply, Reply)


GOOD: dict[str, object] = {"role": "user", "content": "q"}
CALL: dict[str, object] = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
ASKING: dict[str, object] = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT: dict[str, object] = {"role": "tool", "tool_call_id": "c1", "content": "x"}


def found(*messages: dict[str, object], dialect: Dialect = "plain", **fields: object) -> list[str]:
    return violations(json.dumps({"model": "m", "messages": list(messages), **fields}).encode(), dialect=dialect)


def test_a_legal_conversation_passes() -> None:
    """DESIGN 9."""
    assert found(GOOD, ASKING, RESULT, {"role": "assistant", "content": "done"}, GOOD) == []


@pytest.mark.parametrize(
    ("messages", "word"),
    [
        ([GOOD, ASKING], "no results"),
        ([GOOD, ASKING, GOOD], "before all calls"),
        ([GOOD, RESULT], "answers no call"),
        ([GOOD, ASKING, RESULT, RESULT], "answers no call"),
        ([GOOD, ASKING, RESULT, ASKING, RESULT], "repeats a call id"),
        ([GOOD, {"role": "assistant", "content": None}], "null without"),
        ([GOOD, {"role": "assistant", "content": ""}], "empty content"),
        ([GOOD, {"role": "assistant", "content": "x", "tool_calls": []}], "empty tool_calls"),
        ([GOOD, ASKING, {**RESULT, "content": " "}], "empty content"),
        ([GOOD, {**ASKING, "tool_calls": [{**CALL, "function": {"name": "f", "arguments": "{"}}]}, RESULT], "no JSON"),
        ([GOOD, {**ASKING, "reasoning_content": "r"}, RESULT], "reasoning_content"),
        ([{"role": "system", "content": "s"}], "no user message"),
        ([{"role": "user", "content": "\ud83d"}], "surrogate"),
        ([{"role": "wizard", "content": "x"}, GOOD], "unknown role"),
        ([], "not a list"),
    ],
)
def test_every_slip_is_named(messages: list[dict[str, object]], word: str) -> None:
    """DESIGN 9: a check that finds nothing would prove nothing."""
    assert any(word in line for line in found(*messages))


def test_the_dialects_demand_their_own() -> None:
    """DESIGN 9."""
    assert found(GOOD, ASKING, RESULT, dialect="deepseek_thinking")
    assert found(GOOD, {**ASKING, "reasoning_content": "r"}, RESULT, dialect="deepseek_thinking") == []
    assert found(GOOD, GOOD, dialect="alternating")
    assert found(GOOD, max_tokens=1, max_completion_tokens=1)


def test_a_text_reply_ends_as_streams_do() -> None:
    """DESIGN 9."""
    assert text("a").pieces[-1] == b"data: [DONE]\n\n"

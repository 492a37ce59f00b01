"""What providers really answer (SPEC L1, A5; cases of kind provider-response)."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.test_tool_batches import results
from tests.support import replies
from tests.support.replies import Reply
from tests.support.run_tools import traced
from tests.support.run_world import RunWorld, python_tool


async def test_a_call_cut_at_the_output_limit_is_not_made(world: RunWorld, tmp_path: Path) -> None:
    """Case C023, SPEC L1: one call that parses and one that doesn't; the model is told, and asked something new."""
    trace = tmp_path / "trace"
    await world.publish(tools=[python_tool("book", "side_effect")])
    whole = json.dumps({"key": "a", "trace": str(trace)})
    cut = replies.calls(("book", whole, "c1"), ("book", whole[:9], "c2"), finish_reason="length")
    world.model.add(cut, "shorter")
    run = await world.ask()
    assert (run["status"], traced(trace)) == ("succeeded", [])
    assert all("cut" in result for result in results(world.sent[1]))
    assert world.model.requests[0].body != world.model.requests[1].body


async def test_calls_count_more_than_the_reason_for_stopping(world: RunWorld, tmp_path: Path) -> None:
    """Case C025, SPEC L1: `stop` with a call runs it; `tool_calls` with text alone is the answer."""
    trace = tmp_path / "trace"
    await world.publish(tools=["look"])
    world.model.add(
        replies.calls(("look", {"key": "a", "trace": str(trace)}), finish_reason="stop"),
        replies.text("final text", finish_reason="tool_calls"),
    )
    run = await world.ask()
    assert (run["answer"], traced(trace), len(world.model.requests)) == ("final text", ["a"], 2)


async def test_a_call_that_the_provider_could_not_read_is_not_made_and_asked_for_again(
    world: RunWorld, tmp_path: Path
) -> None:
    """SPEC L7, T3: neither with a call that parses all the same nor with text before it is that an answer."""
    trace, unreadable = tmp_path / "trace", "malformed_function_call"
    await world.publish(tools=[python_tool("book", "side_effect")])
    call = ("book", {"key": "a", "trace": str(trace)})
    world.model.add(
        replies.calls(call, finish_reason=unreadable), replies.text("I'll book it", finish_reason=unreadable), "booked"
    )
    run = await world.ask()
    assert (run["status"], run["answer"], run["loops"], traced(trace)) == ("succeeded", "booked", 3, [])
    assert "could not read" in results(world.sent[1])[0]
    assert [message["role"] for message in world.sent[2][-2:]] == ["assistant", "user"]
    assert "could not read" in world.sent[2][-1]["content"]


@pytest.mark.parametrize("text", ["", "half an ans"])
async def test_a_withheld_answer_is_no_answer(world: RunWorld, text: str) -> None:
    """Case C026, SPEC L1: asked once, ended with its own reason; a part is kept as a fragment, the session goes on."""
    world.model.add(replies.text(text, finish_reason="content_filter"), "fine")
    session = await world.open_session()
    run = await world.ask("q", session)
    assert (run["status"], run["end_reason"], run["answer"]) == ("failed", "content_filtered", None)
    assert len(world.model.requests) == 1
    kinds = [message["kind"] for message in await world.messages(session)]
    assert kinds == (["user_ref", "fragment"] if text else kinds)
    again = await world.ask("and now?", session)
    assert again["status"] == "succeeded"
    assert text == "" or text not in [m["content"] for m in world.sent[1] if m["role"] == "assistant"]


async def test_an_answer_cut_at_the_output_limit_fails_with_its_own_reason(world: RunWorld) -> None:
    """SPEC L1: text alone, cut, is no answer."""
    world.model.add(replies.text("half a tho", finish_reason="length"))
    run = await world.ask()
    assert (run["status"], run["end_reason"], run["answer"]) == ("failed", "output_cut", None)


async def test_failures_inside_a_success_are_tried_again(world: RunWorld) -> None:
    """Case C027, SPEC L1, L2: each bad body is one failed attempt with a name; the good one is the answer."""
    await world.publish()
    bad = [{"error": {"message": "upstream overloaded", "code": 502}}, {"choices": []}]
    world.model.add(*[replies.body(body) for body in bad], "good")
    run = await world.ask()
    assert (run["status"], run["answer"], run["loops"]) == ("succeeded", "good", 1)
    [call] = await world.operations(run["run_id"])
    assert [attempt["state"] for attempt in call["attempts"]] == ["failed", "failed", "succeeded"]
    assert {attempt["error"]["code"] for attempt in call["attempts"][:2]} == {"MODEL_FAILED"}
    assert len({request.body for request in world.model.requests}) == 1


async def test_a_refusal_inside_a_success_is_final(world: RunWorld) -> None:
    """Case C027, SPEC L2: an embedded 401 would be refused again."""
    world.model.add(replies.body({"error": {"message": "bad key", "code": 401}}))
    run = await world.ask()
    assert (run["status"], run["end_reason"], len(world.model.requests)) == ("failed", "model_auth", 1)


async def test_reasoning_between_tags_alone_is_no_answer(world: RunWorld) -> None:
    """SPEC L1: kept as the model said it, never the Run's answer; the model is asked on."""
    world.model.add("<think>They want a greeting.</think>", "<think>Now.</think>hello")
    run = await world.ask()
    assert (run["status"], run["answer"], run["loops"]) == ("succeeded", "<think>Now.</think>hello", 2)
    assert [message["role"] for message in world.sent[1][-2:]] == ["assistant", "user"]


NOISY = (
    b"\n\n",
    b": keep-alive\n\n",
    b"id: 7\n\n",
    b"event: ping\ndata:\n\n",
    b'data:{"choices":[{"delta":{"content":"\xe4\xbd\xa0"}}]}\r\n\r\n',
    b":\n",
    b'data: {"choices":[{"delta":{"content":"\xe5\xa5\xbd"},"finish_reason":"stop"}]}\n\n',
    b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}\n\n',
    b"data: [DONE]\n\n",
)
PLAIN = b'\n\n\n{"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"ok"}}]}'


async def test_noise_in_a_stream_is_no_content(world: RunWorld) -> None:
    """Case C029, SPEC L1: comments, empty events, missing spaces; and a plain body behind blank lines."""
    world.model.add(replies.raw(*NOISY), replies.body(PLAIN))
    session = await world.open_session()
    first = await world.ask("q1", session)
    second = await world.ask("q2", session)
    assert (first["answer"], second["answer"]) == ("你好", "ok")
    assert (first["usage"]["input_tokens"], first["usage"]["output_tokens"]) == (3, 2)
    assert len(world.model.requests) == 2


async def test_interleaved_fragments_of_two_calls_are_kept_apart(world: RunWorld) -> None:
    """Case C031, SPEC L1: only the first fragment of each call has an id."""
    await world.publish(tools=["echo"])

    def piece(index: int, arguments: str, **more: str) -> dict[str, object]:
        function = {"arguments": arguments, **({"name": "echo"} if more else {})}
        return {"tool_calls": [{"index": index, "function": function, **more}]}

    deltas = [piece(0, '{"te', id="f"), piece(1, '{"te', id="g"), piece(0, 'xt":"only-a"}'), piece(1, 'xt":"only-b"}')]
    world.model.add(replies.deltas_reply(deltas, finish_reason="tool_calls"), "done")
    await world.ask()
    assert results(world.sent[1]) == ["only-a", "only-b"]


@pytest.mark.parametrize("name", ["look\x00up", "\ud800", "n" * 100_000, "", "\n", "look up; rm"])
async def test_a_tool_by_an_impossible_name_is_an_error_result(world: RunWorld, name: str) -> None:
    """SPEC L7, A11, T3: whatever the model calls it, the Run goes on, and the name is in no column as it came."""
    await world.publish(tools=["echo"])
    world.model.add(replies.calls((name, {"text": "x"})), "done")
    session = await world.open_session()
    run = await world.ask("q", session)
    assert (run["status"], run["answer"], len(results(world.sent[1]))) == ("succeeded", "done", 1)
    assert (await world.operations(run["run_id"]))[1]["state"] == "failed"
    assert "done" in [message["message"]["content"] for message in await world.messages(session)]


async def test_a_text_with_every_odd_character_is_kept(world: RunWorld) -> None:
    """SPEC L1, Y5: NUL and controls in answer, reasoning and arguments wedge nothing."""
    odd = "a\x00b\x01\x7f\u2028\ufeff\ufffe"
    await world.publish(tools=["echo"])
    world.model.add(replies.calls(("echo", {"text": odd}), content=odd, reasoning=odd), odd)
    session = await world.open_session()
    run = await world.ask("q", session)
    assert (run["status"], run["answer"], results(world.sent[1])) == ("succeeded", odd, [odd])


def cut_in_characters() -> Reply:
    body = 'data: {"choices":[{"delta":{"content":"好🙂"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'.encode()
    first, second = body.index("好".encode()), body.index("🙂".encode())
    cuts = [0, first + 1, first + 2, second + 1, second + 2, len(body)]
    return replies.raw(*(body[a:b] for a, b in itertools.pairwise(cuts)))


async def test_characters_cut_between_chunks_stay_whole(world: RunWorld) -> None:
    """Case C033, SPEC L1: no replacement characters."""
    world.model.add(cut_in_characters())
    assert (await world.ask())["answer"] == "好🙂"


async def test_a_stream_that_ends_inside_a_character_is_a_failed_attempt(world: RunWorld) -> None:
    """Case C033, SPEC A5: what is incomplete is no answer; the next attempt is."""
    whole = cut_in_characters()
    world.model.add(replies.raw(*whole.pieces[:2]), whole)
    run = await world.ask()
    assert run["answer"] == "好🙂"
    [call] = await world.operations(run["run_id"])
    assert [attempt["state"] for attempt in call["attempts"]] == ["failed", "succeeded"]


async def test_fragments_of_two_attempts_are_never_joined(world: RunWorld, tmp_path: Path) -> None:
    """SPEC A5, L2: a stream breaks after text and half a call; nothing of it is executed or shown."""
    trace = tmp_path / "trace"
    await world.publish(tools=[python_tool("book", "side_effect")])
    half = json.dumps({"key": "a", "trace": str(trace)})[:20]
    function = {"name": "book", "arguments": half}
    deltas: list[dict[str, Any]] = [
        {"content": "FRAGMENT"},
        {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": function}]},
    ]
    broken = replies.deltas_reply(deltas, finish_reason=None, usage=None, done=False)
    world.model.add(broken, "whole")
    session = await world.open_session()
    run = await world.ask("q", session)
    assert (run["status"], run["answer"], traced(trace)) == ("succeeded", "whole", [])
    [call] = await world.operations(run["run_id"])
    failed, succeeded = call["attempts"]
    assert (failed["state"], succeeded["state"]) == ("failed", "succeeded")
    assert [message["kind"] for message in await world.messages(session)] == ["user_ref", "assistant"]
    assert world.model.requests[0].body == world.model.requests[1].body


OVERFLOWS = [
    replies.error(400, "maximum context length is 8000 tokens", code="context_length_exceeded"),
    replies.error(400, "Prompt 超长", code="1261"),
    replies.error(413, ""),
    replies.text("half", finish_reason="model_context_window_exceeded"),
    replies.error(503, "wrapped: OpenAIException - exceeds the model's maximum context length of 8000 tokens"),
]


@pytest.mark.parametrize("overflow", OVERFLOWS)
async def test_a_full_window_ends_the_run_without_a_second_try(world: RunWorld, overflow: Reply) -> None:
    """Case C035, SPEC B7: our message, not the provider's words."""
    world.model.add(overflow)
    run = await world.ask()
    assert (run["status"], run["error"]["code"]) == ("failed", "MODEL_CONTEXT_LENGTH_EXCEEDED")
    assert len(world.model.requests) == 1
    assert "8000 tokens" not in run["error"]["message"]
    assert "超长" not in run["error"]["message"]


@pytest.mark.parametrize(
    ("reply", "requests"),
    [
        (replies.error(429, "Too many tokens, please wait before trying again"), 2),
        (replies.error(500, "model runner crashed"), 2),
        (replies.error(400, "max_tokens must be at most 4096"), 1),
    ],
)
async def test_what_only_looks_like_a_full_window_is_not_taken_for_one(
    world: RunWorld, reply: Reply, requests: int
) -> None:
    """Case C035, SPEC L2: throttling and breakdowns are tried again, a bad request is final."""
    world.model.add(reply, "fine")
    run = await world.ask()
    assert len(world.model.requests) == requests
    assert (run["end_reason"]) == ("answered" if requests == 2 else "model_rejected")

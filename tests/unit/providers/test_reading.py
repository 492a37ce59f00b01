"""What an answer is taken for: a reply, a fragment, or a failure by name."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from context.errors import ModelCallError
from context.replies import ModelReply, Usage
from providers.errors import IncompleteAnswerError, MalformedAnswerError
from providers.reading import AnswerReader
from tests.support.replies import Reply, calls, deltas_reply, event, text


def read(reply: Reply | bytes) -> ModelReply:
    reader = AnswerReader()
    for piece in reply.pieces if isinstance(reply, Reply) else [reply]:
        reader.feed(piece)
    return reader.finish()


def called(reply: ModelReply) -> list[tuple[str | None, str, str]]:
    return [(call.provider_id, call.name, call.arguments) for call in reply.calls]


def piece(
    index: object = None, call_id: object = None, name: str | None = None, arguments: object = None
) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    whole = {"index": index, "id": call_id, "function": {k: v for k, v in function.items() if v is not None}}
    return {"tool_calls": [{key: value for key, value in whole.items() if value is not None}]}


def streamed(*deltas: dict[str, Any], finish: str = "tool_calls") -> ModelReply:
    return read(deltas_reply(deltas, finish_reason=finish))


def test_a_noisy_stream_is_read_as_meant() -> None:
    """Case 029."""
    noise = (
        "\n\n: keep-alive\n\nid: 7\n\nevent: ping\ndata:\n\n"
        'data:{"choices":[{"delta":{"content":"你"}}]}\r\n\r\n:\n'
        'data: {"choices":[{"delta":{"content":"好"},"finish_reason":"stop"}]}\n\n'
        'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}\n\ndata: [DONE]\n\n'
    )
    reply = read(noise.encode())
    assert (reply.content, reply.finish_reason) == ("你好", "stop")
    assert reply.usage == Usage(input_tokens=3, output_tokens=2)


def test_a_body_that_is_not_streamed_is_read_behind_blank_lines() -> None:
    """Case 029."""
    body = b'\n\n\n{"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"ok"}}]}'
    assert read(body).content == "ok"


def test_characters_cut_between_pieces_stay_whole() -> None:
    """Case 033."""
    pieces = [
        "646174613a207b2263686f69636573223a5b7b2264656c7461223a7b22636f6e74656e74223a22e5",
        "a5bdf09f",
        "9982227d2c2266696e6973685f726561736f6e223a2273746f70227d5d7d0a0a646174613a205b444f4e455d0a0a",
    ]
    assert read(Reply(pieces=tuple(bytes.fromhex(piece) for piece in pieces))).content == "好🙂"
    with pytest.raises(IncompleteAnswerError):
        read(Reply(pieces=tuple(bytes.fromhex(piece) for piece in pieces[:2])))


def test_interleaved_fragments_go_to_their_calls() -> None:
    """Case 031."""
    reply = streamed(
        piece(0, "A", "f", ""),
        piece(1, "B", "g", '{"t":'),
        piece(0, arguments='{"t":"only-a"}'),
        piece(1, arguments='"only-b"}'),
    )
    assert called(reply) == [("A", "f", '{"t":"only-a"}'), ("B", "g", '{"t":"only-b"}')]


def test_empty_arguments_stay_empty() -> None:
    """Case 013: what they mean is decided by whoever checks them."""
    assert called(streamed(piece(0, "n1", "now", ""), piece(1, "r1", "read", ""))) == [
        ("n1", "now", ""),
        ("r1", "read", ""),
    ]


def test_the_same_id_twice_makes_two_calls() -> None:
    """Case 004: streamed with and without an index, and not streamed."""
    indexed = streamed(piece(0, "x", "add", '{"a":1}'), piece(1, "x", "add", '{"a":2}'))
    bare = streamed(piece(None, "x", "add", '{"a":1}'), piece(None, "x", "add", '{"a":2}'))
    asked = [
        {"id": "x", "type": "function", "function": {"name": "add", "arguments": a}} for a in ('{"a":1}', '{"a":2}')
    ]
    whole = read(json.dumps({"choices": [{"message": {"tool_calls": asked}, "finish_reason": "tool_calls"}]}).encode())
    assert called(indexed) == called(bare) == called(whole) == [("x", "add", '{"a":1}'), ("x", "add", '{"a":2}')]


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        ([piece(1, "b", "g", "{}"), piece(0, "a", "f", "{}")], [("a", "f", "{}"), ("b", "g", "{}")]),
        ([piece(0, "a", "f", "{}"), piece(0, "b", "f", "{}")], [("a", "f", "{}"), ("b", "f", "{}")]),
        ([piece(0, None, "f", '{"a":'), piece(0, "late", None, "1}")], [("late", "f", '{"a":1}')]),
        ([piece(None, "a", "f", '{"a":'), piece(None, None, None, "1}")], [("a", "f", '{"a":1}')]),
        ([piece(0, "a", "f", '{"a":'), piece(0, "a", "f", "1}")], [("a", "f", '{"a":1}')]),
        ([piece(0, "a", "f", '{"a":'), piece(0, "other", None, "1}")], [("a", "f", '{"a":1}')]),
        ([piece("0", 7, "f", "{}")], [("7", "f", "{}")]),
        ([piece(None, None, "f", "{}"), piece(None, None, "f", "{}")], [(None, "f", "{}"), (None, "f", "{}")]),
        ([piece(None, None, "f", {"a": 1})], [(None, "f", '{"a":1}')]),
        ([piece(0, "a", "get_"), piece(0, None, "weather"), piece(0, arguments="{}")], [("a", "get_weather", "{}")]),
        ([{"function_call": {"name": "f"}}, {"function_call": {"arguments": "{}"}}], [(None, "f", "{}")]),
        ([piece(0, "a", "f", '{"a":'), piece(0, "", "", "1}")], [("a", "f", '{"a":1}')]),
        ([piece(0, "a", "f", "{}"), piece(0, None, None, '{"a":'), piece(0, None, None, "1}")],
         [("a", "f", '{"a":1}')]),
        ([piece(0, "a", "f", {}), piece(0, "a", "f", {"a": 1})], [("a", "f", '{"a":1}')]),
        ([piece(0, "a", "f", ""), piece(0, None, None, '{"a":1}'), piece(0, None, None, '{"a":1}')],
         [("a", "f", '{"a":1}')]),
        ([piece(0, "a", "f", '{"a":1}'), piece(0, "a", "f", '{"a":1}')], [("a", "f", '{"a":1}')]),
        ([piece(0, "a", "f", '{"a":1}'), piece(0, None, None, '{"a":2}')], [("a", "f", '{"a":1}{"a":2}')]),
    ],
    ids=["any order", "index 0 for all", "late id", "no index", "all repeated", "new id per piece", "odd types",
         "nothing but names", "arguments as an object", "name in pieces", "legacy form",
         "empty marks", "empty object first", "empty object as an object first", "arguments again", "whole call again",
         "two objects in one call"],
)  # fmt: skip
def test_calls_are_put_together_whatever_marks_the_server_leaves_out(
    deltas: Sequence[dict[str, Any]], expected: list[tuple[str | None, str, str]]
) -> None:
    """SPEC L1."""
    assert called(streamed(*deltas)) == expected


def test_pieces_that_could_belong_to_two_calls_are_a_named_failure() -> None:
    """SPEC L1: never a guess that could mix two calls."""
    with pytest.raises(MalformedAnswerError):
        streamed(piece(None, "a", "f", '{"a":'), piece(None, "b", "g", '{"b":'), piece(None, None, None, "1}"))


@pytest.mark.parametrize(
    "body", ['{"choices": null}', '{"choices": []}', "{}", "[]", "null", "[1]", '{"choices": [1]}']
)
def test_a_success_without_an_answer_is_a_failed_attempt(body: str) -> None:
    """Case 027: no type or key error."""
    with pytest.raises(ModelCallError) as failure:
        read(body.encode())
    assert failure.value.retryable


@pytest.mark.parametrize(
    ("error", "reason", "retryable"),
    [
        ({"message": "upstream overloaded", "code": 502}, "model_unavailable", True),
        ({"message": "no", "code": 401}, "model_auth", False),
        ({"message": "no", "code": 400}, "model_rejected", False),
        ({"message": "no", "code": "429"}, "model_rate_limited", True),
        ({"message": "no", "type": "invalid_request_error"}, "model_rejected", False),
        ({"message": "slow", "type": "overloaded_error"}, "model_unavailable", True),
        ({"message": "too long", "code": "context_length_exceeded"}, "context_length", False),
        ("just a text", "model_unavailable", True),
        ({"message": "slow", "type": "rate_limit_error"}, "model_rate_limited", True),
        ({"message": "no", "code": "DataInspectionFailed"}, "content_filtered", False),
        ({"message": "API key not valid"}, "model_auth", False),
    ],
)
def test_an_error_under_a_success_status_is_classed_by_what_it_says(
    error: object, reason: str, retryable: bool
) -> None:
    """Case 027, as a body, as an event, and as an event after output."""
    document = {"error": error}
    for answer in (
        Reply(pieces=(json.dumps(document).encode(),)),
        Reply(pieces=(event(document),)),
        Reply(pieces=(event({"choices": [{"delta": {"content": "x"}}]}), event(document))),
    ):
        with pytest.raises(ModelCallError) as failure:
            read(answer)
        assert (failure.value.reason, failure.value.retryable) == (reason, retryable)


@pytest.mark.parametrize(
    ("document", "reason", "retryable"),
    [
        ({"object": "error", "message": "bad key", "type": "AuthenticationError", "code": 401}, "model_auth", False),
        ({"object": "error", "message": "no such model", "code": 404}, "model_not_found", False),
        ({"code": 402, "msg": "top up", "success": False}, "model_quota", False),
        ({"code": "InvalidApiKey", "message": "no"}, "model_auth", False),
        ({"detail": "Not authenticated"}, "model_auth", False),
        ({"choices": None, "base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}}, "model_quota",
         False),
        ({"choices": None, "base_resp": {"status_code": 1002, "status_msg": "rate limit"}}, "model_rate_limited", True),
        ({"choices": [], "base_resp": {"status_code": 1000, "status_msg": "unknown"}}, "model_unavailable", True),
    ],
)  # fmt: skip
def test_a_failure_under_a_success_status_is_seen_without_an_error_field(
    document: dict[str, Any], reason: str, retryable: bool
) -> None:
    """Case 027, SPEC L1, A5: a `[DONE]` behind it makes no answer of what came before."""
    said = event({"choices": [{"delta": {"content": "x"}}]})
    for answer in (json.dumps(document).encode(), event(document), said + event(document) + b"data: [DONE]\n\n"):
        with pytest.raises(ModelCallError) as failure:
            read(answer)
        assert (failure.value.reason, failure.value.retryable) == (reason, retryable)


@pytest.mark.parametrize(
    ("event_of_error", "reason"),
    [
        (b'event: error\ndata: {"message": "quota exceeded", "code": 402}\n\n', "model_quota"),
        (b"event:error\ndata:upstream failed\n\n", "model_unavailable"),
        (b'error: {"code": 400, "type": "exceed_context_size_error"}\n\n', "context_length"),
    ],
)
def test_an_event_of_an_error_is_one_whatever_it_holds(event_of_error: bytes, reason: str) -> None:
    """SPEC L1: named by the event's type, or by a field that the standard does not have."""
    with pytest.raises(ModelCallError) as failure:
        read(event({"choices": [{"delta": {"content": "x"}}]}) + event_of_error + b"data: [DONE]\n\n")
    assert failure.value.reason == reason


@pytest.mark.parametrize(
    "beside",
    [
        {"error": {}},
        {"error": {"message": "", "code": None}},
        {"base_resp": {"status_code": 0, "status_msg": ""}},
        {"code": 0, "message": "ok"},
    ],
)
def test_an_empty_error_beside_an_answer_is_none(beside: dict[str, Any]) -> None:
    """SPEC L1: some servers send the field in each document."""
    answer = {"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]} | beside
    assert read(json.dumps(answer).encode()).content == "x"


@pytest.mark.parametrize("rest", ["null", "bye", '"[DONE]"', "[done]", "[DONE]", '{"code": 1, "message": "bye"}'])
def test_what_comes_after_the_finish_reason_and_is_no_answer_takes_nothing_away(rest: str) -> None:
    """SPEC L1."""
    whole = event({"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}]})
    assert read(whole + f"data: {rest}\n\n".encode()).content == "x"


@pytest.mark.parametrize("marks", [{}, {"index": 0}])
def test_text_and_calls_in_choices_of_their_own_are_one_answer(marks: dict[str, int]) -> None:
    """SPEC L1: calls are not lost because a server gives them a second place with the same index or none."""
    asked = [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    messages = [{"content": "I look"}, {"content": None, "tool_calls": asked}]
    choices = [{"message": message, "finish_reason": "tool_calls", **marks} for message in messages]
    reply = read(json.dumps({"choices": choices}).encode())
    assert (reply.content, called(reply)) == ("I look", [("a", "f", "{}")])


@pytest.mark.parametrize("reason", ["error", "insufficient_system_resource", "abort", "failed", "timeout", "a.ERROR"])
def test_a_finish_reason_that_reports_a_breakdown_is_a_failed_attempt(reason: str) -> None:
    """Case 027."""
    with pytest.raises(ModelCallError) as failure:
        read(text("half", finish_reason=reason))
    assert failure.value.retryable


@pytest.mark.parametrize("reason", ["model_context_window_exceeded", "CONTEXT_LENGTH_EXCEEDED"])
@pytest.mark.parametrize("said", ["", "half"])
def test_a_finish_reason_that_reports_a_full_window_is_the_overflow_it_names(reason: str, said: str) -> None:
    """SPEC B7: a larger output limit mends nothing, a compaction may."""
    with pytest.raises(ModelCallError) as failure:
        read(text(said, finish_reason=reason))
    assert (failure.value.reason, failure.value.retryable) == ("context_length", False)


@pytest.mark.parametrize(
    ("reply", "finish"),
    [
        (calls(("t", "{}"), finish_reason="stop"), "tool_calls"),
        (text("final text", finish_reason="tool_calls"), "stop"),
        (calls(("t", '{"a": "cut'), finish_reason="length"), "length"),
        (text("half an ans", finish_reason="content_filter"), "content_filter"),
        (text("", finish_reason="content_filter"), "content_filter"),
        (text("x", finish_reason="max_tokens"), "length"),
        (text("x", finish_reason="brand_new"), "other"),
        (text("x", finish_reason="FinishReason.MAX_TOKENS"), "length"),
        (text("x", finish_reason="refusal"), "content_filter"),
        (text("x", finish_reason="PROHIBITED_CONTENT"), "content_filter"),
        (text("x", finish_reason="content_filter: RECITATION"), "content_filter"),
        (text("Let me", finish_reason="malformed_function_call"), "malformed_call"),
        (calls(("t", "{}"), finish_reason="function_call_filter: MALFORMED_FUNCTION_CALL"), "malformed_call"),
    ],
)
def test_the_finish_reason_is_what_the_content_bears_out(reply: Reply, finish: str) -> None:
    """Cases 023, 025, 026: the provider's own word is kept beside it."""
    assert read(reply).finish_reason == finish


@pytest.mark.parametrize("word", ["", "null", "None", "in_progress", None, 0])
def test_a_word_for_no_reason_yet_completes_no_answer(word: object) -> None:
    """SPEC A5: half a text is none because a server writes the absence of a reason as a word."""
    half = event({"choices": [{"index": 0, "delta": {"content": "half"}, "finish_reason": word}]})
    with pytest.raises(IncompleteAnswerError):
        read(half)
    whole = event({"choices": [{"index": 0, "delta": {"content": " and half"}, "finish_reason": "stop"}]})
    assert read(half + whole).content == "half and half"


@pytest.mark.parametrize(
    ("first", "then", "finish"),
    [
        ("length", "stop", "length"),
        ("content_filter", "stop", "content_filter"),
        ("stop", "length", "length"),
        ("length", "content_filter", "content_filter"),
        ("tool_calls", "stop", "stop"),
    ],
)
def test_a_second_reason_takes_back_no_cut_and_no_filter(first: str, then: str, finish: str) -> None:
    """SPEC L1: gateways close each stream with a `stop` of their own."""
    pieces = [event({"choices": [{"delta": {"content": "x"}, "finish_reason": reason}]}) for reason in (first, then)]
    assert read(Reply(pieces=tuple(pieces))).finish_reason == finish


def test_an_answer_without_text_and_calls_is_an_empty_reply() -> None:
    """SPEC L1: called what it is; the next loop decides."""
    reply = read(text(""))
    assert (reply.content, reply.calls, reply.finish_reason) == (None, (), "stop")


def test_an_answer_without_a_done_mark_is_complete_once_it_has_a_finish_reason() -> None:
    """SPEC L1: missing `[DONE]`."""
    assert read(deltas_reply([{"content": "x"}], usage=None, done=False)).content == "x"


def test_a_done_mark_without_a_finish_reason_completes_what_came() -> None:
    """SPEC L1: decided; the server said that nothing follows."""
    assert read(deltas_reply([{"content": "x"}], finish_reason=None)).finish_reason == "stop"
    with pytest.raises(MalformedAnswerError):
        read(b"data: [DONE]\n\n")


def test_an_end_without_either_is_a_fragment_and_no_reply() -> None:
    """SPEC A5."""
    reader = AnswerReader()
    reader.feed(event({"choices": [{"delta": {"content": "half", "reasoning": "why"}}]}))
    with pytest.raises(IncompleteAnswerError):
        reader.finish()
    fragment = reader.fragment()
    assert fragment is not None
    assert (fragment.content, fragment.reasoning_content) == ("half", "why")


def test_reasoning_is_kept_under_either_name_and_once() -> None:
    """SPEC A6."""
    reply = streamed(
        {"reasoning_content": "a"}, {"reasoning": "b"}, {"reasoning": "c", "reasoning_content": "c"}, {"content": "x"}
    )
    assert reply.reasoning_content == "abc"


def test_a_refusal_is_the_models_text_and_called_one() -> None:
    """SPEC L1: never a blank success."""
    refusal = streamed({"refusal": "I can't "}, {"refusal": "do that."}, finish="stop")
    assert (refusal.content, refusal.refused) == ("I can't do that.", True)
    assert not streamed({"content": "I can do that.", "refusal": None}, finish="stop").refused


def test_a_refusal_in_parts_and_empty_parts_are_understood() -> None:
    """SPEC L1: a part without a text says nothing, one that refuses is the model's text."""
    assert (
        streamed({"content": [{"type": "text", "text": None}, {"type": "refusal", "refusal": "No."}]}).content == "No."
    )


def test_content_in_parts_is_joined() -> None:
    """SPEC L1."""
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "a"}, "b"]
    reply = streamed({"content": parts}, finish="stop")
    assert (reply.content, reply.reasoning_content) == ("ab", "hm")


def test_a_second_choice_is_not_mixed_in() -> None:
    """SPEC L1: none was asked for."""
    pieces = [event({"choices": [{"index": i, "delta": {"content": str(i)}, "finish_reason": "stop"}]}) for i in (0, 1)]
    assert read(Reply(pieces=tuple(pieces))).content == "0"


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, Usage()),
        ({"prompt_tokens": 0, "completion_tokens": 0}, Usage()),
        ({"prompt_tokens": 9, "completion_tokens": 0}, Usage(input_tokens=9, output_tokens=0)),
        ({"prompt_tokens": -1, "completion_tokens": 2}, Usage(output_tokens=2)),
        ({"prompt_tokens": "9", "completion_tokens": True}, Usage()),
        ({"prompt_tokens": 9.0, "completion_tokens": float("inf")}, Usage(input_tokens=9)),
        (
            {"prompt_tokens": 9, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4},
             "completion_tokens_details": {"reasoning_tokens": 3}},
            Usage(input_tokens=9, output_tokens=5, cached_tokens=4, reasoning_tokens=3),
        ),
        (
            {"prompt_tokens": 9, "completion_tokens": 5, "prompt_cache_hit_tokens": 8},
            Usage(input_tokens=9, output_tokens=5, cached_tokens=8),
        ),
        ({"prompt_tokens": 9, "completion_tokens": 5, "cached_tokens": 7},
         Usage(input_tokens=9, output_tokens=5, cached_tokens=7)),
        ({"prompt_tokens": 9, "completion_tokens": 1e300}, Usage(input_tokens=9)),
        ({"input_tokens": 9, "output_tokens": 5}, Usage(input_tokens=9, output_tokens=5)),
        (
            {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 17,
             "completion_tokens_details": {"reasoning_tokens": 3}},
            Usage(input_tokens=9, output_tokens=8, reasoning_tokens=3),
        ),
        (
            {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14,
             "completion_tokens_details": {"reasoning_tokens": 3}},
            Usage(input_tokens=9, output_tokens=5, reasoning_tokens=3),
        ),
    ],
)  # fmt: skip
def test_usage_is_what_the_provider_said_and_unknown_otherwise(usage: object, expected: Usage) -> None:
    """SPEC L5: unknown is not zero."""
    assert read(deltas_reply([{"content": "x"}], usage=usage)).usage == expected


@pytest.mark.parametrize(
    "last",
    [
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": {"prompt_tokens": 9}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "x_groq": {"usage": {"prompt_tokens": 9}}},
        {"choices": [], "usage": {"prompt_tokens": 9}, "x_groq": "none"},
    ],
)
def test_usage_is_found_where_servers_put_it(last: dict[str, Any]) -> None:
    """SPEC L5: in the document, in its choice, under a name of the server's own."""
    pieces = (event({"choices": [{"index": 0, "delta": {"content": "x"}}]}), event(last), b"data: [DONE]\n\n")
    assert read(Reply(pieces=pieces)).usage == Usage(input_tokens=9)


def test_a_late_report_of_zeros_does_not_erase_an_earlier_one() -> None:
    """SPEC L5."""
    good, zero = {"prompt_tokens": 3, "completion_tokens": 2}, {"prompt_tokens": 0, "completion_tokens": 0}
    pieces = (event({"choices": [{"delta": {"content": "x"}}], "usage": good}), event({"choices": [], "usage": zero}))
    assert read(Reply(pieces=(*pieces, b"data: [DONE]\n\n"))).usage.input_tokens == 3


def test_a_running_count_in_each_event_is_no_sum_and_keeps_what_it_said_of_the_cache() -> None:
    """SPEC L5."""
    counts = [
        {"prompt_tokens": 9, "completion_tokens": 1},
        {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}},
        {"prompt_tokens": 9, "completion_tokens": 3},
    ]
    pieces = [event({"choices": [{"delta": {"content": "x"}}], "usage": count}) for count in counts]
    reply = read(Reply(pieces=(*pieces, b"data: [DONE]\n\n")))
    assert reply.usage == Usage(input_tokens=9, output_tokens=3, cached_tokens=4)


def test_lone_surrogates_are_replaced_and_the_change_is_told() -> None:
    """Case 061."""
    reader = AnswerReader()
    reader.feed(b'{"choices":[{"finish_reason":"stop","message":{"content":"x\\ud83d"}}]}')
    reply = reader.finish()
    assert (reply.content, reader.is_normalised) == ("x\ufffd", True)


def test_a_pair_whose_halves_come_in_two_deltas_is_whole() -> None:
    """Case 061: no loss, so nothing to tell."""
    reader = AnswerReader()
    for half in (b"\\ud83d", b"\\ude42"):
        reader.feed(b'data: {"choices":[{"delta":{"content":"' + half + b'"}}]}\n\n')
    reader.feed(b"data: [DONE]\n\n")
    assert (reader.finish().content, reader.is_normalised) == ("🙂", False)


def test_a_look_at_half_a_pair_is_no_loss_of_the_whole() -> None:
    """SPEC A5, L5: what has come is looked at while it comes, which changes nothing that is said of the answer."""
    reader = AnswerReader()
    first, *rest = (json.dumps({"choices": [{"delta": {"content": half}}]}) for half in ("\ud83d", "\ude42"))
    reader.feed(f"data: {first}\n\n".encode())
    half = reader.fragment()
    assert half is not None
    assert half.content == "\ufffd"
    reader.feed("".join(f"data: {one}\n\n" for one in (*rest, "[DONE]")).encode())
    assert (reader.finish().content, reader.is_normalised) == ("🙂", False)


@pytest.mark.parametrize(
    "odd", [{"content": 5}, {"tool_calls": {}}, {"tool_calls": ["x"]}, {"content": [{"type": "new"}]}]
)
def test_deltas_of_an_unknown_shape_are_a_named_failure(odd: dict[str, Any]) -> None:
    """SPEC L1: never left out in silence."""
    with pytest.raises(MalformedAnswerError):
        streamed(odd)


def test_output_is_seen_at_the_first_text_reasoning_or_call() -> None:
    """SPEC S6: an empty role delta is no output."""
    for delta in ({"content": "x"}, {"reasoning_content": "x"}, piece(0, "a", "f", "")):
        reader = AnswerReader()
        reader.feed(event({"choices": [{"delta": {"role": "assistant", "content": ""}}]}))
        assert not reader.has_output
        reader.feed(event({"choices": [{"delta": delta}]}))
        assert reader.has_output


@pytest.mark.parametrize(
    "part",
    [{"type": "thinking", "thinking": []}, {"type": "thinking", "thinking": ""}, {"type": "refusal", "refusal": ""}],
)
def test_a_part_with_nothing_in_it_is_no_output(part: dict[str, Any]) -> None:
    """SPEC S6: it is no evidence that the model has begun, and no refusal."""
    reader = AnswerReader()
    reader.feed(event({"choices": [{"delta": {"content": [part]}}]}))
    assert not reader.has_output
    reader.feed(event({"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}]}))
    assert (reader.finish().content, reader.finish().refused) == ("x", False)

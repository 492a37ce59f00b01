"""The bytes of a request: legal for strict servers, the same every time, and a stable prefix of the next one."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context.messages import ChatMessage, ToolCall
from context.policy import FrozenTool
from providers.profiles import Profile, profile_for
from providers.wire import (
    MESSAGE_SEPARATOR,
    NO_OUTPUT,
    assemble,
    request_fields,
    tools_json,
    unit_bytes,
    wire_arguments,
    wire_units,
)
from tests.support.bodies import build_body
from tests.support.strict_chat import Dialect, violations

PROVIDERS = ["openai", "deepseek", "openai_compatible", "demo"]
TOOL = FrozenTool(name="look", description="Looks.", parameters={}, kind="python", entry_name="look")


def user(content: str) -> ChatMessage:
    return ChatMessage(role="user", content=content)


def call(call_id: str, arguments: str = "{}", name: str = "look") -> ToolCall:
    return ToolCall(call_id=call_id, name=name, arguments=arguments)


def asking(*calls: ToolCall, content: str | None = None, reasoning: str | None = None) -> ChatMessage:
    return ChatMessage(role="assistant", content=content, tool_calls=calls, reasoning_content=reasoning)


def result(call_id: str, content: str | None = "found") -> ChatMessage:
    return ChatMessage(role="tool", tool_call_id=call_id, name="look", content=content)


def body(
    messages: Sequence[ChatMessage],
    provider: str = "openai",
    *,
    tools: Sequence[FrozenTool] = (TOOL,),
    merge: bool | None = None,
) -> bytes:
    return build_body(
        profile=profile_for(provider),
        model="m",
        messages=messages,
        tools=tools,
        max_output_tokens=100,
        parameters={"temperature": 0.5},
        merge_user_messages=merge,
    )


def sent(messages: Sequence[ChatMessage], provider: str = "openai", **options: Any) -> dict[str, Any]:
    request: dict[str, Any] = json.loads(body(messages, provider, **options))
    return request


@pytest.mark.parametrize(
    ("provider", "field"),
    [
        ("openai", "max_completion_tokens"),
        ("deepseek", "max_tokens"),
        ("openai_compatible", "max_tokens"),
        ("demo", "max_tokens"),
    ],
)
def test_the_output_limit_is_sent_under_the_dialects_name(provider: str, field: str) -> None:
    """SPEC L1, L4."""
    request = sent([user("q")], provider)
    assert request[field] == 100
    assert len({"max_tokens", "max_completion_tokens"} & request.keys()) == 1


def test_every_request_streams_and_asks_for_usage() -> None:
    """SPEC L1, L5."""
    request = sent([user("q")])
    assert request["stream"] is True
    assert request["stream_options"] == {"include_usage": True}
    assert request["temperature"] == 0.5


def test_a_server_that_refuses_stream_options_is_sent_none() -> None:
    """SPEC A11, L5: the tokens are then counted here."""
    fields = request_fields(
        profile=profile_for("openai_compatible"),
        model="m",
        tools=(),
        max_output_tokens=5,
        parameters={"stream_options": None, "top_p": None},
    )
    assert json.loads(fields) == {"model": "m", "max_tokens": 5, "stream": True, "top_p": None}


def test_no_empty_tool_lists_are_sent() -> None:
    """SPEC A11."""
    request = sent([user("q"), ChatMessage(role="assistant", content="a"), user("q2")], tools=())
    assert "tools" not in request
    assert "tool_calls" not in request["messages"][1]
    assert tools_json([]) == ""


def test_a_tool_without_parameters_still_has_an_object_schema() -> None:
    """SPEC A11."""
    function = sent([user("q")])["tools"][0]["function"]
    assert function["parameters"] == {"type": "object", "properties": {}}


@pytest.mark.parametrize("broken", ['{"cmd": "ls', "[1]", '"text"', "null", '{"a": NaN}', "{'a': 1}", "[" * 100_000])
def test_broken_arguments_become_an_empty_object_on_the_wire(broken: str) -> None:
    """Case 012: one poisoned record never makes later requests fail."""
    request = body([user("q"), asking(call("c", broken)), result("c", "invalid arguments")])
    assert violations(request) == []
    assert json.loads(request)["messages"][1]["tool_calls"][0]["function"]["arguments"] == "{}"


@pytest.mark.parametrize("empty", ["", "  ", "\n"])
def test_empty_arguments_become_an_empty_object(empty: str) -> None:
    """Case 013."""
    assert wire_arguments(empty) == "{}"


def test_good_arguments_go_out_as_they_came() -> None:
    """SPEC A11: byte for byte, spaces and order included."""
    text = '{ "b":1,  "a": "ü\\u00fc" }'
    assert wire_arguments(text) == text


@pytest.mark.parametrize(("levels", "is_sent"), [(64, True), (65, False), (400, False)])
def test_arguments_too_deep_for_any_tool_are_not_repeated(levels: int, is_sent: bool) -> None:
    """SPEC A11, T3: they were refused, and servers refuse requests that hold them."""
    text = '{"a":' * (levels - 1) + "{}" + "}" * (levels - 1)
    assert wire_arguments(text) == (text if is_sent else "{}")
    wide = json.dumps({"a": [{}] * 200})
    assert wire_arguments(wide) == wide


def test_lone_surrogates_in_arguments_are_made_encodable() -> None:
    """Case 061: also as escapes, which a strict JSON reader refuses; a whole pair stays."""
    assert json.loads(wire_arguments('{"a\\ud83d": ["x\\udcb0", "\\ud83d\\ude42"]}')) == {"a\ufffd": ["x\ufffd", "🙂"]}


def test_content_is_null_only_beside_calls() -> None:
    """Case 015."""
    history = [user("a"), asking(call("c1")), result("c1"), ChatMessage(role="assistant", content=""), user("b")]
    messages = sent(history)["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "user"]
    assert messages[1]["content"] is None
    assert violations(body(history)) == []


@pytest.mark.parametrize("nothing", ["", "\r\n", " \t", None])
def test_an_empty_tool_result_carries_a_marker(nothing: str | None) -> None:
    """Case 017."""
    request = sent([user("q"), asking(call("c")), result("c", nothing)])
    assert request["messages"][2] == {"role": "tool", "tool_call_id": "c", "content": NO_OUTPUT}


def test_blank_content_beside_calls_is_null() -> None:
    """Case 017: servers that refuse whitespace."""
    assert sent([user("q"), asking(call("c"), content="\n\n"), result("c")])["messages"][1]["content"] is None


def test_an_impossible_tool_name_is_made_legal() -> None:
    """SPEC A11: a model can invent any name; the record keeps it."""
    names = ["get weather!", "", "x" * 99, "工具"]
    calls = [call(str(i), name=name) for i, name in enumerate(names)]
    request = body([user("q"), asking(*calls), *(result(str(i)) for i in range(len(names)))])
    assert violations(request) == []


def test_a_request_always_has_a_user_message_at_a_place_that_stays() -> None:
    """SPEC A11, A7."""
    system = ChatMessage(role="system", content="s")
    first, second = body([system]), body([system, asking(call("c")), result("c")])
    assert violations(first) == violations(second) == []
    assert second.startswith(first[: first.index(b"]")])


def test_adjacent_user_messages_stay_apart_by_default() -> None:
    """Case 021."""
    assert [m["content"] for m in sent([user("a"), user("b")])["messages"]] == ["a", "b"]


def test_adjacent_user_messages_are_joined_visibly_where_asked() -> None:
    """Case 021: word for word, in order, separable."""
    texts = ["Write the plan", "Only Docker", "No public ports"]
    request = body([user(text) for text in texts], merge=True)
    (message,) = json.loads(request)["messages"]
    assert message["content"].split(MESSAGE_SEPARATOR) == texts
    assert violations(request, dialect="alternating") == []


def test_a_result_between_keeps_user_messages_apart_even_when_joining() -> None:
    """SPEC A4: nothing moves over a call and its result."""
    request = body([user("a"), asking(call("c")), result("c"), user("b"), user("c")], merge=True)
    assert [m["role"] for m in json.loads(request)["messages"]] == ["user", "assistant", "tool", "user"]


def test_joining_a_later_message_only_appends() -> None:
    """SPEC A7."""
    before, after = (body([user(t) for t in texts], merge=True) for texts in (["a"], ["a", "b"]))
    text_end = before.index(b'"}')
    assert after[:text_end] == before[:text_end]


def test_deepseek_gets_reasoning_back_where_its_turn_called_tools() -> None:
    """Case 019, SPEC A6: between two user messages, once tools were called, and not otherwise."""
    history = [
        user("q1"), ChatMessage(role="assistant", content="plain", reasoning_content="r0"),
        user("q2"), asking(call("c1"), reasoning="r1 text"), result("c1"),
        ChatMessage(role="assistant", content="done", reasoning_content="r2"), user("q3"),
    ]  # fmt: skip
    messages = sent(history, "deepseek")["messages"]
    assert [m.get("reasoning_content") for m in messages] == [None, None, None, "r1 text", None, "r2", None]


def test_missing_reasoning_is_an_empty_field_never_an_invention() -> None:
    """Case 019: DeepSeek wants the field itself, even where there is nothing to put in."""
    request = body([user("q"), asking(call("c")), result("c")], "deepseek")
    assert violations(request, dialect="deepseek_thinking") == []
    assert json.loads(request)["messages"][1]["reasoning_content"] == ""


@pytest.mark.parametrize("provider", ["openai", "openai_compatible", "demo"])
def test_reasoning_is_left_out_where_it_is_refused(provider: str) -> None:
    """SPEC A6."""
    request = body([user("q"), asking(call("c"), reasoning="secret thought"), result("c")], provider)
    assert b"secret thought" not in request
    assert violations(request) == []


def test_messages_come_first_so_that_one_request_begins_with_the_one_before() -> None:
    """SPEC A7."""
    before = [ChatMessage(role="system", content="s"), user("q")]
    after = [*before, asking(call("c")), result("c")]
    first, second = body(before), body(after)
    assert first.startswith(b'{"messages":[{"role":"system"')
    assert second.startswith(first[: first.index(b"]")])


def test_joining_kept_bytes_gives_the_same_body() -> None:
    """DESIGN 10: a step need not serialise old messages again."""
    profile = profile_for("deepseek")
    history = [user("q"), asking(call("c"), reasoning="r"), result("c"), user("b"), user("c")]
    parts = [unit_bytes(unit, profile=profile) for unit in wire_units(history, profile=profile)]
    fields = request_fields(
        profile=profile, model="m", tools=[TOOL], max_output_tokens=100, parameters={"temperature": 0.5}
    )
    assert assemble(parts, fields=fields) == body(history, "deepseek")


def test_text_in_any_script_goes_out_as_utf8() -> None:
    """SPEC A9: one byte form, unescaped."""
    assert "重跑🙂".encode() in body([user("重跑🙂")])


TEXTS = st.one_of(st.text(max_size=20), st.sampled_from(["", " ", "\n", "\ud83d", "{", "<|endoftext|>"]))
ARGUMENTS = st.one_of(
    TEXTS,
    st.dictionaries(st.text(max_size=3), st.one_of(st.integers(), TEXTS), max_size=2).map(json.dumps),
    st.sampled_from(['{"a":', "", "[]", "null"]),
)


@st.composite
def legal_histories(draw: st.DrawFn) -> list[ChatMessage]:
    """Histories whose pairing is right and whose texts are anything."""
    messages = [ChatMessage(role="system", content=draw(TEXTS))] if draw(st.booleans()) else []
    serial = 0
    for _ in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(["user", "answer", "batch"]))
        if kind == "user":
            messages.append(user(draw(TEXTS)))
        elif kind == "answer":
            messages.append(ChatMessage(role="assistant", content=draw(TEXTS), reasoning_content=draw(TEXTS)))
        else:
            ids = [f"call-{serial + i}" for i in range(draw(st.integers(1, 3)))]
            serial += len(ids)
            asked = [call(i, draw(ARGUMENTS), draw(TEXTS)) for i in ids]
            messages.append(asking(*asked, content=draw(TEXTS), reasoning=draw(st.none() | TEXTS)))
            messages += [result(i, draw(st.none() | TEXTS)) for i in ids]
    return messages


@given(legal_histories(), st.sampled_from(PROVIDERS), st.booleans())
def test_a_strict_server_accepts_every_request(history: list[ChatMessage], provider: str, merge: bool) -> None:
    """SPEC A11: whatever models, tools and users have written."""
    dialect: Dialect = "deepseek_thinking" if provider == "deepseek" else "plain"
    request = body(history, provider, merge=merge)
    assert violations(request, dialect=dialect) == []
    assert request == body(history, provider, merge=merge)


@given(legal_histories(), st.sampled_from(PROVIDERS))
def test_every_request_begins_with_the_messages_of_the_one_before(history: list[ChatMessage], provider: str) -> None:
    """SPEC A7."""
    profile: Profile = profile_for(provider)
    whole = [unit_bytes(unit, profile=profile) for unit in wire_units(history, profile=profile)]
    for length in range(len(history)):
        part = [unit_bytes(unit, profile=profile) for unit in wire_units(history[:length], profile=profile)]
        assert whole[: len(part)] == part

"""What counts as a JSON body, and what is said about one that does not (SPEC Y5, Y6)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message, Receive, Scope, Send

from api.bodies import MAX_DEPTH, BodyLimit, strict_json
from context.errors import InputInvalidError

MARK = "planted-marker"

REFUSED = {
    "broken": (b'{"text": "' + MARK.encode(), "not valid JSON"),
    "not utf-8": (b'{"text": "\xff"}', "UTF-8"),
    "utf-16": ('{"text": "x"}'.encode("utf-16"), "UTF-8"),
    "a byte order mark": (b'\xef\xbb\xbf{"text": "x"}', "not valid JSON"),
    "a field twice": (b'{"text": "a", "text": "b"}', "twice: text"),
    "a field twice inside": (b'{"a": [{"b": 1, "b": 2}]}', "twice: (field 1)"),
    "NaN": (b'{"n": NaN}', "NaN"),
    "minus infinity": (b'{"n": -Infinity}', "Infinity"),
    "a float beyond range": (b'{"n": 1e999}', "too large"),
    "an integer of 10 000 digits": (b'{"n": ' + b"9" * 10_000 + b"}", "too large"),
    "NUL": (b'{"text": "a\\u0000b"}', "body.text holds a NUL"),
    "NUL in a name": (b'{"a\\u0000b": 1}', "body holds a NUL"),
    "a lone high surrogate": (b'{"text": "bad \\ud83d tail"}', "body.text holds half of a surrogate pair"),
    "a lone low surrogate, deep": (
        b'{"a": [1, {"b": "\\udcb0"}]}',
        "body.(field 1).1.(field 1) holds half of a surrogate pair",
    ),
    "a surrogate in a name": (b'{"\\ud83d": 1}', "body holds half of a surrogate pair"),
    "nesting": (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), "nested deeper"),
    "nesting beyond the parser": (b"[" * 200_000 + b"]" * 200_000, "nested deeper"),
    "two values": (b"{} {}", "not valid JSON"),
    "nothing but spaces": (b"   ", "not valid JSON"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_body_that_is_not_strict_json_is_refused_with_its_place_and_without_its_content(case: str) -> None:
    """Y5, Y6, C061."""
    body, said = REFUSED[case]
    with pytest.raises(InputInvalidError) as caught:
        strict_json(body)
    assert said in caught.value.message
    assert MARK not in caught.value.message


def test_a_name_that_is_not_ours_is_not_repeated() -> None:
    """Y6: the name of a field could be content too, so it is told by its position."""
    with pytest.raises(InputInvalidError) as caught:
        strict_json(json.dumps({"definition": {"name": "n", MARK: "x\0"}}).encode())
    assert caught.value.message == "body.definition.(field 2) holds a NUL character."


def test_nesting_up_to_the_limit_passes() -> None:
    """Y5."""
    assert strict_json(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    )
)
def test_json_that_breaks_no_rule_is_read_as_it_is(value: object) -> None:
    """Y5: the strict parser refuses NUL and nothing else of what a plain one takes."""
    body = json.dumps(value).encode()
    if b"\\u0000" in body:
        return
    assert strict_json(body) == json.loads(body)


async def test_a_request_whose_end_never_came_reaches_no_route() -> None:
    """S4, Y5: whatever arrived of it could be whole JSON, and would be taken for what the client meant."""
    reached: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        reached.append(scope)

    arriving: list[Message] = [
        {"type": "http.request", "body": b'{"text": "whole"}', "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> Message:
        return arriving.pop(0)

    async def send(message: Message) -> None:
        raise AssertionError(f"nobody is there to be sent {message}")

    await BodyLimit(app)({"type": "http", "path": "/", "headers": []}, receive, send)
    assert (reached, arriving) == ([], [])

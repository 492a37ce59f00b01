"""The checks that acceptance tests make on sent bytes see what they are there to see."""

import json

import pytest

from tests.support.compacting import Talk, check_protected
from tests.support.model_server import RecordedRequest
from tests.support.sent_bytes import common_prefix, input_bytes, messages_bytes, prefixes

FIRST, ADDED = "<talk-001 q1 i0> the question", "<talk-001 q1 i1> and this"


def request(*contents: str, **more: object) -> RecordedRequest:
    """A request whose user messages have these contents."""
    messages = [{"role": "user", "content": content} for content in contents]
    body = json.dumps({"model": "m", "messages": messages, **more}, ensure_ascii=False, separators=(",", ":"))
    return RecordedRequest(1, "POST", "/", {}, body.encode(), 0.0)


def talk(*texts: str) -> Talk:
    """Somebody who sent these inputs of the first question."""
    return Talk(None, 1, texts={text: (1, place) for place, text in enumerate(texts)})  # type: ignore[arg-type]


def test_the_message_list_is_read_as_it_was_written() -> None:
    """SPEC A7: bytes, not values."""
    sent = request('Grüße "]"', "b", tools=[{"a": 1}])
    assert (
        messages_bytes(sent.body).decode() == '{"role":"user","content":"Grüße \\"]\\""},{"role":"user","content":"b"}'
    )
    assert input_bytes(sent.body) == len(messages_bytes(sent.body)) + 2 + len('[{"a":1}]')


def test_a_prefix_that_breaks_is_measured() -> None:
    """SPEC A7: whole pairs, and the share of bytes that stayed."""
    assert [common_prefix(b"abc", two) for two in (b"abcd", b"abx", b"", b"ab")] == [3, 2, 0, 2]
    found = prefixes([[request("a"), request("a", "b"), request("x", "b")]])
    assert (found.pairs, found.whole) == (2, 1)
    assert found.share < 1


def test_inputs_that_stand_whole_and_in_order_pass() -> None:
    """SPEC A2."""
    check_protected(talk(FIRST, ADDED), [request(FIRST), request("a summary", FIRST, "x", ADDED)])


@pytest.mark.parametrize(
    ("requests", "said"),
    [
        ([request(FIRST, ADDED), request(FIRST)], "missing"),
        ([request(FIRST), request(FIRST + "!")], "changed"),
        ([request(FIRST, FIRST)], "twice"),
        ([request(ADDED, FIRST)], "order"),
        ([request(ADDED)], "without its question"),
    ],
)
def test_an_input_that_is_not_as_it_must_be_is_seen(requests: list[RecordedRequest], said: str) -> None:
    """SPEC A2, P3: lost, changed, doubled, out of order, alone."""
    with pytest.raises(AssertionError, match=said):
        check_protected(talk(FIRST, ADDED), requests)

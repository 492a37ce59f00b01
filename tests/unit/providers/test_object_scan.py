"""When an object that comes in pieces is whole."""

import itertools
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as some

from providers.call_slots import MAX_CALLS, CallSlots
from providers.errors import MalformedAnswerError
from providers.object_scan import ObjectScan

VALUES = some.recursive(
    some.none() | some.integers() | some.text(alphabet='ab\\"{}[] \n\u20ac', max_size=8),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(alphabet='a"\\{', max_size=3), inner),
    max_leaves=8,
)


@given(some.dictionaries(some.text(max_size=3), VALUES, max_size=3), some.lists(some.integers(0, 80), max_size=5))
def test_an_object_is_closed_at_its_last_bracket_and_not_before(value: dict[str, object], cuts: list[int]) -> None:
    """SPEC L1: however it is cut, and whatever its strings hold."""
    text = json.dumps(value, ensure_ascii=False)
    scan, places = ObjectScan(), sorted({min(cut, len(text) - 1) for cut in cuts} | {0, len(text) - 1})
    for start, end in itertools.pairwise(places):
        scan.feed(text[start:end])
        assert not scan.is_closed
    scan.feed(text[-1])
    assert scan.is_closed
    scan.feed(" \n")
    assert scan.is_closed
    scan.feed("x")
    assert not scan.is_closed


@pytest.mark.parametrize("text", ["", " ", "5", "[]", '"{}"', "{}{}", "x{}", '{"a": "}', "{]]", '{"a\\"}'])
def test_what_is_no_object_is_never_closed(text: str) -> None:
    """SPEC L1."""
    scan = ObjectScan()
    for character in text:
        scan.feed(character)
    assert not scan.is_closed or text == "{]]"


@pytest.mark.parametrize(
    "mark",
    [{}, {"index": 0}, {"id": "c"}, {"index": 0, "id": "c", "function": {"name": "f"}}],
    ids=["nothing", "index", "id", "everything"],
)
def test_a_megabyte_of_arguments_in_small_pieces_is_put_together_in_no_time(mark: dict[str, object]) -> None:
    """SPEC L1, W5: the event loop, and with it the heartbeat, is not held up; pieces may even look like ends."""
    slots = CallSlots()
    slots.add(mark | {"function": {"name": "f", "arguments": '{"a":"'}})
    began = time.process_time()
    for _ in range(100_000):
        slots.add(mark | {"function": {**mark.get("function", {}), "arguments": "xxxxxxxxx}"}})  # type: ignore[dict-item]
    slots.add(mark | {"function": {"arguments": '"}'}})
    assert time.process_time() - began < 5
    (call,) = slots.calls()
    assert len(json.loads(call.arguments)["a"]) == 1_000_000


def test_more_calls_than_anybody_means_are_a_named_failure() -> None:
    """SPEC L1, Y4: an answer is bounded in each way."""
    slots = CallSlots()
    for number in range(MAX_CALLS):
        slots.add({"id": f"c{number}", "function": {"name": "f", "arguments": "{}"}})
    with pytest.raises(MalformedAnswerError):
        slots.add({"id": "one too many", "function": {"name": "f", "arguments": "{}"}})


@pytest.mark.parametrize("index", ["9" * 5_000, 10**30, -1, "x", 1.5, True, [0]])
def test_an_index_that_is_none_is_no_index(index: object) -> None:
    """SPEC L1: nothing raises but by name."""
    slots = CallSlots()
    slots.add({"index": index, "id": "c", "function": {"name": "f", "arguments": "{}"}})
    assert [call.name for call in slots.calls()] == ["f"]

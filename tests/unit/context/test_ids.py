"""Identities, texts and views."""

import hashlib
import os
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context.chain import EMPTY_CHAIN, RecordFact, follows, next_chain
from context.errors import InputInvalidError, TooLargeError
from context.ids import derived, model_operation_id, run_workflow_id, tool_operation_id, uuid7
from context.inputs import MAX_CHARS, check_text
from context.views import ViewItem, protected_tokens, system_message, total_tokens
from tests.support.builders import release, uid


@given(st.integers(0, 2**48 - 1), st.binary(min_size=10, max_size=10))
def test_a_new_id_is_a_version_seven_of_its_millisecond(unix_ms: int, chance: bytes) -> None:
    """RFC 9562: version, variant, and the time in front, so that ids sort by it."""
    made = uuid7(unix_ms, chance)
    assert (made.version, made.variant) == (7, "specified in RFC 4122")
    assert made.int >> 80 == unix_ms


def test_children_of_one_parent_are_apart_and_found_again() -> None:
    """SPEC W5: a repeat finds the first."""
    run = uuid7(1, os.urandom(10))
    made = [model_operation_id(run, "root", loop, turn) for loop in (1, 2, 12) for turn in (1, 2)]
    made += [tool_operation_id(one, ordinal) for one in made for ordinal in (0, 1)]
    assert len(set(made)) == len(made)
    assert derived(run, "a", 1) == derived(run, "a", 1)
    assert run_workflow_id(run) == f"run/{run}"


@pytest.mark.parametrize("text", ["", "  \n", "\u200b\ufeff \x01", "a\0b", "a\ud83db"])
def test_texts_no_run_may_get_are_refused_without_their_words(text: str) -> None:
    """SPEC Y5, Y6."""
    with pytest.raises(InputInvalidError) as error:
        check_text(text)
    assert "a" not in str(error.value.numbers)


def test_the_longest_text_is_allowed_and_the_next_is_not() -> None:
    """SPEC Y5."""
    check_text("x" * MAX_CHARS)
    with pytest.raises(TooLargeError) as error:
        check_text("x" * (MAX_CHARS + 1))
    assert error.value.numbers == {"characters": MAX_CHARS + 1, "limit": MAX_CHARS}


FACT = RecordFact(1, 7, "tool_result", "tool", "call_0", None, b"a" * 32)
OTHERS: dict[str, Any] = {
    "context_seq": 2,
    "seq": 8,
    "kind": "feedback",
    "role": "user",
    "call_id": None,
    "status": "error",
}


def test_the_chain_depends_on_everything_before() -> None:
    """SPEC M7: past, places, content, and what the record is taken for."""
    others = [replace(FACT, **{name: value}) for name, value in (OTHERS | {"digest": b"b" * 32}).items()]
    assert len(others) == len(fields(RecordFact))
    one = next_chain(EMPTY_CHAIN, FACT)
    assert len({one, *(next_chain(EMPTY_CHAIN, other) for other in others)}) == len(others) + 1
    assert next_chain(one, FACT) != one


def test_a_chain_goes_on_from_the_form_that_knew_place_and_content_only() -> None:
    """SPEC M7: what an earlier version wrote stays true, in one chain with what came later."""
    old = hashlib.sha256(EMPTY_CHAIN + (1).to_bytes(8, "big") + FACT.digest).digest()
    then = replace(FACT, context_seq=2)
    assert follows(old, EMPTY_CHAIN, FACT)
    assert follows(next_chain(old, then), old, then)
    assert not follows(old, EMPTY_CHAIN, replace(FACT, digest=b"b" * 32))
    assert not follows(old, EMPTY_CHAIN, then)


def test_instructions_in_parts_become_one_system_message() -> None:
    """SPEC A1, C1: in their order, and nothing else goes there."""
    parts = [{"name": "tone", "text": " Be brief. "}, {"name": "task", "text": "Count."}]
    message = system_message(release(instructions=parts).definition)
    assert message is not None
    assert message.content == "# tone\n\nBe brief.\n\n# task\n\nCount."
    assert system_message(release(instructions=" ").definition) is None


def test_only_current_inputs_and_the_system_message_are_protected() -> None:
    """SPEC A2: an earlier Run's input may be left out."""
    items = (
        ViewItem("system", b"s", 1),
        ViewItem("input", b"old", 2, uid("old"), run_no=1),
        ViewItem("input", b"now", 4, uid("now")),
        ViewItem("tool_result", b"r", 8),
    )
    assert (total_tokens(items), protected_tokens(items)) == (15, 5)

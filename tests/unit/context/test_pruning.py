"""Old tool output as previews, old long arguments cut."""

import json
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context.messages import ChatMessage, ToolCall, arguments_object, message_bytes
from context.policy import ResultSettings
from context.pruning import (
    LeaveAll,
    Prune,
    Shorter,
    applied,
    candidates,
    cut_arguments,
    plan_pruning,
    pruned_result,
)
from context.views import ItemKind, ViewItem


def item(kind: ItemKind, number: int, tokens: int = 10) -> ViewItem:
    return ViewItem(kind, b"p%d" % number, tokens, UUID(int=number))


def turn(number: int, tokens: int) -> list[ViewItem]:
    return [item("assistant", 2 * number), item("tool_result", 2 * number + 1, tokens)]


def view(*sizes: int) -> list[ViewItem]:
    return [item("input", 999), *(one for number, tokens in enumerate(sizes) for one in turn(number, tokens))]


def settings(protect: int = 100, prune: int = 50, cut: int | None = None) -> ResultSettings:
    return ResultSettings(protect_tokens=protect, prune_tokens=prune, max_argument_chars=cut)


RESULT = ChatMessage(
    role="tool", content="H" * 20 + "." * 61 + "T" * 20, tool_call_id="c", name="lookup", status="error"
)


def test_the_newest_tool_output_is_protected_and_a_result_that_crosses_the_line_with_it() -> None:
    """SPEC T5."""
    items = view(70, 70, 70, 20, 20)
    oldest, second = (2, "tool_result_pruned"), (4, "tool_result_pruned")
    assert candidates(items, settings(protect=110)) == (oldest, second)
    assert candidates(items, settings(protect=111)) == (oldest,)
    assert candidates(items, settings(protect=180)) == (oldest,)
    assert candidates(items, settings(protect=181)) == ()


def test_the_two_newest_groups_are_never_touched() -> None:
    """SPEC T5."""
    items = view(70, 70, 70)
    assert candidates(items, settings(protect=0, cut=20)) == ((1, "args_truncated"), (2, "tool_result_pruned"))
    assert candidates(view(70, 70), settings(protect=0, cut=20)) == ()
    assert candidates([item("input", 1)], settings(protect=0, cut=20)) == ()


def test_messages_without_calls_do_not_count_as_groups_here() -> None:
    """SPEC T5: two plain messages at the end protect nothing that matters."""
    items = [*view(70, 70, 70), item("assistant", 50), item("input", 51)]
    assert candidates(items, settings(protect=0)) == ((2, "tool_result_pruned"),)


def test_argument_cutting_is_off_unless_set() -> None:
    """SPEC T5."""
    assert all(transform != "args_truncated" for _, transform in candidates(view(70, 70, 70), settings(protect=0)))


def test_what_was_shortened_before_is_left() -> None:
    """SPEC A7: every change costs the prompt cache."""
    items = view(70, 70, 70)
    items[2] = replace(items[2], transform="tool_result_offload")
    assert candidates(items, settings(protect=0)) == ()


def test_nothing_is_pruned_until_enough_can_go() -> None:
    """SPEC T5."""
    items = view(70, 70, 70)
    short = [Shorter(2, "tool_result_pruned", 20)]
    assert plan_pruning(items, short, settings(prune=50)) == Prune(tuple(short), 50)
    assert plan_pruning(items, short, settings(prune=51)) == LeaveAll(50)


def test_what_would_not_get_shorter_is_left() -> None:
    """SPEC T5: a preview of a short result is longer than it."""
    items = view(70, 70, 70)
    worth, useless = Shorter(2, "tool_result_pruned", 5), Shorter(1, "args_truncated", 10)
    assert plan_pruning(items, [useless, worth], settings(prune=50)) == Prune((worth,), 65)
    assert plan_pruning(items, [useless], settings(prune=1)) == LeaveAll(0)


def test_only_the_items_of_the_plan_change() -> None:
    """SPEC T5: the view only."""
    items = view(70, 70)
    short = replace(items[2], payload_id=b"short", tokens=5, transform="tool_result_pruned")
    assert applied(items, {2: short}) == (*items[:2], short, *items[3:])


sizes = st.lists(st.integers(0, 200), max_size=8)


@given(sizes, st.integers(0, 400))
def test_pruning_never_reaches_into_the_protected_part(tokens: list[int], protect: int) -> None:
    """SPEC T5."""
    items = view(*tokens)
    for at, _ in candidates(items, settings(protect=protect, cut=20)):
        assert at <= 2 * (len(tokens) - 2)
        if items[at].kind == "tool_result":
            assert sum(one.tokens for one in items[at + 1 :] if one.kind == "tool_result") >= protect


# --- previews --------------------------------------------------------------------------------------------------------


def test_a_pruned_result_is_head_and_tail_with_ranges_and_reference() -> None:
    """SPEC T5."""
    short = pruned_result(RESULT, result_ref="op/1", preview_chars=20)
    notice, *rest = (short.content or "").splitlines()
    assert json.loads(notice)["shown_ranges"] == [[0, 20], [81, 101]]
    assert json.loads(notice)["result_ref"] == "op/1"
    assert json.loads(notice)["truncated"] is True
    assert rest == ["--- characters 0 to 20 ---", "H" * 20, "--- characters 81 to 101 ---", "T" * 20]


def test_a_pruned_result_answers_the_same_call_with_the_same_status() -> None:
    """SPEC A4."""
    short = pruned_result(RESULT, result_ref="op/1", preview_chars=20)
    assert (short.role, short.tool_call_id, short.name, short.status) == ("tool", "c", "lookup", "error")


def test_a_short_result_stays_as_it_is() -> None:
    """SPEC T5."""
    assert pruned_result(RESULT, result_ref="op/1", preview_chars=51) is RESULT


# --- arguments -------------------------------------------------------------------------------------------------------


def calling(arguments: str) -> ChatMessage:
    return ChatMessage(
        role="assistant", content="x", tool_calls=(ToolCall(call_id="c", name="write", arguments=arguments),)
    )


def arguments_of(message: ChatMessage) -> str:
    return message.tool_calls[0].arguments


def test_a_long_argument_keeps_its_first_twenty_characters_and_says_so() -> None:
    """SPEC T5."""
    cut = cut_arguments(
        calling(json.dumps({"path": "a.md", "text": "z" * 2_001, "lines": list(range(900))})), longest=2_000
    )
    arguments = json.loads(arguments_of(cut))
    assert arguments["path"] == "a.md"
    assert arguments["text"] == "z" * 20 + "… [AgentLoom: cut here, 2001 characters in all]"
    assert arguments["lines"].startswith("[0, 1, 2, 3, 4, 5, 6… [AgentLoom: cut here")


@pytest.mark.parametrize(
    "arguments", ["{}", "", '{"text":"' + "z" * 1_900 + '"}', "{broken" + "z" * 3_000, "[" + "1," * 2_000 + "1]"]
)
def test_short_and_broken_arguments_stay_as_they_are(arguments: str) -> None:
    """SPEC T5, A11."""
    message = calling(arguments)
    assert cut_arguments(message, longest=2_000) is message


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=60),
    lambda inner: st.lists(inner, max_size=8),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=8), json_values, max_size=4), st.integers(20, 60))
def test_cut_arguments_are_still_an_object_with_the_same_names(arguments: dict[str, object], longest: int) -> None:
    """SPEC A11."""
    cut = cut_arguments(calling(json.dumps(arguments)), longest=longest)
    shown = arguments_object(arguments_of(cut))
    assert shown is not None
    assert shown.keys() == arguments.keys()
    message_bytes(cut)


def test_an_escaped_half_surrogate_can_not_poison_the_request() -> None:
    """SPEC A11."""
    message_bytes(cut_arguments(calling('{"a":"\\ud800' + "z" * 100 + '"}'), longest=50))

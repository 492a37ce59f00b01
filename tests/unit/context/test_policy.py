"""What an agent definition takes and what it refuses, and where it says so (SPEC 18, Y5)."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from context.policy import AgentDefinition, ContextSettings, Release
from context.written import MAX_TEXT

MODEL: dict[str, Any] = {"provider": "demo", "model": "demo"}
TOOL: dict[str, Any] = {"kind": "python", "name": "t", "entry": "m:f"}
HOOK: dict[str, Any] = {"name": "h", "point": "tool.request", "kind": "python", "entry": "m:f"}


def defined(**change: Any) -> AgentDefinition:
    return AgentDefinition.model_validate({"name": "a", "model": MODEL} | change)


LAX: dict[str, tuple[dict[str, Any], tuple[str | int, ...]]] = {
    "a number in quotes": ({"model": MODEL | {"context_window": "131072"}}, ("model", "context_window")),
    "a fraction for a count": ({"model": MODEL | {"context_window": 131072.0}}, ("model", "context_window")),
    "a truth value for a count": ({"limits": {"max_loops": True}}, ("limits", "max_loops")),
    "a truth value for seconds": ({"limits": {"deadline_s": True}}, ("limits", "deadline_s")),
    "seconds in quotes": ({"model": MODEL | {"timeout_s": "300"}}, ("model", "timeout_s")),
    "a truth value for a price": ({"model": MODEL | {"price": {"input": True}}}, ("model", "price", "input")),
    "a truth value for a ratio": ({"context": {"trigger_ratio": True}}, ("context", "trigger_ratio")),
    "words for a ratio": ({"context": {"trigger_ratio": "most"}}, ("context", "trigger_ratio")),
    "a ratio of very many places": (
        {"context": {"target_ratio": "0.1234567890123456789"}},
        ("context", "target_ratio"),
    ),
    "a ratio that is no number": ({"context": {"trigger_ratio": float("nan")}}, ("context", "trigger_ratio")),
    "a number for a truth value": ({"tools": [TOOL | {"retry_unknown": 1}]}, ("tools", 0, "retry_unknown")),
    "a word for a truth value": ({"tools": [TOOL | {"retry_unknown": "yes"}]}, ("tools", 0, "retry_unknown")),
    "a number for text": ({"tools": [TOOL | {"description": 5}]}, ("tools", 0, "description")),
    "a number for instructions": ({"instructions": 5}, ("instructions",)),
    "a list for text": ({"instructions": [{"name": "n", "text": ["x"]}]}, ("instructions", "(list)", 0, "text")),
    "text for a list": ({"tools": "t"}, ("tools",)),
    "text for a command": (
        {"tools": [{"kind": "mcp", "name": "t", "command": "run it"}]},
        ("tools", 0, "command"),
    ),
    "a number for an effect": ({"tools": [TOOL | {"effect": 1}]}, ("tools", 0, "effect")),
}


@pytest.mark.parametrize("case", LAX)
def test_a_value_of_another_kind_is_refused_at_its_place(case: str) -> None:
    """Y5: wrong types are errors, and nothing is converted in silence."""
    change, place = LAX[case]
    with pytest.raises(ValidationError) as caught:
        defined(**change)
    assert [error["loc"] for error in caught.value.errors()] == [place]


TWICE: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "instructions": ("instructions", [{"name": "one", "text": "x"}, {"name": "one", "text": "y"}]),
    "tools": ("tools", [TOOL, TOOL]),
    "hooks": ("hooks", [HOOK, HOOK]),
    "shared_fields": ("shared_fields", [{"name": "f", "schema": {}}, {"name": "f", "schema": {}}]),
}


@pytest.mark.parametrize("case", TWICE)
def test_a_name_that_is_there_twice_is_told_by_its_positions(case: str) -> None:
    """T1, C1: names are unique; what was written is not repeated (Y6)."""
    key, entries = TWICE[case]
    with pytest.raises(ValidationError) as caught:
        defined(**{key: entries})
    [error] = caught.value.errors()
    assert error["loc"][0] == key
    assert error["msg"] == "Value error, entries 0 and 1 have the same name"


LARGE: dict[str, dict[str, Any]] = {
    "instructions": {"instructions": "x" * (MAX_TEXT + 1)},
    "a part of the instructions": {"instructions": [{"name": "n", "text": "x" * (MAX_TEXT + 1)}]},
    "all parts together": {"instructions": [{"name": f"n{n}", "text": "x" * (MAX_TEXT // 2)} for n in range(3)]},
    "many parts": {"instructions": [{"name": f"n{n}", "text": ""} for n in range(101)]},
    "a prompt": {"context": {"compaction_prompt": "x" * (MAX_TEXT + 1)}},
    "parameters": {"model": MODEL | {"parameters": {"x": "y" * 100_000}}},
    "a schema": {"tools": [TOOL | {"schema": {"x": "y" * 100_000}}]},
    "a description": {"tools": [TOOL | {"description": "x" * 20_001}]},
    "many tools": {"tools": [TOOL | {"name": f"t{n}"} for n in range(1_001)]},
    "a count": {"context": {"messages": 10**30}},
    "a price": {"model": MODEL | {"price": {"input": 10**30}}},
    "an address": {"model": MODEL | {"base_url": "https://" + "x" * 2_000}},
}


@pytest.mark.parametrize("case", LARGE)
def test_what_is_too_large_is_refused(case: str) -> None:
    """Y5: every text, list and number of a definition has a limit, which docs/agent-definition.md gives."""
    with pytest.raises(ValidationError):
        defined(**LARGE[case])


@pytest.mark.parametrize("headers", [{"X\r\nY": "v"}, {"": "v"}, {"X": "v\r\nY: w"}, {"X": "v\n"}])
def test_a_header_that_would_end_its_line_is_refused(headers: dict[str, str]) -> None:
    """Y5."""
    with pytest.raises(ValidationError):
        defined(tools=[{"kind": "http", "name": "t", "url": "https://x/", "headers": headers}])


def test_decimals_are_exactly_what_was_written() -> None:
    """B1: no binary floats; a number in a file and its text in a release are the same."""
    for written in (0.57, "0.57", "0.570"):
        assert defined(context={"trigger_ratio": written, "target_ratio": 0.5}).context.trigger_ratio == Decimal("0.57")
    assert defined(model=MODEL | {"price": {"input": 3}}).model.price.input == Decimal(3)  # type: ignore[union-attr]


@given(st.floats(1e-9, 1.0) | st.decimals("0.000000001", 1, places=9))
def test_any_ratio_that_is_taken_is_shown_in_a_form_that_is_taken(written: float | Decimal) -> None:
    """B1, 18."""
    try:
        taken = defined(context={"trigger_ratio": 1, "target_ratio": written}).context
    except ValidationError as error:  # more places than are kept, or no room below the trigger
        assert written == 1 or "decimal" in str(error)  # noqa: PT017
        return
    shown = taken.model_dump(mode="json")
    assert ContextSettings.model_validate(shown) == taken


def test_a_definition_shown_by_a_release_can_be_published_again() -> None:
    """18: what is read is what may be written, in JSON's forms."""
    model = MODEL | {"price": {"input": 0.15}, "parameters": {"temperature": 0.2, "stream_options": None}}
    whole = defined(model=model, tools=[TOOL], instructions=[{"name": "n", "text": "x"}], limits={"max_cost": 2})
    shown = whole.model_dump(mode="json", by_alias=True)
    assert AgentDefinition.model_validate(shown) == whole
    assert AgentDefinition.model_validate_json(whole.model_dump_json(by_alias=True)) == whole


def test_a_release_is_read_as_it_was_stored() -> None:
    """9: strictness is about what people write, and must not lock anybody out of what is stored."""
    release = Release(
        definition=defined(context={"trigger_ratio": 0.9}, tools=[TOOL | {"effect": "idempotent"}]),
        tools=(),
        context_window=9_999,
        window_source="manual",
        provider_output_limit=None,
        estimator_id="utf8-bytes/v1",
        base_url=None,
    )
    assert Release.model_validate_json(release.model_dump_json(by_alias=True)) == release

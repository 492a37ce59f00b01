"""What is said about arguments that fit and about those that don't."""

import json
from typing import Any

import pytest

from context.errors import ConfigurationInvalidError
from tools.arguments import Accepted, Refused, check_arguments, unknown_tool
from tools.schemas import checked_schema

PATH = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "deep": {"type": "object", "properties": {"n": {"type": "integer"}}}},
    "required": ["path"],
    "additionalProperties": False,
}
OPEN: dict[str, Any] = {"type": "object", "properties": {}}


def refusal(text: str, schema: dict[str, Any] = PATH) -> str:
    verdict = check_arguments(text, schema)
    assert isinstance(verdict, Refused)
    return verdict.message


def test_arguments_that_fit_are_accepted_as_they_are() -> None:
    """SPEC T3."""
    assert check_arguments('{"path": "a", "deep": {"n": 1}}', PATH) == Accepted({"path": "a", "deep": {"n": 1}})


@pytest.mark.parametrize("text", ["", "  \n"])
def test_no_text_means_no_arguments(text: str) -> None:
    """SPEC A11; case 013."""
    assert check_arguments(text, OPEN) == Accepted({})


def test_no_text_for_a_required_argument_names_the_argument() -> None:
    """Case 013."""
    assert "'path'" in refusal("")


@pytest.mark.parametrize("text", ['{"path": "a', "[]", "null", '"x"', "{'path': 1}", '{"path": NaN}', "[" * 100_000])
def test_text_that_is_no_json_object_is_refused(text: str) -> None:
    """SPEC T3: broken JSON is not repaired."""
    assert "JSON object" in refusal(text)


def test_a_wrong_type_names_the_place_and_not_the_value() -> None:
    """SPEC T3."""
    message = refusal('{"path": "a", "deep": {"n": "MARK"}}')
    assert message == "deep.n: must satisfy type integer"


def test_an_unknown_argument_is_named() -> None:
    """SPEC T3: nothing is guessed."""
    assert refusal('{"path": "a", "paths": 1}') == "arguments: unknown 'paths'"


def test_a_boolean_is_not_a_whole_number() -> None:
    """SPEC T3."""
    assert "deep.n" in refusal('{"path": "a", "deep": {"n": true}}')


def test_nesting_without_end_is_refused_and_not_followed() -> None:
    """SPEC T3: a recursive schema must not exhaust the stack."""
    schema = {"type": "object", "properties": {"a": {"$ref": "#"}}}
    assert "nested deeper" in refusal('{"a":' * 500 + "{}" + "}" * 500, schema)


@pytest.mark.parametrize("text", ['{"path": "\\ud83d"}', '{"path": "a", "\\udcb0": 1}', '{"deep": [["\\ud83d"]]}'])
def test_a_lone_surrogate_in_arguments_is_refused(text: str) -> None:
    """SPEC Y5; case 061: what can't be encoded must not reach a tool."""
    assert "surrogate" in refusal(text, OPEN)


def test_a_refusal_is_a_structured_result_that_names_its_type() -> None:
    """SPEC T9."""
    assert json.loads(Refused("x").content) == {"error": {"type": "InvalidArguments", "message": "x"}}


def test_an_unknown_tool_is_answered_with_the_names_there_are() -> None:
    """SPEC T3."""
    verdict = unknown_tool("reed", ["read", "list"])
    assert verdict.error_type == "UnknownTool"
    assert verdict.message == "There is no tool 'reed'. Tools: read, list."


def test_at_most_five_faults_are_named() -> None:
    """The message stays short whatever the model sends."""
    schema = {"type": "object", "properties": {f"p{n}": {"type": "integer"} for n in range(50)}}
    assert refusal(json.dumps({f"p{n}": "x" for n in range(50)}), schema).count(";") == 4


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "array"}, "object"),
        ({}, "object"),
        ({"type": "object", "properties": {"a": {"type": "strin"}}}, "properties.a.type"),
        ({"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/x.json"}}}, "http://127.0.0.1:9/x.json"),
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}}, "#/$defs/none"),
    ],
)
def test_a_schema_that_cannot_stand_alone_is_refused_at_publishing(schema: dict[str, Any], words: str) -> None:
    """SPEC T1: a frozen schema needs no network and no repair."""
    with pytest.raises(ConfigurationInvalidError, match="tool 'search'") as refused:
        checked_schema(schema, tool="search")
    assert words in refused.value.message


def test_references_within_a_schema_are_followed() -> None:
    """SPEC T1."""
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}
    checked_schema(schema, tool="search")
    assert refusal('{"a": "x"}', schema) == "a: must satisfy type integer"


def test_a_schema_of_an_older_draft_is_read_by_its_own_rules() -> None:
    """In draft 7 a list of `items` is a tuple; in 2020-12 that would be no schema at all."""
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"a": {"type": "array", "items": [{"type": "integer"}]}},
    }
    checked_schema(schema, tool="search")
    assert "a.0" in refusal('{"a": ["x"]}', schema)

"""What is said about arguments that fit and about those that don't."""

import asyncio
import json
from typing import Any

import pytest

from context.errors import ConfigurationInvalidError
from tools.arguments import TOO_MUCH, Accepted, Refused, check_arguments, checked_beside, is_large, unknown_tool
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


@pytest.mark.parametrize(
    "text", ['{"x": "a", "x": "b"}', '{"x": {"deep": [{"x": 1, "\\u0078": 1}]}}', '{"a": 1, "x": {}, "x": {}}']
)
def test_a_key_that_is_there_twice_is_refused_and_not_chosen_from(text: str) -> None:
    """SPEC T3: nothing is guessed."""
    assert refusal(text, OPEN) == "The key 'x' is there twice in one object; the tool was not called."


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


def test_lists_of_anything_say_so_in_the_frozen_schema() -> None:
    """SPEC A11: strict servers refuse every request that offers a list without `items`; it accepts what it did."""
    bare: dict[str, Any] = {"type": ["array", "null"]}
    schema = {
        "type": "object",
        "properties": {"type": {"type": "array"}, "default": bare, "b": {"type": "array", "items": bare}},
        "$defs": {"c": {"anyOf": [{"type": "array", "prefixItems": [{}]}, {"type": "array", "default": [{}]}]}},
        "examples": [{"type": "array"}],
    }
    whole = checked_schema(schema, tool="search")
    assert whole["properties"] == {
        "type": {"type": "array", "items": {}},
        "default": bare | {"items": {}},
        "b": {"type": "array", "items": bare | {"items": {}}},
    }
    assert whole["$defs"]["c"]["anyOf"] == [
        {"type": "array", "prefixItems": [{}]},
        {"type": "array", "default": [{}], "items": {}},
    ]
    assert whole["examples"] == schema["examples"]


def test_a_call_without_an_object_is_told_what_to_send() -> None:
    """SPEC T3: a model that wrote `null` for a tool without parameters must not write it again."""
    assert "{} if" in refusal("null", {"type": "object"})


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


def described(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.timeout(10)
def test_no_pattern_makes_a_check_take_longer_than_the_text_is_long() -> None:
    """SPEC T3, T9: an expression that backtracks for ever would hold the whole process."""
    nested = "^(a+)+$"
    assert "pattern" in refusal(json.dumps({"x": "a" * 40 + "!"}), described(x={"type": "string", "pattern": nested}))
    keys = {"type": "object", "patternProperties": {nested: {"type": "integer"}}, "additionalProperties": False}
    assert "unknown" in refusal(json.dumps({"a" * 40 + "!": 1}), keys)
    assert "must satisfy type" in refusal('{"aa": "x"}', keys)


@pytest.mark.timeout(10)
def test_a_part_of_a_schema_that_names_its_own_draft_is_checked_within_the_same_bounds() -> None:
    """SPEC T3: a part with `$schema` must not reach an engine that takes for ever."""
    own = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "string", "pattern": "^(a+)+$"}
    assert "pattern" in refusal(json.dumps({"x": "a" * 40 + "!"}), described(x=own))


@pytest.mark.timeout(10)
def test_references_by_name_are_not_searched_for_again_and_again() -> None:
    """SPEC T3: thousands of items against a schema of thousands of parts."""
    parts = {f"d{n}": {"$anchor": f"a{n}", "type": "integer"} for n in range(1_000)}
    schema = described(x={"items": {"$ref": "#a7"}}) | {"$defs": parts}
    checked_schema(schema, tool="search")
    assert "x.0: must satisfy type" in refusal(json.dumps({"x": ["y"] + [1] * 10_000}), schema)


def doubling(depth: int) -> dict[str, Any]:
    """A small schema that is walked through `2 ** depth` times."""
    twice = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(depth)}
    return {"type": "object", "allOf": [{"$ref": "#/$defs/d0"}], "$defs": {**twice, f"d{depth}": {"minProperties": 0}}}


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    ("value", "schema"),
    [
        pytest.param({}, doubling(40), id="references that double"),
        pytest.param({}, {"type": "object", "allOf": [{"$ref": "#"}]}, id="a reference to itself"),
        pytest.param(
            {"x": [{"n": n} for n in range(3_000)]},
            described(x={"items": {"enum": [{"n": -n} for n in range(1, 3_000)]}}),
            id="a huge enum for many items",
        ),
        pytest.param(
            {f"k{n}": 1 for n in range(2_000)},
            {"type": "object", "patternProperties": {f"{n}$": {} for n in range(2_000)}},
            id="many patterns for many keys",
        ),
        pytest.param(
            {"x": ["y" * 1_000_000]},
            described(x={"allOf": [{"type": "string"}] * 1_000}),
            id="a long value named often",
        ),
        pytest.param(
            {"x": "ab" * 500_000}, described(x={"pattern": "[ab]*a[ab]{900}!"}), id="a large pattern for a long text"
        ),
    ],
)
def test_a_check_that_would_go_on_for_ever_is_refused(value: Any, schema: dict[str, Any]) -> None:
    """SPEC T3, T9."""
    checked_schema(schema, tool="search")
    assert "too large to be checked" in refusal(json.dumps(value), schema)


@pytest.mark.timeout(10)
def test_fifty_thousand_items_are_found_unique_or_not() -> None:
    """SPEC T3: in time that grows with their number; 1 is 1.0 and no true."""
    schema = described(x={"uniqueItems": True})
    items: list[Any] = [{"n": n} for n in range(50_000)]
    assert isinstance(check_arguments(json.dumps({"x": items}), schema), Accepted)
    assert "uniqueItems" in refusal(json.dumps({"x": [*items, {"n": 7}]}), schema)
    assert isinstance(check_arguments('{"x": [1, true, "1", [1], [true]]}', schema), Accepted)
    assert "uniqueItems" in refusal('{"x": [{"a": 1, "b": 2}, {"b": 2, "a": 1.0}]}', schema)


@pytest.mark.parametrize("pattern", ["(?=a)b", r"(a)\1", "(", "a{1,5000}"])
@pytest.mark.parametrize("keyword", ["pattern", "patternProperties"])
def test_a_declared_pattern_that_cannot_be_checked_is_refused_with_its_place(pattern: str, keyword: str) -> None:
    """SPEC T1, T3: said at publishing, not found out at a call."""
    part: Any = {"pattern": pattern} if keyword == "pattern" else {"patternProperties": {pattern: {}}}
    with pytest.raises(ConfigurationInvalidError, match=f"properties.x.{keyword}'"):
        checked_schema(described(x=part), tool="search")


def test_a_declared_rule_that_is_left_out_of_checks_is_refused() -> None:
    """SPEC T3: and a property of that name is none."""
    with pytest.raises(ConfigurationInvalidError, match="unevaluatedProperties"):
        checked_schema({"type": "object", "unevaluatedProperties": False}, tool="search")
    checked_schema(described(unevaluatedProperties={"type": "string"}, pattern={"type": "string"}), tool="search")


def test_a_servers_pattern_that_cannot_be_checked_is_left_to_the_server() -> None:
    """SPEC T3, T9: what the server's schema holds besides is checked."""
    schema = described(x={"type": "string", "pattern": "^(?!a)", "maxLength": 3})
    schema |= {"patternProperties": {"(?=y)": {"type": "integer"}}, "additionalProperties": False}
    checked_schema(schema, tool="search", declared=False)
    assert isinstance(check_arguments('{"x": "abc", "y": "z"}', schema), Accepted)
    assert "maxLength" in refusal('{"x": "abcd"}', schema)


@pytest.mark.parametrize(("pattern", "text"), [("^[\\u4e00-\\u9fff]+$", "中文"), (r"^\p{L}+$", "é"), (r"^\\u$", r"\u")])
def test_patterns_as_schemas_write_them_are_understood(pattern: str, text: str) -> None:
    """SPEC T3."""
    schema = described(x={"pattern": pattern})
    checked_schema(schema, tool="search")
    assert isinstance(check_arguments(json.dumps({"x": text}), schema), Accepted)
    assert "pattern" in refusal('{"x": "1"}', schema)


WIDE: dict[str, Any] = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(2_000)}}


@pytest.mark.parametrize(
    ("text", "schema", "verdict"),
    [
        pytest.param('{"x": 1}', doubling(20), TOO_MUCH, id="hostile"),
        pytest.param('{"x": 1}', doubling(9), Accepted({"x": 1}), id="long"),
        pytest.param(json.dumps({"x": "y" * 30_000}), OPEN, Accepted({"x": "y" * 30_000}), id="large_value"),
        pytest.param('{"p1": "y"}', WIDE, Accepted({"p1": "y"}), id="large_schema"),
    ],
)
async def test_a_check_that_takes_long_leaves_the_event_loop(
    text: str, schema: dict[str, Any], verdict: Accepted | Refused
) -> None:
    """SPEC W5, T3: the heartbeats of other calls go on meanwhile, and the verdict is what it would be."""
    check = asyncio.create_task(checked_beside(text, schema, large=is_large(schema)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not check.done()
    assert await check == verdict == check_arguments(text, schema)


async def test_an_ordinary_check_is_made_at_once() -> None:
    """A hop to a thread and back would cost more than the check."""
    check = checked_beside('{"path": "a", "deep": {"n": 1}}', PATH, large=is_large(PATH))
    with pytest.raises(StopIteration) as ended:
        check.send(None)
    assert ended.value.value == Accepted({"path": "a", "deep": {"n": 1}})

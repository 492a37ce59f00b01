"""From a definition to a release: where the numbers come from, and what is refused (SPEC B3, L3a, L4)."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import pytest

from api.publishing import NOT_RUN_YET, ModelFacts, Ports, StoredConnection, resolve
from context.blocks import LEAST_ROOM
from context.budget import plan_budget
from context.errors import ConfigurationInvalidError, ModelWindowUnknownError
from context.policy import AgentDefinition, FrozenTool, Release
from context.summariser import summarising
from providers.tokenizers import counter_for

SPACE = UUID(int=1)
OFFICIAL = "https://api.openai.com/v1"
ESTIMATOR = "utf8-bytes/openai/v1"


def catalogued(provider: str, model: str, base_url: str | None) -> ModelFacts | None:
    if (provider, model, base_url) == ("openai", "known", OFFICIAL):
        return ModelFacts(context_window=128_000, max_output_tokens=16_384)
    return None


def official_url(provider: str) -> str | None:
    return OFFICIAL if provider == "openai" else None


async def no_tools(definition: AgentDefinition, space_id: UUID) -> tuple[FrozenTool, ...]:
    return ()


def ports(**connections: StoredConnection) -> Ports:
    async def find(space_id: UUID, names: Sequence[str]) -> Mapping[str, StoredConnection]:
        return {name: connections[name] for name in names if name in connections}

    def estimator_for(provider: str, model: str, encoding: str | None) -> str:
        return ESTIMATOR

    return Ports(catalogued, official_url, estimator_for, no_tools, find, priced, counter_for)


def priced(provider: str, model: str, base_url: str | None) -> bool:
    return (provider, model, base_url) == ("openai", "known", OFFICIAL)


async def publish(model: dict[str, Any], wired: Ports | None = None, **more: Any) -> Release:
    definition = AgentDefinition.model_validate({"name": "a", "model": model} | more)
    return await resolve(definition, space_id=SPACE, ports=wired or ports())


async def test_a_window_given_by_a_person_wins_over_the_catalogue() -> None:
    """B3."""
    release = await publish({"provider": "openai", "model": "known", "context_window": 64_000})
    assert (release.context_window, release.window_source) == (64_000, "manual")


async def test_without_one_the_catalogue_says_it_and_the_output_limit() -> None:
    """B3."""
    release = await publish({"provider": "openai", "model": "known"})
    assert (release.context_window, release.window_source) == (128_000, "official_manifest")
    assert release.provider_output_limit == 16_384
    assert release.base_url == OFFICIAL


async def test_the_catalogue_does_not_speak_for_another_address() -> None:
    """L3a: official numbers belong to the official URL."""
    with pytest.raises(ModelWindowUnknownError):
        await publish({"provider": "openai", "model": "known", "base_url": "https://proxy.example/v1"})


async def test_a_stored_connection_says_window_and_address() -> None:
    """B3."""
    facts = {"m": ModelFacts(context_window=40_000, source="provider")}
    wired = ports(mine=StoredConnection("openai_compatible", "http://127.0.0.1:9/v1", facts))
    release = await publish({"provider": "openai_compatible", "model": "m", "connection": "mine"}, wired)
    assert (release.context_window, release.window_source) == (40_000, "provider")
    assert release.base_url == "http://127.0.0.1:9/v1"


async def test_an_unknown_window_is_refused_with_a_suggestion() -> None:
    """B3: 32768 is offered as a suggestion only."""
    with pytest.raises(ModelWindowUnknownError) as caught:
        await publish({"provider": "openai", "model": "unheard-of"})
    assert caught.value.numbers["suggested_context_window"] == 32_768


async def test_more_output_than_the_provider_gives_is_refused() -> None:
    """L3a."""
    with pytest.raises(ConfigurationInvalidError) as caught:
        await publish({"provider": "openai", "model": "known", "max_output_tokens": 16_385})
    assert caught.value.numbers == {"key": "model.max_output_tokens", "configured": 16_385, "limit": 16_384}


async def test_a_window_without_room_for_input_is_refused() -> None:
    """B1: B must be positive."""
    with pytest.raises(ConfigurationInvalidError):
        await publish({"provider": "openai", "model": "m", "context_window": 1_000, "max_output_tokens": 900})


@pytest.mark.parametrize(
    "base_url",
    [
        "ftp://x/v1",
        "http://user:secret@x/v1",
        "https://x/v1?key=secret",
        "http:///v1",
        "http://[x/v1",
        "http://x:99999/v1",
        "http://x/v1\n",
        "http://x /v1",
        "x",
    ],
)
async def test_an_address_that_is_none_is_refused_without_repeating_it(base_url: str) -> None:
    """Y6."""
    with pytest.raises(ConfigurationInvalidError) as caught:
        await publish({"provider": "openai_compatible", "model": "m", "context_window": 9_999, "base_url": base_url})
    assert caught.value.message.startswith("model.base_url: ")
    assert "secret" not in caught.value.message


GATEWAY = {"provider": "openai", "model": "known", "context_window": 9_999, "base_url": "https://gateway.example/v1"}
LOCAL = {"provider": "openai_compatible", "model": "m", "context_window": 9_999, "base_url": "http://127.0.0.1:9/v1"}
LIMITS = {"max_cost": "2.50"}


@pytest.mark.parametrize(
    "model",
    [LOCAL, GATEWAY, LOCAL | {"price": {}}, LOCAL | {"price": {"input": 1}}, GATEWAY | {"price": {"output": 1}}],
)
async def test_a_cost_limit_that_could_never_be_told_is_refused(model: dict[str, Any]) -> None:
    """L5: without a price for input and output no call has a cost; the error says how to give one."""
    with pytest.raises(ConfigurationInvalidError) as caught:
        await publish(model, limits=LIMITS)
    assert caught.value.message.startswith("limits.max_cost: ")
    assert "model.price" in caught.value.message
    assert caught.value.numbers["key"] == "limits.max_cost"
    await publish(model)


@pytest.mark.parametrize(
    "model",
    [{"provider": "openai", "model": "known"}, LOCAL | {"price": {"input": 1, "output": 0}}],
)
async def test_a_cost_limit_is_taken_where_the_price_is_known(model: dict[str, Any]) -> None:
    """L5: the public price at the official address, or one that a person gave."""
    assert (await publish(model, limits=LIMITS)).definition.limits.max_cost is not None


async def test_a_cost_limit_needs_the_price_of_the_summarising_model_too_in_the_same_currency() -> None:
    """L5, K1: what summaries cost counts against the limit."""
    priced_model = LOCAL | {"price": {"input": 1, "output": 1}}
    for writer, named in (
        (LOCAL, "context.summary_model.price"),
        (LOCAL | {"price": {"input": 1, "output": 1, "currency": "CNY"}}, "currencies"),
    ):
        with pytest.raises(ConfigurationInvalidError, match=named):
            await publish(priced_model, limits=LIMITS, context={"summary_model": writer})
    await publish(priced_model, limits=LIMITS, context={"summary_model": priced_model})


async def test_a_run_has_its_cost_in_one_currency() -> None:
    """L5: yuan and dollars have no sum; where one of the prices is not known, neither is the cost."""
    price = {"input": 1, "output": 1}
    dollars, yuan = LOCAL | {"price": price}, LOCAL | {"price": price | {"currency": "CNY"}}
    with pytest.raises(ConfigurationInvalidError, match=r"context\.summary_model\.price: .* currencies"):
        await publish(dollars, context={"summary_model": yuan})
    await publish(yuan, context={"summary_model": yuan})
    await publish(yuan, context={"summary_model": LOCAL})


async def test_a_stored_key_goes_to_no_other_provider_or_address() -> None:
    """L3."""
    wired = ports(mine=StoredConnection("openai", None, {}))
    model = {"model": "m", "context_window": 9_999, "connection": "mine"}
    with pytest.raises(ConfigurationInvalidError, match=r"model\.connection"):
        await publish(model | {"provider": "deepseek"}, wired)
    with pytest.raises(ConfigurationInvalidError, match=r"model\.base_url"):
        await publish(model | {"provider": "openai", "base_url": "https://elsewhere.example/v1"}, wired)
    assert (await publish(model | {"provider": "openai", "base_url": OFFICIAL + "/"}, wired)).base_url == OFFICIAL + "/"
    nowhere = ports(mine=StoredConnection("openai_compatible", None, {}))
    with pytest.raises(ConfigurationInvalidError, match=r"model\.base_url: the .* was stored without an address"):
        await publish(model | {"provider": "openai_compatible", "base_url": "https://elsewhere.example/v1"}, nowhere)


async def test_a_connection_that_is_not_stored_is_told_by_its_place() -> None:
    """E."""
    with pytest.raises(ConfigurationInvalidError, match=r"tools\.0\.connection"):
        await publish(
            {"provider": "demo", "model": "demo", "context_window": 9_999},
            tools=[{"kind": "http", "name": "t", "url": "https://x/", "connection": "gone"}],
        )


async def with_writer(summary_model: dict[str, Any], wired: Ports | None = None) -> Release:
    """A release whose summaries another model writes."""
    role = {"provider": "openai", "model": "known", "max_output_tokens": 100}
    context = {"summary_model": summary_model, "output_reserve_tokens": 60_000, "safety_margin_tokens": 9_000}
    return await publish(role, wired, context=context)


async def test_a_summarising_model_is_resolved_like_the_one_that_answers() -> None:
    """K1, B3: window, output limit, estimator and address are its own; what the role reserves is the role's."""
    facts = {"w": ModelFacts(context_window=40_000, max_output_tokens=2_000, source="provider")}
    wired = ports(mine=StoredConnection("openai_compatible", "http://127.0.0.1:9/v1", facts))
    release = await with_writer({"provider": "openai_compatible", "model": "w", "connection": "mine"}, wired)
    assert release.summariser is not None
    assert release.summariser.context_window == 40_000
    assert release.summariser.provider_output_limit == 2_000
    assert release.summariser.base_url == "http://127.0.0.1:9/v1"
    assert (release.context_window, release.base_url) == (128_000, OFFICIAL)
    writer = summarising(release)
    assert plan_budget(writer).input_limit == 40_000 - 2_000 - 400
    assert writer.definition.model.model == "w"


@pytest.mark.parametrize(
    ("summary_model", "key"),
    [
        ({"provider": "openai", "model": "known", "connection": "gone"}, "context.summary_model.connection"),
        (
            {"provider": "openai", "model": "known", "max_output_tokens": 99_999},
            "context.summary_model.max_output_tokens",
        ),
        ({"provider": "openai_compatible", "model": "w", "context_window": 9_999}, "context.summary_model.base_url"),
        (
            {"provider": "openai", "model": "w", "context_window": 900, "max_output_tokens": 800},
            "context.summary_model",
        ),
    ],
)
async def test_a_summarising_model_that_could_not_run_is_refused_by_its_key(
    summary_model: dict[str, Any], key: str
) -> None:
    """E, K3, L3a."""
    with pytest.raises(ConfigurationInvalidError) as caught:
        await with_writer(summary_model)
    assert caught.value.message.startswith(f"{key}: ")
    assert caught.value.numbers["key"] == key


async def test_a_summarising_model_without_room_for_a_block_is_refused_with_the_numbers() -> None:
    """K3: whatever T a compaction may come to; one token more of window than is refused is accepted."""

    async def refusal(window: int, **more: Any) -> ConfigurationInvalidError | None:
        model = {"provider": "openai", "model": "w", "context_window": window, "max_output_tokens": 600} | more
        try:
            await with_writer(model)
        except ConfigurationInvalidError as error:
            return error
        return None

    error = await refusal(2_400)
    assert error is not None
    assert error.numbers["key"] == "context.summary_model"
    assert error.numbers["input_limit"] == 2_400 - 600 - 256
    assert error.numbers["summary_tokens"] == 600
    enough = 2_400 + LEAST_ROOM - int(error.numbers["room"])
    assert enough > 2_400
    assert await refusal(enough - 1) is not None
    assert await refusal(enough) is None


async def test_the_window_of_a_summarising_model_must_be_known_too() -> None:
    """B3, K1."""
    with pytest.raises(ModelWindowUnknownError, match=r"context\.summary_model\.context_window"):
        await with_writer({"provider": "openai", "model": "unheard-of"})


async def test_a_stored_key_goes_to_no_other_address_for_summaries_either() -> None:
    """L3."""
    wired = ports(mine=StoredConnection("openai", None, {}))
    elsewhere = {"model": "w", "connection": "mine", "base_url": "https://elsewhere.example/v1"}
    with pytest.raises(ConfigurationInvalidError, match=r"context\.summary_model\.base_url"):
        await with_writer(elsewhere | {"provider": "openai", "context_window": 9_999}, wired)


UNSUPPORTED: dict[str, dict[str, Any]] = {
    "hooks": {"hooks": [{"name": "h", "point": "tool.request", "kind": "python", "entry": "m:f"}]},
    "shared_fields": {"shared_fields": [{"name": "f", "schema": {}}]},
    "sources": {"sources": [{"name": "s"}]},
    "task_context": {"task_context": {}},
    "verification": {"verification": {}},
    "executors": {"executors": [{}]},
    "context.user_turns": {"context": {"user_turns": 3}},
    "context.model_steps": {"context": {"model_steps": 3}},
    "context.messages": {"context": {"messages": 3}},
    "context.on_overflow": {"context": {"on_overflow": "compact_once"}},
}


@pytest.mark.parametrize("key", [key for key, _ in NOT_RUN_YET])
async def test_what_this_version_does_not_run_is_refused_by_name(key: str) -> None:
    """E: nothing is promised that does not happen."""
    with pytest.raises(ConfigurationInvalidError) as caught:
        await publish({"provider": "demo", "model": "demo", "context_window": 9_999}, **UNSUPPORTED[key])
    assert caught.value.numbers["key"] == key


MODEL = {"provider": "openai", "model": "known"}
BY_URL = {"kind": "mcp", "name": "t", "url": "https://x/"}
BY_COMMAND = {"kind": "mcp", "name": "t", "command": ["x"]}
PYTHON = {"kind": "python", "name": "t", "entry": "m:f"}
SCHEMA = {"type": "object"}


@pytest.mark.parametrize(
    ("tool", "field"),
    [
        (BY_URL | {"command": ["x"]}, "command"),
        (BY_URL | {"entry": "m:f"}, "entry"),
        (BY_URL | {"schema": SCHEMA}, "schema"),
        (BY_URL | {"description": "Looks."}, "description"),
        (BY_COMMAND | {"headers": {"X-A": "1"}}, "headers"),
        (BY_COMMAND | {"connection": "mine"}, "connection"),
        (PYTHON | {"url": "https://x/"}, "url"),
        (PYTHON | {"headers": {"X-A": "1"}}, "headers"),
        (PYTHON | {"connection": "mine"}, "connection"),
        (PYTHON | {"allow": ["f"]}, "allow"),
        ({"kind": "http", "name": "t", "url": "https://x/", "command": ["x"]}, "command"),
        ({"kind": "http", "name": "t", "url": "https://x/", "entry": "m:f"}, "entry"),
        ({"kind": "builtin", "name": "t", "schema": SCHEMA}, "schema"),
        ({"kind": "builtin", "name": "t", "retry_unknown": True}, "retry_unknown"),
    ],
)
async def test_a_field_that_a_tool_of_this_kind_does_not_have_is_refused_by_name(
    tool: dict[str, Any], field: str
) -> None:
    """T1, E: what would be ignored is told, before a secret is looked up and before anything is started."""
    with pytest.raises(ConfigurationInvalidError) as caught:
        await publish(MODEL, tools=[PYTHON | {"name": "first"}, tool])
    assert caught.value.numbers["key"] == f"tools.1.{field}"
    assert caught.value.message.startswith(f"tools.1.{field}: ")
    assert "'t'" in caught.value.message


@pytest.mark.parametrize(
    "tool",
    [
        BY_URL | {"headers": {"X-A": "1"}, "allow": ["a"], "effect": {"a": "read_only"}, "timeout_s": 5.0},
        BY_COMMAND | {"allow": ["a"], "effect": "idempotent", "retry_unknown": True},
        PYTHON | {"description": "Looks.", "schema": SCHEMA, "effect": "read_only"},
        {"kind": "http", "name": "t", "url": "https://x/", "description": "Looks.", "schema": SCHEMA},
        {"kind": "builtin", "name": "result_read", "description": "Reads."},
    ],
)
async def test_a_definition_with_all_its_defaults_written_out_is_taken(tool: dict[str, Any]) -> None:
    """B3: as a release shows it, so that it can be published again."""
    written = AgentDefinition.model_validate({"name": "a", "model": MODEL, "tools": [tool]}).tools[0]
    [taken] = (await publish(MODEL, tools=[written.model_dump(by_alias=True)])).definition.tools
    assert taken == written

"""Publishing: turns what a person wrote into a Release in which nothing can change later (SPEC B3, T1, L3a).

Resolves the context window, the address, the estimator and the tool schemas; refuses what can't be run. Providers and
tools are reached only through `Ports`, which `api/app.py` wires; only declared MCP servers are asked over the network.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from api.addresses import NOT_AN_ADDRESS, is_api_address
from api.tool_fields import check_tool_fields
from context.budget import plan_budget
from context.errors import ConfigurationInvalidError, ForbiddenError, ModelWindowUnknownError
from context.policy import AgentDefinition, FrozenTool, HookEntry, ModelSettings, Price, Release, Summariser, ToolEntry
from context.summariser import check_room_for_blocks, summarising
from context.tokens import TokenCounter

SUMMARY_MODEL = "context.summary_model"
WindowSource = Literal["manual", "provider", "official_manifest"]


class ModelFacts(BaseModel):
    """What is known about a model besides the definition. None is unknown."""

    model_config = ConfigDict(frozen=True)

    context_window: int | None = None
    max_output_tokens: int | None = None
    source: WindowSource = "official_manifest"


@dataclass(frozen=True)
class StoredConnection:
    """The parts of a stored connection that publishing looks at; never its key."""

    provider: str
    base_url: str | None
    models: Mapping[str, ModelFacts]


FreezeTools = Callable[[AgentDefinition, UUID], Awaitable[tuple[FrozenTool, ...]]]
FindConnections = Callable[[UUID, Sequence[str]], Awaitable[Mapping[str, StoredConnection]]]


@dataclass(frozen=True)
class Ports:
    """What publishing asks others.

    `catalogued(provider, model, base_url)` is the checked catalogue; `official_url(provider)` the address a provider
    has by itself; `estimator_for(provider, model, encoding)` names the counter, and `counter_for` gives it.
    `freeze_tools(definition, space_id)` raises ConfigurationInvalidError for a tool that can't be loaded or reached.
    `priced(provider, model, base_url)` tells whether a model has a public price there.
    """

    catalogued: Callable[[str, str, str | None], ModelFacts | None]
    official_url: Callable[[str], str | None]
    estimator_for: Callable[[str, str, str | None], str]
    freeze_tools: FreezeTools
    connections: FindConnections
    priced: Callable[[str, str, str | None], bool]
    counter_for: Callable[[str], TokenCounter]


# Keys of the definition whose behaviour this version does not have: publishing them would promise what does not happen.
NOT_RUN_YET: tuple[tuple[str, Callable[[AgentDefinition], bool]], ...] = (
    ("hooks", lambda it: bool(it.hooks)),
    ("shared_fields", lambda it: bool(it.shared_fields)),
    ("sources", lambda it: bool(it.sources)),
    ("task_context", lambda it: it.task_context is not None),
    ("verification", lambda it: it.verification is not None),
    ("executors", lambda it: bool(it.executors)),
)


def check_may_publish(definition: AgentDefinition, *, role: str) -> None:
    """Code that runs on our machines, and addresses that stored secrets go to, are named by administrators (SPEC Y1).

    Comes before `resolve`, which already imports modules and starts servers. Raises ForbiddenError, saying which tool.
    """
    entries: list[tuple[str, ToolEntry | HookEntry]] = [
        *((f"tools.{place}", tool) for place, tool in enumerate(definition.tools)),
        *((f"hooks.{place}", hook) for place, hook in enumerate(definition.hooks)),
    ]
    for place, entry in entries if role != "admin" else ():
        if _runs_code(entry):
            raise ForbiddenError(
                f"{place}: only an administrator may publish what runs code on the server (a Python function,"
                " or an MCP server started by command)."
            )
        if isinstance(entry, ToolEntry) and entry.connection is not None:
            raise ForbiddenError(f"{place}: only an administrator may publish a tool that gets a stored secret.")


def _runs_code(entry: ToolEntry | HookEntry) -> bool:
    return entry.kind == "python" or (isinstance(entry, ToolEntry) and entry.command is not None)


@dataclass(frozen=True)
class _Resolved:
    """A model with everything about it that a release fixes."""

    base_url: str | None
    context_window: int
    window_source: WindowSource
    provider_output_limit: int | None
    estimator_id: str


async def resolve(definition: AgentDefinition, *, space_id: UUID, ports: Ports) -> Release:
    """The release of a definition.

    Raises ConfigurationInvalidError, naming the key, or ModelWindowUnknownError.
    """
    _refuse_what_is_not_run(definition)
    check_tool_fields(definition)
    stored = await _connections(definition, space_id, ports)
    model = _resolved(definition.model, "model", stored, ports)
    writes = definition.context.summary_model
    writer = _resolved(writes, SUMMARY_MODEL, stored, ports) if writes else None
    _check_costs(definition, model, writer, ports)
    release = Release(
        definition=definition,
        tools=await ports.freeze_tools(definition, space_id),
        context_window=model.context_window,
        window_source=model.window_source,
        provider_output_limit=model.provider_output_limit,
        estimator_id=model.estimator_id,
        base_url=model.base_url,
        summariser=_summariser(writer) if writer else None,
    )
    _check_budgets(release)
    if writer:
        _check_blocks(release, ports.counter_for(writer.estimator_id))
    return release


def _resolved(model: ModelSettings, at: str, stored: Mapping[str, StoredConnection], ports: Ports) -> _Resolved:
    """The model that stands at the key `at` of the definition."""
    connection = stored[model.connection] if model.connection else None
    base_url = _base_url(model, at, connection, ports)
    known = _facts(model, connection, base_url, ports)
    _check_output_limit(model, at, known)
    window, source = _window(model, at, known)
    limit = known.max_output_tokens if known else None
    return _Resolved(base_url, window, source, limit, ports.estimator_for(model.provider, model.model, model.encoding))


def _summariser(writer: _Resolved) -> Summariser:
    return Summariser(
        context_window=writer.context_window,
        provider_output_limit=writer.provider_output_limit,
        estimator_id=writer.estimator_id,
        base_url=writer.base_url,
    )


def _check_budgets(release: Release) -> None:
    """Refuses a window that leaves no room for input."""
    plan_budget(release)
    if release.summariser is not None:
        try:
            plan_budget(summarising(release))
        except ConfigurationInvalidError as error:
            reason = "the window leaves no room for input; lower its max_output_tokens"
            raise _invalid(SUMMARY_MODEL, reason, **error.numbers) from None


def _check_blocks(release: Release, counter: TokenCounter) -> None:
    """Refuses a summarising model that no compaction could ever ask (SPEC K3)."""
    try:
        check_room_for_blocks(release, counter)
    except ConfigurationInvalidError as error:
        reason = "the window has no room for a block of material beside prompts and summary; enlarge its context_window"
        raise _invalid(SUMMARY_MODEL, f"{reason}, or lower summary_target_tokens", **error.numbers) from None


def _refuse_what_is_not_run(definition: AgentDefinition) -> None:
    for key, used in NOT_RUN_YET:
        if used(definition):
            raise ConfigurationInvalidError(
                f"{key}: this version of AgentLoom does not run this yet; leave it out.", key=key
            )


async def _connections(definition: AgentDefinition, space_id: UUID, ports: Ports) -> Mapping[str, StoredConnection]:
    """Every connection that the definition names. Raises ConfigurationInvalidError for one that is not stored."""
    named = {
        tool.connection: f"tools.{place}.connection" for place, tool in enumerate(definition.tools) if tool.connection
    }
    for at, model in (("model", definition.model), (SUMMARY_MODEL, definition.context.summary_model)):
        if model and model.connection:
            named.setdefault(model.connection, f"{at}.connection")
    found = await ports.connections(space_id, list(named)) if named else {}
    for name, key in named.items():
        if name not in found:
            raise ConfigurationInvalidError(f"{key}: there is no stored connection of this name.", key=key)
    return found


def _base_url(model: ModelSettings, at: str, connection: StoredConnection | None, ports: Ports) -> str | None:
    """The provider's address; a stored key never goes to another provider or address than it was stored for (L3)."""
    key = f"{at}.base_url"
    if connection and connection.provider != model.provider:
        raise _invalid(f"{at}.connection", "the stored connection belongs to another provider")
    official = ports.official_url(model.provider)
    if connection and _plain(model.base_url or official) != _plain(connection.base_url or official):
        if model.base_url:
            has_one = connection.base_url or official
            raise _invalid(
                key, f"the stored connection {'belongs to another' if has_one else 'was stored without an'} address"
            )
        return _checked_url(connection.base_url, key)
    base_url = model.base_url or (connection.base_url if connection else None) or official
    if base_url is None and model.provider != "demo":
        raise _invalid(key, f"provider {model.provider} needs the address of its API")
    return _checked_url(base_url, key)


def _plain(url: str | None) -> str | None:
    return url.rstrip("/") if url else None


def _checked_url(url: str | None, key: str) -> str | None:
    if url is not None and not is_api_address(url):
        raise _invalid(key, NOT_AN_ADDRESS)
    return url


def _facts(
    model: ModelSettings, connection: StoredConnection | None, base_url: str | None, ports: Ports
) -> ModelFacts | None:
    """What the connection says about the model, completed by the catalogue."""
    stored = connection.models.get(model.model) if connection else None
    listed = ports.catalogued(model.provider, model.model, base_url)
    if stored is None or listed is None:
        return stored or listed
    return ModelFacts(
        context_window=stored.context_window or listed.context_window,
        max_output_tokens=stored.max_output_tokens or listed.max_output_tokens,
        source=stored.source if stored.context_window else listed.source,
    )


def _window(model: ModelSettings, at: str, known: ModelFacts | None) -> tuple[int, WindowSource]:
    if model.context_window:
        return model.context_window, "manual"
    if known and known.context_window:
        return known.context_window, known.source
    sentence = f"The model's context window is not known; set {at}.context_window (32768 is a common value)."
    raise ModelWindowUnknownError(sentence, suggested_context_window=32_768)


def _check_output_limit(model: ModelSettings, at: str, known: ModelFacts | None) -> None:
    limit = known.max_output_tokens if known else None
    if limit and model.max_output_tokens and model.max_output_tokens > limit:
        reason = f"{model.max_output_tokens} is more than the model's limit of {limit}"
        raise _invalid(f"{at}.max_output_tokens", reason, configured=model.max_output_tokens, limit=limit)


def _check_costs(definition: AgentDefinition, model: _Resolved, writer: _Resolved | None, ports: Ports) -> None:
    """A Run's cost is one sum, in one currency; a limit of it needs calls whose cost can be told (SPEC L5)."""
    writes = definition.context.summary_model
    if writes and writer:
        are_priced = _is_priced(definition.model, model, ports) and _is_priced(writes, writer, ports)
        if are_priced and _currency(writes) != _currency(definition.model):
            raise _invalid(
                f"{SUMMARY_MODEL}.price",
                "model and summary_model have prices of different currencies, which no cost of a Run can add up",
            )
    if definition.limits.max_cost is None:
        return
    _check_price("model", definition.model, model, ports)
    if writes and writer:
        _check_price(SUMMARY_MODEL, writes, writer, ports)


def _check_price(at: str, model: ModelSettings, resolved: _Resolved, ports: Ports) -> None:
    if not _is_priced(model, resolved, ports):
        raise _invalid(
            "limits.max_cost",
            f"the price of {at} is not known here, so the limit would have no effect; give {at}.price with input and"
            " output (per million tokens), or use limits.max_total_tokens instead",
        )


def _is_priced(model: ModelSettings, resolved: _Resolved, ports: Ports) -> bool:
    """Whether the cost of a call can be told."""
    price = model.price
    if price is None:
        return ports.priced(model.provider, model.model, resolved.base_url)
    return price.is_whole


def _currency(model: ModelSettings) -> str:
    return model.price.currency if model.price else Price().currency


def _invalid(key: str, reason: str, **numbers: Any) -> ConfigurationInvalidError:
    return ConfigurationInvalidError(f"{key}: {reason}.", key=key, **numbers)

"""The API as an application: routes, middleware and error answers put together, and the wiring to everything outside.

This is the only module of the API that knows providers and tools: it hands their functions on as the ports of
publishing and of rebuilding requests.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from uuid import UUID

import httpx
from fastapi import APIRouter, FastAPI
from starlette.routing import BaseRoute
from temporalio.client import Client
from temporalio.service import RPCError

from api import errors, openapi
from api.bodies import BodyLimit
from api.limits import KeyLimits
from api.metrics import Counting
from api.publishing import ModelFacts, Ports, StoredConnection
from api.rebuilding import BuildModel, Rebuilding
from api.routes import agents, compactions, connections, contexts, health, operations, people, runs, sessions
from api.wiring import ApiOptions, Services
from context.errors import NotFoundError
from context.policy import AgentDefinition, FrozenTool, Release
from context.stored_keys import StoredKey
from egress.addresses import PrivateAddresses
from egress.client import build_client
from providers.catalogue import find, is_priced
from providers.chat import ChatClient
from providers.profiles import profile_for
from providers.release_model import ReleaseModel
from providers.tokenizers import counter_for, estimator_for
from storage import reads
from storage.events import RunEventFeed
from storage.store import Store
from tools.mcp_access import McpAccess, OpenServers
from tools.registry import freeze_tools
from workflows.dispatch import TemporalSender

PREFIX = "/api/v1"
HEALTH_TIMEOUT = timedelta(seconds=2)

DESCRIPTION = "AI agents whose work survives crashes and whose context can be trusted."


@dataclass(frozen=True)
class Outside:
    """What the process was given to reach the world: Temporal with its queue, a guarded HTTP client, MCP servers."""

    temporal: Client
    task_queue: str
    http: httpx.AsyncClient
    open_servers: OpenServers


@asynccontextmanager
async def reaching(temporal: Client, *, task_queue: str, private_addresses: PrivateAddresses) -> AsyncIterator[Outside]:
    """What the process reaches the world with, closed at the end; all outbound calls go through the guard (SPEC Y4)."""
    mcp = McpAccess(private_addresses=private_addresses)
    try:
        async with build_client(private_addresses=private_addresses) as http:
            yield Outside(temporal, task_queue, http, mcp.servers)
    finally:
        await mcp.aclose()


def build_app(store: Store, outside: Outside, *, options: ApiOptions | None = None) -> FastAPI:
    """The application over a store. It owns none of what it is given; its lifespan runs the event feed."""
    options = options or ApiOptions()
    services = _services(store, outside, options)
    app = FastAPI(
        title="AgentLoom",
        version="1",
        description=DESCRIPTION,
        lifespan=_lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # a redirect would go to whatever host the request named
        routes=_routes(),
    )
    app.state.services = services
    errors.install(app)
    openapi.install(app)
    app.add_middleware(BodyLimit, max_bytes=options.max_body_bytes)
    app.add_middleware(Counting, metrics=services.metrics)
    return app


@lru_cache(maxsize=1)
def _routes() -> list[BaseRoute]:
    """Every route. What FastAPI works out of them is worked out once for all applications of a process."""
    together = APIRouter()
    for module in (agents, sessions, runs, compactions, operations, contexts, connections, people):
        together.include_router(module.routes, prefix=PREFIX)
    together.include_router(health.routes)
    return together.routes


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    services: Services = app.state.services
    async with services.feed:
        yield
    if services.background:
        await asyncio.wait(services.background, timeout=5)


def _services(store: Store, outside: Outside, options: ApiOptions) -> Services:
    async def temporal_answers() -> bool:
        try:
            return await outside.temporal.service_client.check_health(timeout=HEALTH_TIMEOUT)
        except (RPCError, RuntimeError):
            return False

    sender = TemporalSender(outside.temporal, task_queue=outside.task_queue)
    rebuilding = Rebuilding(store, build_model=_build_model(outside))
    return Services(
        store=store,
        feed=RunEventFeed(store),
        sender=sender,
        compact=sender.compact,
        ports=_ports(store, outside),
        rebuild=rebuilding.rebuild,
        not_as_sent=rebuilding.not_as_sent,
        temporal_answers=temporal_answers,
        limits=KeyLimits(options.rate_limit),
        options=options,
    )


def _ports(store: Store, outside: Outside) -> Ports:
    async def frozen(definition: AgentDefinition, space_id: UUID) -> tuple[FrozenTool, ...]:
        async def secret(name: str) -> str | None:
            return await _secret(store, space_id, name)

        return await freeze_tools(definition, open_servers=outside.open_servers, resolve_secret=secret)

    async def stored(space_id: UUID, names: Sequence[str]) -> Mapping[str, StoredConnection]:
        rows = await reads.connections(store, space_id)
        return {row.name: _connection(row) for row in rows if row.name in names}

    def official(provider: str) -> str | None:
        return profile_for(provider).default_base_url

    return Ports(_catalogued, official, estimator_for, frozen, stored, is_priced, counter_for)


def _catalogued(provider: str, model: str, base_url: str | None) -> ModelFacts | None:
    entry = find(provider, model, base_url)
    return ModelFacts(context_window=entry.context_window, max_output_tokens=entry.max_output_tokens) if entry else None


def _connection(row: reads.ConnectionRow) -> StoredConnection:
    models = {str(model["id"]): ModelFacts.model_validate(model) for model in row.models}
    return StoredConnection(row.provider, row.base_url, models)


async def _secret(store: Store, space_id: UUID, name: str) -> str | None:
    try:
        return (await reads.stored_key(store, space_id, name)).secret
    except NotFoundError:
        return None


def _build_model(outside: Outside) -> BuildModel:
    chat = ChatClient(outside.http)

    async def no_key(name: str) -> StoredKey | None:
        return None

    def build(release: Release) -> ReleaseModel:
        return ReleaseModel(release, chat_for=lambda provider: chat, resolve_key=no_key, demo_base_url=None)

    return build

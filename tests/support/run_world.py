"""A whole small AgentLoom for tests of Runs: database, Temporal, API on a real socket, scripted model, and a worker.

`running_world` gives everything but the worker, so that a test can choose: `world.worker()` runs one in this process,
`tests/support/child_worker.py` one that can be killed. What is asked and read goes over HTTP, as clients do it.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI
from sqlalchemy import text
from temporalio.api.enums.v1 import TimeoutType
from temporalio.client import Client, WorkflowHandle

from api.app import build_app, reaching
from api.serving import KEEP_ALIVE_S
from api.wiring import ApiOptions
from egress.certificates import bundled_authorities
from storage.commits.create_key import CreateKey, create_key
from storage.commits.create_space_user import CreateSpaceUser, create_space_user
from storage.payloads import Keys
from storage.store import FaultPlan, Store
from tests.support.model_server import ModelServer
from tests.support.prompt_server import PromptServer, serving
from tests.support.strict_chat import Dialect
from worker import build_worker, kept_true, open_edges
from workflows.registry import data_converter

Json = dict[str, Any]

TOOLS = "tests.support.run_tools"


@dataclass(frozen=True)
class Servers:
    """What a world stands on. `temporal` is `host:port`."""

    database_url: str
    temporal: str
    task_queue: str
    folder: Path


@dataclass
class RunWorld:
    """Someone with a key, an API to ask, a model that answers by script."""

    servers: Servers
    keys: Keys
    store: Store
    temporal: Client
    http: httpx.AsyncClient
    model: ModelServer
    api_key: str = field(repr=False)
    agents: dict[str, Json] = field(default_factory=dict)

    # --- the worker ------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def worker(self, faults: FaultPlan | None = None, **options: Any) -> AsyncIterator[None]:
        """A worker in this process with a store of its own, put together as `worker.run_worker` does."""
        store = Store.open(self.servers.database_url, self.keys, pool_size=5, faults=faults)
        work_dir = self.servers.folder / "work"
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(store.aclose)
            edges = await stack.enter_async_context(open_edges(store, private_addresses="loopback", work_dir=work_dir))
            queue = self.servers.task_queue
            await stack.enter_async_context(kept_true(store, self.temporal, task_queue=queue, work_dir=work_dir))
            at_once = {"graceful_shutdown_timeout": timedelta(0)}  # nothing that a test left running is waited for
            worker = build_worker(self.temporal, store, edges, task_queue=queue, **(at_once | options))
            await stack.enter_async_context(worker)
            yield

    # --- what a user does ------------------------------------------------------------------------------------------

    async def publish(self, name: str = "scout", *, tools: Sequence[str | Json] = (), **overrides: Any) -> Json:
        """Publish an agent on the scripted model. A tool given by name is a function of `run_tools.py`."""
        model = {"provider": "openai_compatible", "model": "scripted", "context_window": 32768}
        definition: Json = {
            "name": name,
            "instructions": "Be brief.",
            "model": model | {"base_url": self.model.base_url} | overrides.pop("model", {}),
            "tools": [python_tool(one) if isinstance(one, str) else one for one in tools],
        }
        self.agents[name] = await self.post("/agents", {"definition": definition | overrides}, status=201)
        return self.agents[name]

    async def open_session(self, agent: str = "scout") -> str:
        """A new session with the agent, which is published first if it has not been."""
        if agent not in self.agents:
            await self.publish(agent)
        session = await self.post("/sessions", {"agent": agent}, status=201)
        return str(session["session_id"])

    async def send(self, text: str, session: str, **body: Any) -> Json:
        """Send an input; the answer that says to which Run it went."""
        return await self.post(f"/sessions/{session}/inputs", {"text": text} | body, status=202)

    async def start(self, text: str = "What is it?", session: str | None = None) -> str:
        """Ask a question and return the id of its Run at once."""
        accepted = await self.send(text, session or await self.open_session(), mode="question")
        return str(accepted["run_id"])

    async def ask(self, text: str = "What is it?", session: str | None = None) -> Json:
        """Ask a question and wait for the Run's end."""
        return await self.ended(await self.start(text, session))

    async def ended(self, run_id: str, *, within_s: float = 30) -> Json:
        """The Run once it has ended."""
        run = await self.get(f"/runs/{run_id}", wait_s=within_s)
        assert run["ended_at"] is not None, f"the run still is {run['status']} in phase {run['phase']}"
        return run

    async def over(self, run_id: str) -> Json:
        """The Run once it has ended, however long that takes."""
        run = await self.get(f"/runs/{run_id}", wait_s=60)
        while run["ended_at"] is None:
            run = await self.get(f"/runs/{run_id}", wait_s=60)
        return run

    async def stop(self, run_id: str) -> Json:
        """Ask for a stop."""
        return await self.post(f"/runs/{run_id}/stop", None, status=202)

    async def resume(self, run_id: str, text: str | None = None) -> Json:
        """Let a Run go on."""
        return await self.post(f"/runs/{run_id}/resume", {"text": text} if text else None, status=202)

    # --- what a user reads -----------------------------------------------------------------------------------------

    async def get(self, path: str, **query: Any) -> Json:
        """A JSON answer of the API."""
        answer = await self.http.get(path, params=query, headers={"accept": "application/json"})
        assert answer.status_code == 200, answer.text
        body: Json = answer.json()
        return body

    async def post(self, path: str, body: Json | None, *, status: int) -> Json:
        """The JSON answer to a POST with the expected status."""
        answer = await self.http.post(path, json=body)
        assert answer.status_code == status, answer.text
        answered: Json = answer.json()
        return answered

    async def items(self, path: str, **query: Any) -> list[Json]:
        """The items of a list, all pages."""
        page = await self.get(path, limit=200, **query)
        found: list[Json] = page["items"]
        while page.get("next"):
            page = await self.get(path, limit=200, cursor=page["next"], **query)
            found += page["items"]
        return found

    async def operations(self, run_id: str) -> list[Json]:
        """The Run's model and tool calls."""
        return await self.items(f"/runs/{run_id}/operations")

    async def manifests(self, run_id: str) -> list[Json]:
        """What each request of the Run contained."""
        return await self.items(f"/runs/{run_id}/manifests")

    async def events(self, run_id: str) -> list[Json]:
        """The Run's events in order."""
        found: list[Json] = (await self.get(f"/runs/{run_id}/events"))["items"]
        return found

    async def inputs(self, run_id: str) -> list[Json]:
        """The Run's inputs with their deliveries."""
        return await self.items(f"/runs/{run_id}/inputs")

    async def messages(self, session: str) -> list[Json]:
        """The session's message facts in order."""
        page = await self.get(f"/sessions/{session}/messages", limit=200)
        found: list[Json] = page["items"]
        return found

    # --- what really happened --------------------------------------------------------------------------------------

    @property
    def sent(self) -> list[list[Json]]:
        """The message lists that the model was sent, in order."""
        return [request.json["messages"] for request in self.model.requests]

    def workflow(self, run_id: str) -> "WorkflowHandle[Any, Any]":
        """The Run's workflow."""
        return self.temporal.get_workflow_handle(f"run/{run_id}")

    async def tasks_in_vain(self, workflow_id: str) -> list[int]:
        """The workflow tasks that the worker they were kept for did not take in time, by their place in the history."""
        events = self.temporal.get_workflow_handle(workflow_id).fetch_history_events()
        ends = [(one.event_id, one.workflow_task_timed_out_event_attributes.timeout_type) async for one in events]
        return [event_id for event_id, why in ends if why == TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_START]

    async def until(self, run_id: str, phase: str) -> None:
        """Wait until the Run has committed this phase."""
        async with asyncio.timeout(20):
            while (await self.get(f"/runs/{run_id}"))["phase"] != phase:
                await asyncio.sleep(0.01)

    async def until_hash_is_stored(self, operation_id: str) -> None:
        """An activity is told of a cancellation a moment after the Run has ended."""
        query = text("SELECT request_hash IS NOT NULL FROM operations WHERE operation_id = :operation_id")
        async with asyncio.timeout(20), self.store.reading() as connection:
            while not (await connection.execute(query, {"operation_id": operation_id})).scalar_one():
                await asyncio.sleep(0.05)


def python_tool(name: str, effect: str = "read_only", **more: Any) -> Json:
    """A tool entry for a function of `tests/support/run_tools.py`."""
    return {"kind": "python", "name": name, "entry": f"{TOOLS}:{name}", "effect": effect} | more


@asynccontextmanager
async def running_world(
    servers: Servers, model: ModelServer, *, keys: Keys | None = None, api_key: str | None = None
) -> AsyncIterator[RunWorld]:
    """Everything but a worker, closed at the end. With keys and an `api_key`, its database is one that was used."""
    keys = keys or Keys({"k1": os.urandom(32)}, os.urandom(32))
    store = Store.open(servers.database_url, keys, pool_size=5)
    temporal = await Client.connect(servers.temporal, data_converter=data_converter())
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(store.aclose)
        outside = await stack.enter_async_context(
            reaching(temporal, task_queue=servers.task_queue, private_addresses="loopback")
        )
        address = await stack.enter_async_context(serving(api_server(build_app(store, outside, options=ApiOptions()))))
        key = api_key or await _new_key(store)
        http = httpx.AsyncClient(
            base_url=f"{address}/api/v1",
            headers={"Authorization": f"Bearer {key}"},
            timeout=70,
            trust_env=False,
            verify=bundled_authorities(),
        )
        yield RunWorld(servers, keys, store, temporal, await stack.enter_async_context(http), model, key)


async def _new_key(store: Store) -> str:
    user = await create_space_user(store, CreateSpaceUser("ann", "admin"))
    return (await create_key(store, CreateKey(user.user_id))).key


@asynccontextmanager
async def working_world(
    servers: Servers, *, strict: Dialect | None = "plain", **options: Any
) -> AsyncIterator[RunWorld]:
    """A world with a strict scripted model and a worker in this process; `options` go to the worker."""
    async with (
        ModelServer(strict=strict) as model,
        running_world(servers, model) as world,
        world.worker(**options),
    ):
        yield world


def api_server(app: FastAPI) -> PromptServer:
    """A server for the application on any free port."""
    return PromptServer(
        uvicorn.Config(
            app,
            host="127.0.0.1",
            port=0,
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=1,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
    )

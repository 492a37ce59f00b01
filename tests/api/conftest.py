"""The application on a real socket over a real database, and people with keys to ask it.

Temporal is an address where nobody listens unless a test asks for more: whatever is accepted stays queued.
"""

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import httpx
import pytest
from fastapi import FastAPI
from temporalio.client import Client

from api.app import build_app, reaching
from api.serving import ApiServer
from api.wiring import ApiOptions
from egress.certificates import bundled_authorities
from storage.commits.create_key import CreateKey, create_key
from storage.commits.create_space_user import CreateSpaceUser, Role, create_space_user
from storage.payloads import Keys
from storage.store import Store
from tests.support.prompt_server import PromptServer, serving
from workflows.registry import data_converter

NOBODY = "127.0.0.1:1"

DEFINITION: dict[str, Any] = {"name": "helper", "instructions": "Help.", "model": {"provider": "demo", "model": "demo"}}


@dataclass(frozen=True)
class Person:
    """A user with a key, and a client that sends it."""

    user_id: UUID
    space_id: UUID
    key: str = field(repr=False)
    http: httpx.AsyncClient


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    opened = Store.open(database_url, Keys({"k1": os.urandom(32)}, os.urandom(32)), pool_size=5)
    yield opened
    await opened.aclose()


@pytest.fixture
def options() -> ApiOptions:
    """What the application is configured with; tests override it."""
    return ApiOptions(patience_s=2.0)


@pytest.fixture
async def app(store: Store, options: ApiOptions) -> AsyncIterator[FastAPI]:
    temporal = await Client.connect(NOBODY, lazy=True, data_converter=data_converter())
    async with reaching(temporal, task_queue="nobody", private_addresses="loopback") as outside:
        yield build_app(store, outside, options=options)


class PromptApiServer(ApiServer, PromptServer):
    """The API's own server, less the pauses at its end."""


@pytest.fixture
async def address(app: FastAPI) -> AsyncIterator[str]:
    """Where the application listens."""
    async with serving(PromptApiServer(app, host="127.0.0.1", port=0)) as where:
        yield where


async def person(store: Store, address: str, name: str, role: Role = "member") -> Person:
    """A user with a key and a client. The caller closes the client."""
    user = await create_space_user(store, CreateSpaceUser(name, role))
    made = await create_key(store, CreateKey(user.user_id))
    headers = {"Authorization": f"Bearer {made.key}"}
    http = httpx.AsyncClient(
        base_url=f"{address}/api/v1", headers=headers, timeout=30, trust_env=False, verify=bundled_authorities()
    )
    return Person(user.user_id, user.space_id, made.key, http)


@pytest.fixture
async def ann(store: Store, address: str) -> AsyncIterator[Person]:
    """An administrator."""
    made = await person(store, address, "ann", "admin")
    yield made
    await made.http.aclose()


@pytest.fixture
async def bob(store: Store, address: str) -> AsyncIterator[Person]:
    """A member of the same space."""
    made = await person(store, address, "bob")
    yield made
    await made.http.aclose()


async def published(who: Person, **change: Any) -> dict[str, Any]:
    """The answer to publishing a small agent."""
    answer = await who.http.post("/agents", json={"definition": DEFINITION | change})
    assert answer.status_code == 201, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def opened(who: Person) -> str:
    """A session with a published agent."""
    await published(who)
    answer = await who.http.post("/sessions", json={"agent": "helper"})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["session_id"])


async def asked(who: Person, session_id: str, text: str = "What is it?", **more: Any) -> dict[str, Any]:
    """The answer to an accepted input."""
    answer = await who.http.post(f"/sessions/{session_id}/inputs", json={"text": text} | more)
    assert answer.status_code == 202, answer.text
    body: dict[str, Any] = answer.json()
    return body

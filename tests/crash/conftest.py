"""A world whose workers are processes that can be killed, and a model that outlives them."""

import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from stack import postgres, temporal
from stack.ports import any_free_port
from storage.migrate import upgrade
from tests.support.child_worker import WorkerNursery, WorkerPlace, place_of, worker_nursery
from tests.support.model_server import ModelServer
from tests.support.mortal import Mortal
from tests.support.run_world import RunWorld, Servers, running_world


@pytest.fixture(scope="session")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerNursery]:
    """Where workers are forked, one for all tests."""
    with worker_nursery(tmp_path_factory.mktemp("nursery")) as started:
        yield started


@pytest.fixture
def servers(database_url: str, temporal_address: str, task_queue: str, tmp_path: Path) -> Servers:
    """What the test's world stands on."""
    return Servers(database_url, temporal_address, task_queue, tmp_path)


@pytest.fixture
async def world(servers: Servers) -> AsyncIterator[RunWorld]:
    """A world without a worker; the test adds the model's script."""
    async with ModelServer(strict="plain") as model, running_world(servers, model) as built:
        yield built


@pytest.fixture
def place(world: RunWorld) -> WorkerPlace:
    """Where the test's workers work."""
    return place_of(world)


@pytest.fixture
async def own_postgres(tmp_path: Path) -> AsyncIterator[tuple[Mortal, str]]:
    """A durable PostgreSQL of the test's own, migrated; and its URL."""
    server = postgres.prepare(tmp_path / "postgres", port=any_free_port(), password=secrets.token_urlsafe(12))
    mortal = Mortal(server.child(log_file=tmp_path / "postgres.log"))
    await mortal.start()
    await server.ensure_database()
    await upgrade(server.url())
    yield mortal, server.url()
    mortal.end()


@pytest.fixture
async def own_temporal(tmp_path: Path) -> AsyncIterator[tuple[Mortal, str]]:
    """A Temporal server of the test's own, and its address."""
    server = temporal.prepare(tmp_path / "temporal.db", port=any_free_port(), ui_port=None)
    mortal = Mortal(server.child(log_file=tmp_path / "temporal.log"))
    await mortal.start()
    yield mortal, server.address
    mortal.end()

"""A world whose workers are processes that can be killed, and a model that outlives them."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.child_worker import WorkerNursery, WorkerPlace, place_of, worker_nursery
from tests.support.model_server import ModelServer
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

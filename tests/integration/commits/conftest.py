"""A database that two writers share, and a Run that is played commit by commit."""

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from context.steps import OpenRun
from storage.commits.open_run import open_run
from storage.store import Store
from tests.integration.commits.life import Life
from tests.integration.storage.world import KEYS, World, build_world, say


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    """The first writer's store."""
    opened = Store.open(database_url, KEYS, pool_size=5)
    yield opened
    await opened.aclose()


@pytest.fixture
async def rival(database_url: str) -> AsyncIterator[Store]:
    """The second writer's store: another process, as far as the database can tell."""
    opened = Store.open(database_url, KEYS, pool_size=5)
    yield opened
    await opened.aclose()


@pytest.fixture
async def world(store: Store) -> World:
    """A user with a session of an agent."""
    return await build_world(store)


@pytest.fixture
async def life(store: Store, world: World) -> Life:
    """A Run whose question is accepted and whose execution has not begun."""
    accepted = await say(store, world, f"What is the weather? {uuid4()}")
    return Life(world, accepted.run_id)


@pytest.fixture
async def opened(store: Store, life: Life) -> Life:
    """A Run that is open."""
    life.context_id = (await open_run(store, OpenRun(run_id=life.run_id, execution_no=1))).context_id
    return life

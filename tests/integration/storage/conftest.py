"""A store on a real database, and a small world in it: a space, a user, an agent, a session."""

from collections.abc import AsyncIterator

import pytest

from storage.store import Store
from tests.integration.storage.world import KEYS, World, build_world


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    """A store on a fresh database."""
    opened = Store.open(database_url, KEYS)
    yield opened
    await opened.aclose()


@pytest.fixture
async def world(store: Store) -> World:
    """A user with a session of an agent, and a stranger in the same space."""
    return await build_world(store)

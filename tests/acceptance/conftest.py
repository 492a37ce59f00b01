"""A working AgentLoom for each acceptance test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.run_world import RunWorld, Servers, working_world


@pytest.fixture
def servers(database_url: str, temporal_address: str, task_queue: str, tmp_path: Path) -> Servers:
    """What the test's world stands on."""
    return Servers(database_url, temporal_address, task_queue, tmp_path)


@pytest.fixture
async def world(servers: Servers) -> AsyncIterator[RunWorld]:
    """A world with a worker in this process and a strict model; the test adds the script."""
    async with working_world(servers) as built:
        yield built

"""A working AgentLoom for each acceptance test."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.support.hanging import told_if_it_hangs
from tests.support.run_world import RunWorld, Servers, working_world


@pytest.fixture
def servers(database_url: str, temporal_address: str, task_queue: str, tmp_path: Path) -> Servers:
    """What the test's world stands on."""
    return Servers(database_url, temporal_address, task_queue, tmp_path)


@pytest.fixture
async def world(servers: Servers) -> AsyncIterator[RunWorld]:
    """A world with a worker in this process and a strict model; the test adds the script."""
    async with AsyncExitStack() as stack:
        built = await stack.enter_async_context(working_world(servers))
        yield built
        with told_if_it_hangs():
            await stack.aclose()

"""Signs of life of a regular activity, as long as this process and its event loop live (SPEC W5).

The provider's or tool's silence is watched by its own time-out; a heartbeat only says that the worker is there, so that
another takes over within seconds if it is not.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from temporalio import activity

BEAT_S = 0.5


@asynccontextmanager
async def heartbeating() -> AsyncIterator[None]:
    """Heartbeats while the block runs; does nothing in a local activity, which has none."""
    if activity.info().is_local:
        yield
        return
    beats = asyncio.create_task(_beat())
    try:
        yield
    finally:
        beats.cancel()


async def _beat() -> None:
    while True:  # the start of the activity is its first sign of life
        await asyncio.sleep(BEAT_S)
        activity.heartbeat()

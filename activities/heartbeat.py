"""Signs of life of a regular activity, as long as this process and its event loop live (SPEC W5).

The provider's or tool's silence is watched by its own time-out; a heartbeat only says that the worker is there, so that
another takes over within seconds if it is not.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from temporalio import activity

BEAT_S = 0.5
LATE_S = 1.5  # a process that begins what it was given that long ago stood still; 2 s without a sign give it to another
WORD_S = 0.5  # Temporal's answer to a sign of life is there in milliseconds


class Ages:
    """How old tries are as they begin, by Temporal's clock and ours, of which either may be wrong or be set right."""

    def __init__(self) -> None:
        self._newest: deque[float] = deque(maxlen=200)

    def lateness(self, age_s: float) -> float:
        """By how much a try of this age begins later than the promptest of the last ones; in seconds."""
        self._newest.append(age_s)
        return age_s - min(self._newest)


AGES = Ages()


@asynccontextmanager
async def heartbeating() -> AsyncIterator[None]:
    """Heartbeats while the block runs; does nothing in a local activity, which has none.

    A process that was frozen finds tries in its hands that were given up meanwhile, each of which would make its call:
    what begins late waits until Temporal could have said that it is not wanted any more, which is a cancellation.
    """
    if activity.info().is_local:
        yield
        return
    beats = asyncio.create_task(_beat())
    try:
        if AGES.lateness(time.time() - activity.info().started_time.timestamp()) > LATE_S:
            activity.heartbeat()
            await asyncio.sleep(WORD_S)
        yield
    finally:
        beats.cancel()


async def _beat() -> None:
    while True:  # the start of the activity is its first sign of life
        await asyncio.sleep(BEAT_S)
        activity.heartbeat()

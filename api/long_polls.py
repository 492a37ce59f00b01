"""Long polls: an answer that is held back until there is news, its time is up, the process ends, or its key did.

Like the event stream, it is woken by the feed; nothing polls.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar
from uuid import UUID

from api.wiring import Services
from context.errors import UnauthenticatedError


class Standing(Protocol):
    """What stands somewhere: the Run whose events may be its news, and how many of them there were."""

    @property
    def run_id(self) -> UUID: ...
    @property
    def event_head(self) -> int: ...


S = TypeVar("S", bound=Standing)


async def held(
    services: Services,
    read: Callable[[], Awaitable[S]],
    *,
    is_news: Callable[[S], bool],
    wait_s: float,
    is_allowed: Callable[[], Awaitable[bool]],
) -> S:
    """What `read` finds as soon as it is news, or after `wait_s`.

    Raises UnauthenticatedError when the key has been revoked meanwhile: what came after is not told (SPEC Y1).
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + wait_s
    found = await read()
    while not is_news(found) and (left := deadline - clock()) > 0 and not services.closing.is_set():
        await services.event_or_closing(found.run_id, found.event_head, min(left, services.options.sign_of_life_s))
        if not await is_allowed():
            raise UnauthenticatedError
        found = await read()
    return found

"""What the routes are given: one frozen value, made by `api/app.py` and carried by the application."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol, cast
from uuid import UUID

from fastapi import Depends, Request

from api.limits import KeyLimits, RateLimit
from api.metrics import Metrics
from api.publishing import Ports
from context.intents import Carried, Sender
from storage.events import RunEventFeed
from storage.store import Store


@dataclass(frozen=True)
class ApiOptions:
    """What an operator may change about the API."""

    rate_limit: RateLimit = field(default_factory=RateLimit)
    max_body_bytes: int = 8 << 20
    patience_s: float = 15.0
    sign_of_life_s: float = 15.0
    """How often an open stream says that it goes on, and whatever is held open looks at its key again."""


@dataclass(frozen=True)
class Rebuilt:
    """A request as it was sent: the wire bytes and their SHA-256 as hexadecimal digits (SPEC A9)."""

    body: bytes = field(repr=False)
    sha256: str


class AskRun(Protocol):
    """Asks the workflow of a Run for a compaction, once for each id `once`."""

    async def __call__(self, run_id: UUID, *, once: UUID | None = None) -> Carried: ...


@dataclass(frozen=True)
class Services:
    """Everything a route may touch."""

    store: Store
    feed: RunEventFeed
    sender: Sender
    ports: Ports
    rebuild: Callable[[UUID], Awaitable[Rebuilt]]
    not_as_sent: Callable[[Iterable[UUID]], Awaitable[list[UUID]]]
    compact: AskRun
    temporal_answers: Callable[[], Awaitable[bool]]
    limits: KeyLimits
    options: ApiOptions
    metrics: Metrics = field(default_factory=Metrics)
    background: set[asyncio.Task[Any]] = field(default_factory=set)
    closing: asyncio.Event = field(default_factory=asyncio.Event)

    def close_soon(self) -> None:
        """The process is told to end: open streams and long polls answer now, and their clients come back."""
        self.closing.set()

    async def event_or_closing(self, run_id: UUID, after: int, timeout: float) -> bool:
        """As `feed.wait`, but True too, and at once, when the process is told to end."""
        tasks = [
            asyncio.ensure_future(self.feed.wait(run_id, after, timeout)),
            asyncio.ensure_future(self.closing.wait()),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
        return any(task.result() for task in done)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Let work go on behind an answer that need not wait for it; a crash before it ends must be harmless."""
        task = asyncio.create_task(work)
        self.background.add(task)
        task.add_done_callback(self.background.discard)


def services_of(request: Request) -> Services:
    """The services of the application that serves the request."""
    return cast(Services, request.app.state.services)


Wired = Annotated[Services, Depends(services_of)]

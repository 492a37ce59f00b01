"""Many Runs at once, and workers that are replaced under them (SPEC S1, R2; the same code in tests and benchmarks)."""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from tests.support import replies
from tests.support.child_worker import ChildWorker, WorkerNursery, WorkerPlace
from tests.support.model_server import ModelServer, RecordedRequest
from tests.support.replies import Reply
from tests.support.run_world import Json, RunWorld

T = TypeVar("T")
AT_ONCE = 50  # requests of one client in flight


def answers_after(loops: int, *, tool: str, trace: str, delay_s: float = 0.0) -> "PatientModel":
    """A model that calls the tool in each of `loops` loops and then answers; it reads what it was sent."""
    return PatientModel(loops, tool, trace, delay_s)


@dataclass(frozen=True)
class PatientModel:
    """Decides by the number of results in the request, so that any number of Runs can ask it at once."""

    loops: int
    tool: str
    trace: str
    delay_s: float

    def __call__(self, request: RecordedRequest) -> Reply:
        messages = request.json["messages"]
        done = sum(message["role"] == "tool" for message in messages)
        if done >= self.loops:
            return replies.text("done").but(delay_s=self.delay_s)
        asked = next(message["content"] for message in messages if message["role"] == "user")
        arguments = {"key": f"{asked}/{done}", "trace": self.trace}
        return replies.calls((self.tool, arguments)).but(delay_s=self.delay_s)


@dataclass
class Crowd:
    """What became of many questions asked at once. Times are in seconds since the first was asked."""

    runs: list[Json] = field(default_factory=list)
    refused: Counter[tuple[int, str]] = field(default_factory=Counter)
    accepted_after_s: float = 0.0
    ended_after_s: float = 0.0

    @property
    def ends(self) -> Counter[str]:
        return Counter(run["status"] for run in self.runs)


async def ask_at_once(world: RunWorld, sessions: list[str], *, second_questions: bool) -> Crowd:
    """One question in each session at once, then perhaps a second one while it is busy; all Runs at their end."""
    crowd, began = Crowd(), time.perf_counter()
    started = await gather(world.start(f"q{n}", session) for n, session in enumerate(sessions))
    crowd.accepted_after_s = time.perf_counter() - began
    if second_questions:
        crowd.refused.update(await gather(_refusal(world, session) for session in sessions))
    crowd.runs = await gather((world.over(run_id) for run_id in started), at_once=len(started))
    crowd.ended_after_s = time.perf_counter() - began
    return crowd


async def _refusal(world: RunWorld, session: str) -> tuple[int, str]:
    answer = await world.http.post(f"/sessions/{session}/inputs", json={"text": "another", "mode": "question"})
    return answer.status_code, str(answer.json().get("code", "accepted"))


async def gather(calls: Iterable[Awaitable[T]], *, at_once: int = AT_ONCE) -> list[T]:
    """The results in order, a limited number of calls at a time."""
    places = asyncio.Semaphore(at_once)

    async def call(one: Awaitable[T]) -> T:
        async with places:
            return await one

    return await asyncio.gather(*(call(one) for one in calls))


def repeats(model: ModelServer) -> int:
    """Model requests that were made more than once, byte for byte."""
    return sum(count - 1 for count in Counter(request.body for request in model.requests).values())


@asynccontextmanager
async def replaced_workers(nursery: WorkerNursery, place: WorkerPlace, *, every_s: float) -> AsyncIterator[list[int]]:
    """Two workers, the older of which is told to end whenever a new one has come; the ids of those that ended."""
    workers = [nursery.start(place), nursery.start(place)]
    ended: list[int] = []
    rolling = asyncio.create_task(_roll(nursery, place, workers, ended, every_s))
    try:
        yield ended
    finally:
        rolling.cancel()
        await asyncio.gather(rolling, return_exceptions=True)
        for worker in workers:
            await worker.killed()


async def _roll(
    nursery: WorkerNursery, place: WorkerPlace, workers: list[ChildWorker], ended: list[int], every_s: float
) -> None:
    while True:
        await asyncio.sleep(every_s)
        workers.append(nursery.start(place))
        old = workers[0]
        old.send(signal.SIGTERM)
        await old.gone()
        ended.append(workers.pop(0).pid)

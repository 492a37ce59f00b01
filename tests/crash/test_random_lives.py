"""Random sequences of ask, supplement, withdraw, stop, resume and crash, against a reference model (SPEC R1, S3-S12).

The suite plays a few minutes' worth of several users at once; `--full-matrix` plays 2 000 supplements.
"""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.child_worker import ChildWorker, WorkerNursery, WorkerPlace
from tests.support.faults import Fault
from tests.support.lives import Moods, User, check
from tests.support.run_world import Json, RunWorld, python_tool

COMMITS = (
    "open_run",
    "prepare_request",
    "begin_attempt",
    "record_first_output",
    "accept_model",
    "record_tool_result",
    "finish_run",
    "claim_intents",
    "settle_intent",
)
POINTS = (*(f"{commit}.{side}_commit" for commit in COMMITS for side in ("before", "after")), "call_model.answered")
AGENT: Json = {
    "limits": {"max_loops": 12, "max_parallel_tools": 2},
    "model": {"retry": {"max_attempts": 2, "max_elapsed_s": 5}},
}


@dataclass
class Supervisor:
    """Keeps a worker running that dies again and again: at random boundaries, and at random times."""

    nursery: WorkerNursery
    place: WorkerPlace
    folder: Path
    chance: random.Random
    deaths: int = 0

    @asynccontextmanager
    async def supervising(self) -> AsyncIterator[None]:
        watching = asyncio.create_task(self._keep())
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _keep(self) -> None:
        worker: ChildWorker | None = None
        try:
            while True:
                worker = self.nursery.start(self.place, *self._faults())
                await self._until_gone(worker)
                self.deaths += 1
        finally:
            if worker:
                await worker.killed()

    def _faults(self) -> list[Fault]:
        if self.chance.random() < 0.3:
            return []
        reached = str(self.folder / f"strike-{self.deaths}")
        return [Fault(self.chance.choice(POINTS), reached, nth=self.chance.randint(1, 12))]

    async def _until_gone(self, worker: ChildWorker) -> None:
        """It may die by its fault; some seconds later it is killed in any case."""
        deadline = asyncio.get_running_loop().time() + self.chance.uniform(0.8, 3.5)
        while worker.lives and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.02)
        await worker.killed()


async def play(
    world: RunWorld, nursery: WorkerNursery, place: WorkerPlace, seed: int, users: int, actions: int
) -> Counter[str]:
    """Several users live at once while workers die; then all comes to rest and is checked. What happened, counted."""
    chance = random.Random(seed)
    moods = Moods(random.Random(seed + 1))
    world.model.add(*[moods] * 50_000)
    people = []
    for number, late_input in zip(range(users), ["carry", "continue"] * users, strict=False):
        name = f"agent-{late_input}"
        if name not in world.agents:
            tools: list[str | Json] = ["now", python_tool("pause", "idempotent")]
            await world.publish(name, tools=tools, context={"late_input": late_input}, **AGENT)
        session = await world.open_session(name)
        people.append(User(world, session, f"u{number}", random.Random(seed * 100 + number)))
    supervisor = Supervisor(nursery, place, world.servers.folder, chance)
    async with supervisor.supervising():
        await asyncio.gather(*(person.live(actions) for person in people))
    moods.steady = True
    async with nursery.worker(place):
        await asyncio.gather(*(person.settle() for person in people))
    happened = Counter({"deaths": supervisor.deaths})
    for person in people:
        happened += await check(person, world.model.requests)
    assert world.model.refusals == []
    return happened


@pytest.mark.parametrize("seed", [1, 2])
async def test_every_input_is_where_it_must_be_after_any_life(
    world: RunWorld, nursery: WorkerNursery, place: WorkerPlace, seed: int
) -> None:
    """SPEC R1, S3-S9, S12: what was acknowledged is delivered once or was withdrawn; no request has it twice."""
    happened = await play(world, nursery, place, seed, users=4, actions=25)
    assert happened["supplements"] > 40
    assert happened["deaths"] > 0


@pytest.mark.timeout(1_800)
async def test_two_thousand_supplements_are_where_they_must_be(
    world: RunWorld, nursery: WorkerNursery, place: WorkerPlace, full_matrix: bool
) -> None:
    """SPEC R1: the same for long."""
    if not full_matrix:
        pytest.skip("only with --full-matrix")
    happened: Counter[str] = Counter()
    for seed in itertools.count(100):
        happened += await play(world, nursery, place, seed, users=8, actions=60)
        if happened["supplements"] > 2_000:
            break
    assert min(happened[what] for what in ("carried", "withdrawn", "resumes", "deaths")) > 20

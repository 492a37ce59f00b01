"""What preparing a request costs with 10 000 earlier records beside 10 (SPEC P6, DESIGN 5: the growth law).

`python -m benchmarks.preparing [RECORDS]`. Runs are played commit by commit on a real database, without a model, so
that nothing but the preparation is timed; nobody waits for the disk, which costs all of them the same. The sessions
take turns, step by step, and have the same window and the same two newest Runs; the small one is there twice, to show
what chance does. What the first request of a Run costs, which shows earlier inputs (SPEC P1), is told apart.
"""

import asyncio
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

import uvloop
from sqlalchemy import text

from benchmarks.ground import Servers, real_servers
from benchmarks.long_run import stored_bytes
from context.steps import OpenRun, RequestTerms
from storage.commits.create_session import CreateSession, create_session
from storage.commits.open_run import open_run
from storage.requests import Requests
from storage.store import Store
from tests.integration.commits.life import Life
from tests.integration.storage.played import TERMS
from tests.integration.storage.world import KEYS, World, build_world, say

RECORDS = 10_000
STEPS, ROUNDS, WEIGHED_STEPS = 40, 6, 5
RATIO_OF_TIME, RATIO_OF_BYTES = 1.2, 1.1
NEWEST = (1, 2)
"""Tool calls of the two newest Runs of every session; with question and answer that makes ten records."""
_BUDGET = replace(TERMS.budget, window=100_000_000)
WIDE = replace(TERMS, budget=_BUDGET, compaction=replace(TERMS.compaction, budget=_BUDGET))
"""Nothing is compacted while the earlier Runs are played, and the window of all sessions is the same."""


@dataclass
class Player(Life):
    """A Run played with these terms."""

    terms: RequestTerms = WIDE

    async def step(self, store: Store) -> None:
        """The model asks for a tool, and has its result."""
        await self.accept(store, "look")
        await self.begin(store, self.tool())
        await self.record(store, says=f"nothing new in loop {self.loop}")
        self.batch_id, self.loop = self.operation_id, self.loop + 1

    async def answered(self, store: Store) -> None:
        """The Run's end."""
        await self.accept(store)
        await self.finish(store)


@dataclass
class Measured:
    """One kind of session and what was measured on it: seconds and bytes of each preparation."""

    name: str
    world: World
    first: list[float] = field(default_factory=list)
    later: list[float] = field(default_factory=list)
    read: list[float] = field(default_factory=list)
    stored: list[int] = field(default_factory=list)
    stored_first: list[int] = field(default_factory=list)


async def asked(store: Store, world: World) -> Player:
    """A Run whose question is accepted, opened."""
    run_id = (await say(store, world, f"What is there in {world.session_id}?")).run_id
    context_id = (await open_run(store, OpenRun(run_id=run_id, execution_no=1))).context_id
    return Player(world, run_id, context_id)


async def played(store: Store, world: World, calls: int) -> None:
    """A whole Run with so many tool calls."""
    player = await asked(store, world)
    for _ in range(calls):
        await player.prepare(store)
        await player.step(store)
    await player.prepare(store)
    await player.answered(store)


async def session_with(store: Store, world: World, runs: int, records: int) -> World:
    """A new session of the same agent with so many records in so many Runs, and the two newest ones."""
    session = await create_session(store, CreateSession(world.space_id, world.owner_id, "scout"))
    its = replace(world, session_id=session.session_id)
    for _ in range(runs):
        await played(store, its, (records // runs - 2) // 2)
    for calls in NEWEST:
        await played(store, its, calls)
    return its


async def timed(store: Store, player: Player, into: list[float], read: list[float]) -> None:
    """Prepare, then read what is new as the call does; both timed."""
    began = time.perf_counter()
    await player.prepare(store)
    prepared = time.perf_counter()
    into.append(prepared - began)
    held = await _held(store, player.operation_id)
    began = time.perf_counter()
    await Requests(store).load(player.operation_id, execution_no=1, held=held)
    read.append(time.perf_counter() - began)


async def _held(store: Store, operation_id: UUID) -> tuple[UUID, int] | None:
    """What a worker has in memory that sent the request before: all but the last two messages."""
    place = "SELECT view_id, view_length FROM operations WHERE operation_id = :id"
    async with store.reading() as connection:
        row = (await connection.execute(text(place), {"id": operation_id})).one()
    return (row.view_id, row.view_length - 2) if row.view_length > 2 else None


async def round_of(store: Store, sessions: Sequence[Measured]) -> None:
    """One more Run in each session, in turn step by step."""
    players = [(one, await asked(store, one.world)) for one in sessions]
    for step in range(STEPS):
        players.append(players.pop(0))  # nobody is always the first
        for one, player in players:
            await timed(store, player, one.later if step else one.first, one.read)
            await player.step(store)
    for _, player in players:
        await player.prepare(store)
        await player.answered(store)


async def weigh(store: Store, one: Measured) -> None:
    """Bytes that preparations store, in one more Run."""
    player = await asked(store, one.world)
    for step in range(WEIGHED_STEPS + 1):
        before = await stored_bytes(store)
        await player.prepare(store)
        (one.stored if step else one.stored_first).append(await stored_bytes(store) - before)
        await player.step(store)
    await player.prepare(store)
    await player.answered(store)


def shown(sessions: Sequence[Measured]) -> int:
    """Print the table; 1 if something is over its ratio."""
    base, over = sessions[0], 0
    for one in sessions:
        late, read = (statistics.median(values) * 1000 for values in (one.later, one.read))
        size, ratio = statistics.median(one.stored), late / (statistics.median(base.later) * 1000)
        heavier = size / statistics.median(base.stored)
        print(f"{one.name:32} {late:6.2f} ms ({ratio:.2f} x), {read:5.2f} ms read, {size:6.0f} bytes ({heavier:.2f} x)")
        first = statistics.median(one.first) * 1000
        print(f"{'  first request of a Run, apart':32} {first:6.2f} ms, {one.stored_first[0]:30} bytes")
        over |= ratio > RATIO_OF_TIME or heavier > RATIO_OF_BYTES
    return over


async def built(store: Store, records: int) -> list[Measured]:
    """The sessions, filled side by side."""
    world = await build_world(store)
    wanted = {"10 earlier records": (0, 0), "10 earlier records, again": (0, 0)}
    wanted |= {f"{records} earlier in {runs} Runs": (runs, records) for runs in (10, 100)}
    filled = await asyncio.gather(*(session_with(store, world, *size) for size in wanted.values()))
    return [Measured(name, its) for name, its in zip(wanted, filled, strict=True)]


async def main(at: Servers, records: int) -> int:
    store = Store.open(at.database_url, KEYS, pool_size=5)
    try:
        name = at.database_url.rpartition("/")[2]
        async with store.database.transaction() as connection:
            await connection.execute(text(f'ALTER DATABASE "{name}" SET synchronous_commit = off'))
        await store.database.engine.dispose()  # connections take it up when they are made
        sessions = await built(store, records)
        for _ in range(ROUNDS):
            await round_of(store, sessions)
        for one in sessions:
            await weigh(store, one)
    finally:
        await store.aclose()
    return shown(sessions)


if __name__ == "__main__":
    with real_servers() as at:
        sys.exit(uvloop.run(main(at, int(sys.argv[1]) if len(sys.argv) > 1 else RECORDS)))

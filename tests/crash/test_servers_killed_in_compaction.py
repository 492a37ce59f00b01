"""kill -9 of PostgreSQL and of Temporal during a compaction: finished blocks called once, one summary (SPEC K7, R7).

The server dies while the model writes the second block's summary, and is started again on its data, as the stack does.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.crash.test_killed_compaction import BLOCKS, LONG, PART, SMALL, answered, is_block
from tests.support import replies
from tests.support.child_worker import WorkerNursery, place_of
from tests.support.model_server import ModelServer, RecordedRequest
from tests.support.mortal import Mortal
from tests.support.run_world import Json, RunWorld, Servers, running_world

HELD = f"PART-{BLOCKS}"
NOTED = 3


def holding(request: RecordedRequest) -> replies.Reply:
    """As undisturbed, but the last block's summary waits to be let go."""
    said = answered(request)
    last = is_block(request) and b"PART-1" in request.body
    return said.but(hold="last") if last else said


@asynccontextmanager
async def in_the_last_block(
    servers: Servers, nursery: WorkerNursery, *, idle: bool = False
) -> AsyncIterator[tuple[RunWorld, str]]:
    """A session whose compaction is in its last block; the id of the Run that it stands with."""
    async with ModelServer(strict="plain") as model, running_world(servers, model) as world:
        context: Json = {"context": {"recent_runs": 0, "trigger_ratio": 1, "keep_recent_tokens": 0}} if idle else {}
        await world.publish(**(SMALL | context))
        model.add(*[holding] * 16)
        session = await world.open_session()
        async with nursery.kept(place_of(world)):
            for _ in range(NOTED):
                run_id = (await world.ask(LONG, session))["run_id"]
            if idle:
                await world.post(f"/sessions/{session}/compact", None, status=202)
            else:
                run_id = await world.start(LONG, session)
            await model.wait_for_requests(NOTED + BLOCKS)
            yield world, run_id


async def went_on(world: RunWorld, run_id: str) -> None:
    """The compaction ended with its one summary, each finished block called once."""
    (one,) = await world.items(f"/runs/{run_id}/compactions")
    one = await world.get(f"/compactions/{one['episode_id']}", wait_s=30)
    assert (one["status"], one["outcome"], one["cursor"]) == ("succeeded", "activated", BLOCKS)
    blocks = [request.body for request in world.model.requests if is_block(request)]
    assert len(set(blocks)) == BLOCKS
    assert blocks.count(blocks[0]) == 1
    assert (await world.get(f"/sessions/{one['session_id']}/verify"))["breaks"] == []
    assert world.model.refusals == []


async def test_a_compaction_survives_the_death_of_postgresql(
    nursery: WorkerNursery, own_postgres: tuple[Mortal, str], temporal_address: str, task_queue: str, tmp_path: Path
) -> None:
    """SPEC K7, R2: the summary that came while nobody could store it is stored once the database is back."""
    server, url = own_postgres
    servers = Servers(url, temporal_address, task_queue, tmp_path)
    async with in_the_last_block(servers, nursery) as (world, run_id):
        server.kill()
        world.model.release("last")
        await server.start()
        assert (await world.ended(run_id))["answer"] == "Noted."
        await went_on(world, run_id)
        assert PART.findall(world.model.requests[-1].body.decode()) == [str(BLOCKS)]


async def test_a_compaction_survives_the_death_of_temporal(
    nursery: WorkerNursery, own_temporal: tuple[Mortal, str], database_url: str, tmp_path: Path
) -> None:
    """SPEC K7, R2: the child workflow goes on at its cursor."""
    server, address = own_temporal
    servers = Servers(database_url, address, "mortal", tmp_path)
    async with in_the_last_block(servers, nursery) as (world, run_id):
        server.kill()
        world.model.release("last")
        await server.start()
        assert (await world.ended(run_id))["answer"] == "Noted."
        await went_on(world, run_id)
        assert PART.findall(world.model.requests[-1].body.decode()) == [str(BLOCKS)]


async def test_an_idle_sessions_compaction_survives_the_death_of_both(
    nursery: WorkerNursery, own_postgres: tuple[Mortal, str], own_temporal: tuple[Mortal, str], tmp_path: Path
) -> None:
    """SPEC K7, K12, R2."""
    servers = Servers(own_postgres[1], own_temporal[1], "mortal", tmp_path)
    async with in_the_last_block(servers, nursery, idle=True) as (world, run_id):
        for server in (own_postgres[0], own_temporal[0]):
            server.kill()
        world.model.release("last")
        for server in (own_postgres[0], own_temporal[0]):
            await server.start()
        await went_on(world, run_id)

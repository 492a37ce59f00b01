"""kill -9 of Temporal and of PostgreSQL, and of everything at once, in the middle of a Run (SPEC R1, R2, R8)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support import replies
from tests.support.child_worker import WorkerNursery, place_of
from tests.support.model_server import ModelServer
from tests.support.mortal import Mortal
from tests.support.run_tools import traced
from tests.support.run_world import RunWorld, Servers, python_tool, running_world


@asynccontextmanager
async def in_mid_run(world: RunWorld, nursery: WorkerNursery, trace: Path, gate: Path) -> AsyncIterator[str]:
    """A Run whose batch has one result recorded while its other tool waits for the gate; then on to the end."""
    await world.publish(tools=["look", python_tool("wait_for", "idempotent")])
    waits = ("wait_for", {"path": str(gate), "trace": str(trace.with_name("waits"))})
    world.model.add(replies.calls(("look", {"key": "a", "trace": str(trace)}), waits), "done")
    async with nursery.kept(place_of(world)):
        run_id = await world.start()
        await until_settled(world, run_id, "look")
        yield run_id
        gate.touch()
        run = await world.ended(run_id)
    assert (run["status"], run["answer"], len(world.model.requests)) == ("succeeded", "done", 2)
    assert traced(trace) == ["a"]
    contents = [message["message"]["content"] for message in await world.messages(run["session_id"])]
    assert contents[-3:] == ["found a", "it is there", "done"]


async def until_settled(world: RunWorld, run_id: str, tool: str) -> None:
    async with asyncio.timeout(20):
        while not any(one["name"] == tool and one["state"] == "accepted" for one in await world.operations(run_id)):
            await asyncio.sleep(0.02)


async def test_a_run_survives_the_death_of_temporal(
    nursery: WorkerNursery, own_temporal: tuple[Mortal, str], database_url: str, tmp_path: Path
) -> None:
    """SPEC R2: the server comes back on its file, and the Run goes on from where it was."""
    server, address = own_temporal
    async with (
        ModelServer(strict="plain") as model,
        running_world(Servers(database_url, address, "mortal", tmp_path), model) as world,
        in_mid_run(world, nursery, tmp_path / "trace", tmp_path / "gate"),
    ):
        server.kill()
        await server.start()


async def test_a_run_survives_the_death_of_postgresql(
    nursery: WorkerNursery, own_postgres: tuple[Mortal, str], temporal_address: str, task_queue: str, tmp_path: Path
) -> None:
    """SPEC R1, R8: the tool's result waits for the database and is stored once it is back; nothing is called again."""
    server, url = own_postgres
    async with (
        ModelServer(strict="plain") as model,
        running_world(Servers(url, temporal_address, task_queue, tmp_path), model) as world,
        in_mid_run(world, nursery, tmp_path / "trace", tmp_path / "gate"),
    ):
        server.kill()
        (tmp_path / "gate").touch()  # the tool answers while nobody can record it
        await server.start()


async def test_a_run_survives_the_death_of_everything_at_once(
    nursery: WorkerNursery, own_postgres: tuple[Mortal, str], own_temporal: tuple[Mortal, str], tmp_path: Path
) -> None:
    """SPEC R1-R3: worker, Temporal and PostgreSQL die together and start again on their data."""
    servers = Servers(own_postgres[1], own_temporal[1], "mortal", tmp_path)
    trace, gate = tmp_path / "trace", tmp_path / "gate"
    async with ModelServer(strict="plain") as model, running_world(servers, model) as world:
        await world.publish(tools=["look", python_tool("wait_for", "idempotent")])
        waits = ("wait_for", {"path": str(gate), "trace": str(tmp_path / "waits")})
        world.model.add(replies.calls(("look", {"key": "a", "trace": str(trace)}), waits), "done")
        async with nursery.worker(place_of(world)) as worker:
            run_id = await world.start()
            await until_settled(world, run_id, "look")
            own_postgres[0].kill()
            own_temporal[0].kill()
            await worker.killed()
        await own_postgres[0].start()
        await own_temporal[0].start()
        gate.touch()
        async with nursery.worker(place_of(world)):
            run = await world.ended(run_id)
    assert (run["status"], len(model.requests), traced(trace)) == ("succeeded", 2, ["a"])

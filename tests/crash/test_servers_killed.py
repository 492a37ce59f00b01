"""kill -9 of Temporal and of PostgreSQL, and of everything at once, in the middle of a Run (SPEC R1, R2, R8)."""

import asyncio
import secrets
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from stack import postgres, temporal
from stack.children import ChildSpec, send, spawn
from stack.ports import any_free_port
from storage.migrate import upgrade
from tests.support import replies
from tests.support.child_worker import WorkerNursery, place_of
from tests.support.model_server import ModelServer
from tests.support.run_tools import traced
from tests.support.run_world import RunWorld, Servers, python_tool, running_world


class Mortal:
    """A server of this test's own that can be killed and started again on the same data and port."""

    def __init__(self, spec: ChildSpec) -> None:
        self._spec = spec
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        for _ in range(self._spec.start_attempts):
            self._process = spawn(self._spec)
            while self._process.poll() is None:
                if await self._spec.is_ready(self._process.pid):
                    return
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.2)  # a stale lock of the one that was killed
        raise AssertionError(f"{self._spec.name} did not come back")

    def kill(self) -> None:
        assert self._process
        send(self._process, signal.SIGKILL)
        self._process.wait()

    def end(self) -> None:
        if self._process and self._process.poll() is None:
            send(self._process, self._spec.stop_signal)
            self._process.wait(15)


@pytest.fixture
async def own_postgres(tmp_path: Path) -> AsyncIterator[tuple[Mortal, str]]:
    """A durable PostgreSQL of the test's own, migrated; and its URL."""
    server = postgres.prepare(tmp_path / "postgres", port=any_free_port(), password=secrets.token_urlsafe(12))
    mortal = Mortal(server.child(log_file=tmp_path / "postgres.log"))
    await mortal.start()
    await server.ensure_database()
    await upgrade(server.url())
    yield mortal, server.url()
    mortal.end()


@pytest.fixture
async def own_temporal(tmp_path: Path) -> AsyncIterator[tuple[Mortal, str]]:
    """A Temporal server of the test's own, and its address."""
    server = temporal.prepare(tmp_path / "temporal.db", port=any_free_port(), ui_port=None)
    mortal = Mortal(server.child(log_file=tmp_path / "temporal.log"))
    await mortal.start()
    yield mortal, server.address
    mortal.end()


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

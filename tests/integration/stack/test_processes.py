"""Worker and API as processes of their own, in what they meet when they start."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import asyncpg
import httpx
import pytest
from temporalio.client import Client

from stack import temporal
from stack.ports import any_free_port
from stack.postgres import PostgresServer
from storage.payloads import Keys
from storage.store import Store
from tests.integration.storage.world import KEYS, build_world, environment

KEY = f"{'A' * 43}="
ENVIRONMENT = {
    "DATABASE_URL": "postgresql://ann@127.0.0.1:1/loom",
    "AGENTLOOM_MASTER_KEYS": f"k1:{KEY}",
    "AGENTLOOM_INDEX_KEY": KEY,
}


@asynccontextmanager
async def process(module: str, told: Mapping[str, str], *options: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """One of the processes, started as `python -m` starts it, and gone after the block."""
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", module, *options),
        stdin=asyncio.subprocess.PIPE,
        env=os.environ | {"AGENTLOOM_API_PORT": "0"} | dict(told),
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
            await started.communicate()


async def test_a_worker_that_starts_before_temporal_waits_for_it_and_can_be_stopped() -> None:
    """SPEC 17: after a restart of a machine its parts come up in any order."""
    address = f"127.0.0.1:{any_free_port()}"
    async with process("worker", ENVIRONMENT | {"TEMPORAL_ADDRESS": address}) as worker:
        assert address in await line_with(worker, "does not answer")
        worker.terminate()
        assert await asyncio.wait_for(worker.wait(), timeout=10) == 0


async def test_a_worker_that_starts_before_the_database_waits_for_it_and_can_be_stopped(temporal_address: str) -> None:
    """SPEC 17, Y2: until then it can't know whether its keys are the right ones, and polls nothing."""
    async with process("worker", ENVIRONMENT | {"TEMPORAL_ADDRESS": temporal_address}) as worker:
        await line_with(worker, "the database does not answer")
        worker.terminate()
        assert await asyncio.wait_for(worker.wait(), timeout=10) == 0


async def test_a_worker_that_stands_in_works_when_it_is_told_to() -> None:
    """SPEC 17, decision 0126."""
    address = f"127.0.0.1:{any_free_port()}"
    async with process("worker", ENVIRONMENT | {"TEMPORAL_ADDRESS": address}, "--stand-in") as worker:
        assert worker.stdin
        worker.stdin.write(b"\n")
        assert address in await line_with(worker, "does not answer")


async def test_a_worker_that_stands_in_ends_with_whom_would_tell_it() -> None:
    """SPEC 17, decision 0126: it has not even read its settings by then."""
    async with process("worker", {}, "--stand-in") as worker:
        assert worker.stdin
        worker.stdin.close()
        _, said = await asyncio.wait_for(worker.communicate(), timeout=30)
    assert (said, worker.returncode) == (b"", 0)


async def line_with(running: asyncio.subprocess.Process, words: str) -> str:
    """The first line on standard error with these words; an AssertionError if the process ends before."""
    assert running.stderr
    while words not in (line := (await asyncio.wait_for(running.stderr.readline(), timeout=30)).decode()):
        assert line, "the process ended"
    return line


@pytest.fixture
async def written(database_url: str) -> str:
    """A database with content that `KEYS` opens."""
    store = Store.open(database_url, KEYS, pool_size=1)
    await build_world(store)
    await store.aclose()
    return database_url


@pytest.mark.parametrize("module", ["worker", "api"])
async def test_a_process_whose_keys_open_nothing_that_is_stored_says_so_and_ends(
    written: str, temporal_client: Client, temporal_address: str, task_queue: str, module: str
) -> None:
    """SPEC Y2: it ends no Run that another worker could go on with, and writes nothing that nobody else could read."""
    told = environment(written, Keys({"k1": b"o" * 32}, KEYS.index))
    async with process(
        module, told | {"TEMPORAL_ADDRESS": temporal_address, "AGENTLOOM_TASK_QUEUE": task_queue}
    ) as one:
        _, said = await asyncio.wait_for(one.communicate(), timeout=30)
    assert one.returncode == 1
    last = json.loads(said.decode().splitlines()[-1])["message"]
    assert "Key k1 of AGENTLOOM_MASTER_KEYS opens nothing" in last
    assert "Give the key that it was encrypted with" in last
    assert b"Traceback" not in said
    assert not await temporal.is_polled(temporal_client, task_queue)


async def test_an_api_whose_database_comes_later_looks_at_its_keys_then(
    postgres_server: PostgresServer, written: str, temporal_address: str
) -> None:
    """SPEC R8, Y2: it serves meanwhile, and says that it isn't ready."""
    port, name = any_free_port(), written.rpartition("/")[2]
    told = environment(f"{written}_restored", Keys({"k1": b"o" * 32}, KEYS.index))
    more = {"AGENTLOOM_API_PORT": str(port), "TEMPORAL_ADDRESS": temporal_address}
    async with process("api", told | more) as api, connected(postgres_server.url("postgres")) as administrator:
        assert (await readiness(port)).json()["database"] == "away"
        await administrator.execute(f'CREATE DATABASE "{name}_restored" TEMPLATE "{name}"')
        _, said = await asyncio.wait_for(api.communicate(), timeout=30)
        await administrator.execute(f'DROP DATABASE "{name}_restored"')
    assert api.returncode == 1
    assert "Key k1 of AGENTLOOM_MASTER_KEYS opens nothing" in json.loads(said.decode().splitlines()[-1])["message"]


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def readiness(port: int) -> httpx.Response:
    """What the API says of itself, as soon as it says something."""
    async with asyncio.timeout(30), httpx.AsyncClient(trust_env=False) as client:
        while True:
            try:
                return await client.get(f"http://127.0.0.1:{port}/readyz")
            except httpx.ConnectError:
                await asyncio.sleep(0.05)

"""What the API does while the database or Temporal is away (SPEC R8, W7), and how it says so."""

import asyncio
import os
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import asyncpg
import httpx
import pytest

from api.wiring import ApiOptions
from stack import postgres
from stack.children import ChildSpec
from stack.ports import any_free_port
from storage.migrate import upgrade
from storage.payloads import Keys
from storage.store import Store
from tests.api.conftest import Person, asked, opened
from tests.support.servers import run_now, running_child


class Restartable:
    """A PostgreSQL of its own that a test can stop and start."""

    def __init__(self, folder: Path) -> None:
        server = postgres.prepare(folder / "postgres", port=any_free_port(), password=secrets.token_urlsafe(12))
        self.url = server.url("postgres")
        self._spec: ChildSpec = server.child(log_file=folder / "log", settings=postgres.WITHOUT_DURABILITY)
        self._running = ExitStack()

    def start(self) -> None:
        self._running.enter_context(running_child(self._spec))

    def stop(self) -> None:
        self._running.close()


@pytest.fixture
def restartable(tmp_path: Path) -> Iterator[Restartable]:
    server = Restartable(tmp_path)
    server.start()
    run_now(upgrade(server.url))
    yield server
    server.stop()


@pytest.fixture
async def store(restartable: Restartable) -> AsyncIterator[Store]:
    opened = Store.open(restartable.url, Keys({"k1": os.urandom(32)}, os.urandom(32)), pool_size=3)
    yield opened
    await opened.aclose()


@pytest.fixture
def options() -> ApiOptions:
    return ApiOptions(patience_s=6)


async def test_a_request_waits_for_a_restarting_database_and_is_answered_once(
    ann: Person, restartable: Restartable
) -> None:
    """R8: nothing acknowledged is lost, and nothing is stored twice."""
    session = await opened(ann)
    await asyncio.to_thread(restartable.stop)
    waiting = [asyncio.create_task(asked(ann, session, "q")), asyncio.create_task(ann.http.get("/usage"))]
    await asyncio.to_thread(restartable.start)
    accepted = await waiting[0]
    assert isinstance(accepted, dict)
    await waiting[1]
    inputs = (await ann.http.get(f"/sessions/{session}/inputs")).json()["items"]
    assert [one["input_id"] for one in inputs] == [accepted["input_id"]]


async def test_a_database_that_stays_away_is_said_after_the_patience_ran_out(
    ann: Person, address: str, restartable: Restartable
) -> None:
    """R8: 503 with Retry-After."""
    await asyncio.to_thread(restartable.stop)
    began = time.monotonic()
    refused = await ann.http.get("/usage")
    assert 5 < time.monotonic() - began < 20
    assert (refused.status_code, refused.json()["code"]) == (503, "UNAVAILABLE")
    assert int(refused.headers["retry-after"]) > 0
    async with httpx.AsyncClient(base_url=address, trust_env=False, timeout=30) as http:
        ready = await http.get("/readyz")
        assert (ready.status_code, ready.json()["database"]) == (503, "away")
        assert (await http.get("/healthz")).status_code == 200


async def test_a_database_that_takes_no_writes_is_said_by_readiness_until_it_does(
    ann: Person, address: str, restartable: Restartable
) -> None:
    """R8: after a fail-over to a server that is no primary yet, questions can be read and not asked."""
    session = await opened(ann)
    async with httpx.AsyncClient(base_url=address, trust_env=False, timeout=30) as http:
        await take_writes(restartable, False)
        for _ in range(2):
            ready = await http.get("/readyz")
            assert (ready.status_code, ready.json()["database"]) == (503, "read_only")
        assert (await ann.http.get(f"/sessions/{session}")).status_code == 200
        waiting = asyncio.create_task(asked(ann, session, "q"))
        await take_writes(restartable, True)
        assert (await waiting)["kind"] == "question"
        assert (await http.get("/readyz")).json()["database"] == "ok"


async def take_writes(restartable: Restartable, takes: bool) -> None:
    """Let new connections write, or not, and cut those that there are."""
    connection = await asyncpg.connect(restartable.url, server_settings={"default_transaction_read_only": "off"})
    await connection.execute(f"ALTER DATABASE postgres SET default_transaction_read_only = {not takes}")
    others = "datname = 'postgres' AND pid <> pg_backend_pid()"
    await connection.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")
    await connection.close()


async def test_without_temporal_an_input_is_accepted_and_readiness_says_what_is_missing(
    ann: Person, address: str
) -> None:
    """W7: the relay sends later what could not be sent now."""
    assert (await asked(ann, await opened(ann)))["kind"] == "question"
    async with httpx.AsyncClient(base_url=address, trust_env=False, timeout=30) as http:
        ready = (await http.get("/readyz")).json()
        assert (ready["database"], ready["temporal"]) == ("ok", "away")
        counted = (await http.get("/metrics")).text
        assert (
            'agentloom_http_requests_total{method="POST",route="/sessions/{session_id}/inputs",status="202"}' in counted
        )

"""Real servers for tests: one PostgreSQL and one Temporal per test session, started when a test first asks.

They are started by the same code as `agentloom dev` starts its own, with durability off, and die with the test
process. Databases are cloned from a migrated template, which takes milliseconds.
"""

import asyncio
import secrets
import signal
import subprocess
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import asyncpg

from stack import postgres, temporal
from stack.children import ChildSpec, last_line, send, spawn
from stack.ports import any_free_port

TEMPLATE = "migrated_template"

T = TypeVar("T")


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine from a synchronous fixture, on a loop of its own that is closed again."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.close()


@contextmanager
def running_child(spec: ChildSpec) -> Iterator[subprocess.Popen[bytes]]:
    """A child of the stack that answers, stopped at the end; nobody restarts it."""
    process = spawn(spec)
    try:
        run_now(_until_ready(spec, process))
        yield process
    finally:
        send(process, spec.stop_signal)
        try:
            process.wait(spec.stop_within_s)
        except subprocess.TimeoutExpired:
            send(process, signal.SIGKILL)
            process.wait()


@contextmanager
def running_postgres(folder: Path, *, durable: bool = False) -> Iterator[postgres.PostgresServer]:
    """An embedded PostgreSQL in the folder; `durable` lets it wait for the disk as it does in production."""
    server = postgres.prepare(folder / "postgres", port=any_free_port(), password=secrets.token_urlsafe(12))
    settings = {} if durable else postgres.WITHOUT_DURABILITY
    with running_child(server.child(log_file=folder / "postgres.log", settings=settings)):
        yield server


@contextmanager
def running_temporal(folder: Path) -> Iterator[temporal.TemporalServer]:
    """A Temporal development server in the folder, set up as `agentloom dev` sets up its own."""
    server = temporal.prepare(folder / "temporal.db", port=any_free_port(), ui_port=None)
    with running_child(server.child(log_file=folder / "temporal.log")):
        yield server


async def create_database(server: postgres.PostgresServer, *, template: str = "template0") -> str:
    """A fresh database of the server; returns its name."""
    name = f"test_{secrets.token_hex(6)}"
    # A file copy takes a fifth of the time of the default strategy, which writes every page of the template to the log.
    await _execute(server, f'create database "{name}" template "{template}" strategy file_copy')
    return name


async def drop_database(server: postgres.PostgresServer, name: str) -> None:
    """Drop a database, whoever is still connected."""
    await _execute(server, f'drop database "{name}" with (force)')


async def create_template(server: postgres.PostgresServer) -> None:
    """Make the template: a database with the newest schema and nothing in it."""
    from storage.migrate import upgrade

    await _execute(server, f'create database "{TEMPLATE}" template template0')
    await upgrade(server.url(TEMPLATE))


async def _execute(server: postgres.PostgresServer, statement: str) -> None:
    connection = await asyncpg.connect(server.url("postgres"))
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


async def _until_ready(spec: ChildSpec, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 20
    while not (process.poll() is None and await spec.is_ready(process.pid)):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{spec.name} did not start: {last_line(spec.log_file)}")
        await asyncio.sleep(0.02)

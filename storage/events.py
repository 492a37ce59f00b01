"""Wakes whoever waits for a Run's events: one LISTEN connection for the process, nobody polls.

A commit announces the Run's id when it becomes true; rows are then read by `run_seq`. A notification can be lost while
the connection is down, so everybody is woken once it is back, and a waiter looks at the database before it sleeps.
"""

import asyncio
from collections import defaultdict
from types import TracebackType
from typing import Any
from uuid import UUID

import asyncpg
from sqlalchemy import text

from context.errors import NotFoundError, UnavailableError
from storage.database import CONNECT_S, fetch_one, plain_url, translated_errors
from storage.store import Store

CHANNEL = "run_events"
RECONNECT_S = 0.5
PING_S = 10.0  # a connection that died without a word is noticed by then

HEAD = text("SELECT event_head FROM runs WHERE run_id = :run_id")


class RunEventFeed:
    """`async with RunEventFeed(store) as feed`, then `feed.wait(…)` from any number of tasks."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: defaultdict[UUID, set[asyncio.Event]] = defaultdict(set)
        self._listening = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "RunEventFeed":
        self._task = asyncio.create_task(self._listen_for_ever(), name="run-event-feed")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def listening(self) -> None:
        """Returns once the connection listens."""
        await self._listening.wait()

    async def wait(self, run_id: UUID, after: int, timeout: float) -> bool:
        """Wait until the Run has an event beyond `run_seq` = `after`; False if `timeout` seconds pass first.

        Raises NotFoundError for an unknown Run, UnavailableError if the database is away. The caller has checked that
        the Run may be seen.
        """
        deadline = asyncio.get_running_loop().time() + timeout
        woken = asyncio.Event()
        self._waiting[run_id].add(woken)  # before the look, so that nothing falls between the two
        try:
            while await self._head(run_id) <= after:
                async with asyncio.timeout_at(deadline):
                    await woken.wait()
                woken.clear()
        except TimeoutError:
            return False
        finally:
            self._forget(run_id, woken)
        return True

    async def _head(self, run_id: UUID) -> int:
        async with self._store.reading() as connection:
            row = await fetch_one(connection, HEAD, run_id=run_id)
        if row is None:
            raise NotFoundError.of("run", run_id)
        return int(row["event_head"])

    def _forget(self, run_id: UUID, woken: asyncio.Event) -> None:
        self._waiting[run_id].discard(woken)
        if not self._waiting[run_id]:
            del self._waiting[run_id]

    async def _listen_for_ever(self) -> None:
        while True:
            try:
                await self._listen()
            except UnavailableError:
                await asyncio.sleep(RECONNECT_S)

    async def _listen(self) -> None:
        """Listen until the connection is lost, then raise UnavailableError."""
        async with translated_errors():
            connection = await asyncpg.connect(plain_url(self._store.database.url), timeout=CONNECT_S)
            try:
                await connection.add_listener(CHANNEL, self._wake)
                self._listening.set()
                self._wake_all()
                await self._until_lost(connection)
            finally:
                self._listening.clear()
                connection.terminate()

    async def _until_lost(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        lost = asyncio.Event()
        connection.add_termination_listener(lambda _: lost.set())
        while not lost.is_set():
            try:
                async with asyncio.timeout(PING_S):
                    await lost.wait()
            except TimeoutError:
                await connection.execute("SELECT 1", timeout=CONNECT_S)
        raise UnavailableError

    def _wake(self, connection: Any, pid: int, channel: str, payload: object) -> None:
        for woken in self._waiting.get(UUID(str(payload)), ()):
            woken.set()

    def _wake_all(self) -> None:
        for waiting in self._waiting.values():
            for woken in waiting:
                woken.set()

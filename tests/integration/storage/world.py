"""Builders for storage tests: who and what exists, and short forms of the commits under test."""

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import DateTime, text

from context.errors import AgentLoomError
from context.policy import AgentDefinition, ModelSettings, Release
from context.steps import FinishRun
from storage.commits.accept_input import AcceptInput, accept_input
from storage.commits.create_session import CreateSession, create_session
from storage.commits.create_space_user import CreateSpaceUser, create_space_user
from storage.commits.finish_run import finish_run
from storage.commits.publish_release import PublishRelease, publish_release
from storage.incoming import AcceptedInput
from storage.payloads import Keys
from storage.snapshot_tables import metadata
from storage.store import FaultPlan, Store

KEYS = Keys(master={"k1": b"m" * 32}, index=b"i" * 32)

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """Who and what exists."""

    space_id: UUID
    owner_id: UUID
    stranger_id: UUID
    agent_id: UUID
    release_id: UUID
    session_id: UUID


def release(name: str = "scout", instructions: str = "Be brief.") -> Release:
    """A small release."""
    definition = AgentDefinition(
        name=name, instructions=instructions, model=ModelSettings(provider="demo", model="demo-1")
    )
    return Release(
        definition=definition,
        tools=(),
        context_window=32768,
        window_source="manual",
        provider_output_limit=None,
        estimator_id="utf8-bytes",
        base_url=None,
    )


def environment(database_url: str, keys: Keys) -> dict[str, str]:
    """What a process is told to work on this database with these keys."""
    return {
        "DATABASE_URL": database_url,
        "AGENTLOOM_MASTER_KEYS": ",".join(f"{name}:{b64encode(key).decode()}" for name, key in keys.master.items()),
        "AGENTLOOM_INDEX_KEY": b64encode(keys.index).decode(),
    }


async def build_world(store: Store) -> World:
    """A user with a session of an agent, and a stranger in the same space."""
    owner = await create_space_user(store, CreateSpaceUser("ada", "admin"))
    stranger = await create_space_user(store, CreateSpaceUser("eve", "member"))
    published = await publish_release(store, PublishRelease(owner.space_id, release()))
    session = await create_session(store, CreateSession(owner.space_id, owner.user_id, "scout"))
    return World(
        owner.space_id,
        owner.user_id,
        stranger.user_id,
        published.agent_id,
        published.release_id,
        session.session_id,
    )


async def say(store: Store, world: World, words: str, **more: Any) -> AcceptedInput:
    """Accept an input of the world's owner in the world's session."""
    wanted: dict[str, Any] = {"session_id": world.session_id, "owner_id": world.owner_id, "text": words}
    return await accept_input(store, AcceptInput(**(wanted | more)))


async def end_run(store: Store, run_id: UUID, status: Any = "failed", *, execution_no: int = 1) -> None:
    """End a Run as its workflow would; undelivered supplements are carried."""
    end = FinishRun(run_id=run_id, execution_no=execution_no, status=status, end_reason="internal")
    await finish_run(store, end)


async def execute(store: Store, sql: str, **binds: Any) -> None:
    """Run one statement."""
    async with store.database.transaction() as connection:
        await connection.execute(text(sql), binds)


async def rows(store: Store, sql: str, **binds: Any) -> list[dict[str, Any]]:
    """Rows of one query."""
    async with store.reading() as connection:
        return [dict(row) for row in (await connection.execute(text(sql), binds)).mappings()]


async def count(store: Store, table: str, where: str = "true", **binds: Any) -> int:
    """Rows of a table."""
    found = await rows(store, f"SELECT count(*) AS n FROM {table} WHERE {where}", **binds)
    return int(found[0]["n"])


async def outcomes(calls: Sequence[Awaitable[T]]) -> tuple[list[T], list[AgentLoomError]]:
    """What concurrent calls returned, and the domain errors the others met."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, AgentLoomError):
            raise result
    errors = [result for result in results if isinstance(result, AgentLoomError)]
    return [result for result in results if not isinstance(result, BaseException)], errors


class Crash(Exception):
    """The process died at a fault point."""


class CrashAt(FaultPlan):
    """Dies once, the first time execution reaches `point`."""

    def __init__(self, point: str) -> None:
        self._point: str | None = point

    async def reach(self, point: str) -> None:
        if point == self._point:
            self._point = None
            raise Crash


async def set_clock_back(store: Store) -> None:
    """What is stored got its times from a clock that was an hour ahead of the database's clock from now on."""
    for table in metadata.sorted_tables:
        times = [column.name for column in table.columns if isinstance(column.type, DateTime)]
        if times:
            ahead = ", ".join(f"{name} = {name} + interval '1 hour'" for name in times)
            await execute(store, f'UPDATE "{table.name}" SET {ahead}')


class ClockGoesBack(FaultPlan):
    """The database's clock goes back an hour after each commit. `store` is one without this plan."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def reach(self, point: str) -> None:
        if point.endswith(".after_commit"):
            await set_clock_back(self._store)

"""Waiting for the events of a Run: nobody polls, nothing falls between look and wait (DESIGN 10)."""

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from context.errors import NotFoundError
from storage.events import RunEventFeed
from storage.store import Store
from tests.integration.storage.world import World, end_run, execute, rows, say

LISTENERS = "FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()"


@pytest.fixture
async def feed(store: Store) -> AsyncIterator[RunEventFeed]:
    """A feed that listens."""
    async with RunEventFeed(store) as opened:
        await opened.listening()
        yield opened


async def test_a_waiter_is_woken_by_the_commit(store: Store, world: World, feed: RunEventFeed) -> None:
    """SPEC 16: nobody polls."""
    question = await say(store, world, "q")
    waiting = asyncio.create_task(feed.wait(question.run_id, 1, 20))
    await asyncio.sleep(0)
    await say(store, world, "s")
    assert await waiting is True


async def test_an_event_that_is_there_already_needs_no_waiting(store: Store, world: World, feed: RunEventFeed) -> None:
    """SPEC 16."""
    question = await say(store, world, "q")
    assert await feed.wait(question.run_id, 0, 20) is True


async def test_a_quiet_run_lets_the_time_pass(store: Store, world: World, feed: RunEventFeed) -> None:
    """SPEC 16: `wait_s`."""
    question = await say(store, world, "q")
    assert await feed.wait(question.run_id, 1, 0.05) is False


async def test_only_the_runs_own_waiters_are_woken(store: Store, world: World, feed: RunEventFeed) -> None:
    """SPEC 16."""
    first = await say(store, world, "q1")
    await end_run(store, first.run_id)
    waiting = asyncio.create_task(feed.wait(first.run_id, 2, 0.3))
    await asyncio.sleep(0)
    second = await say(store, world, "q2")
    assert await feed.wait(second.run_id, 0, 20) is True
    assert await waiting is False


async def test_a_lost_connection_comes_back_and_wakes_everybody(store: Store, world: World, feed: RunEventFeed) -> None:
    """R8: what was announced while it was away is found by looking."""
    question = await say(store, world, "q")
    waiting = asyncio.create_task(feed.wait(question.run_id, 1, 30))
    while not feed._waiting:
        await asyncio.sleep(0.01)
    await execute(store, f"SELECT pg_terminate_backend(pid) {LISTENERS}")
    await say(store, world, "s1")
    assert await waiting is True
    await feed.listening()
    again = asyncio.create_task(feed.wait(question.run_id, 2, 20))
    await say(store, world, "s2")
    assert await again is True


async def test_an_unknown_run_is_not_waited_for(store: Store, feed: RunEventFeed) -> None:
    """SPEC 16, E."""
    with pytest.raises(NotFoundError):
        await feed.wait(uuid4(), 0, 20)


async def test_waiters_leave_nothing_behind(store: Store, world: World, feed: RunEventFeed) -> None:
    """DESIGN 4: nothing grows with the number of waits."""
    question = await say(store, world, "q")
    await asyncio.gather(*(feed.wait(question.run_id, 1, 0.01) for _ in range(50)))
    assert not feed._waiting
    assert (
        len(
            await rows(
                store, "SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()"
            )
        )
        == 1
    )

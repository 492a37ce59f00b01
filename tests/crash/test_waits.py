"""A worker that dies while a Run waits for its next try (SPEC L2, R6; case C037)."""

import asyncio

from tests.support import replies
from tests.support.child_worker import WorkerNursery, WorkerPlace
from tests.support.run_world import RunWorld

PAUSE_S = 3


async def test_a_crash_during_a_wait_neither_repeats_the_try_nor_begins_the_wait_anew(
    world: RunWorld, nursery: WorkerNursery, place: WorkerPlace
) -> None:
    """Case C037: the second try comes when the provider asked for it, as the second."""
    world.model.add(replies.error(429, "slow down", headers=(("retry-after", str(PAUSE_S)),)), "done")
    async with nursery.kept(place) as first:
        run_id = await world.start()
        await first_try_failed(world, run_id)
        await asyncio.sleep(PAUSE_S / 2)  # the middle of the wait
        await first.killed()
        run = await world.ended(run_id)
    assert run["answer"] == "done"
    [call] = await world.operations(run_id)
    assert [attempt["state"] for attempt in call["attempts"]] == ["failed", "succeeded"]
    refused, answered = world.model.requests
    assert PAUSE_S <= answered.at - refused.at < PAUSE_S + 1.5


async def first_try_failed(world: RunWorld, run_id: str) -> None:
    """Wait until the first failure is recorded."""
    async with asyncio.timeout(20):
        while not any(one["state"] == "failed" for call in await world.operations(run_id) for one in call["attempts"]):
            await asyncio.sleep(0.01)

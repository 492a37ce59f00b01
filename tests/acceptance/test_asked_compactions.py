"""A compaction that was asked for waits with its Run until a request is prepared with it (SPEC K12, W2, S9)."""

import asyncio

import pytest

from tests.acceptance.test_idle_compaction import EAGER, FACT, LARGE, SUMMARY, Says
from tests.support import replies
from tests.support.model_server import ModelServer
from tests.support.run_world import Json, RunWorld, Servers, running_world

HELD = replies.text("never").but(hold="never")


async def facts(world: RunWorld, count: int = 3) -> str:
    """A session whose older part is worth a summary."""
    await world.publish(**(LARGE | EAGER))
    session = await world.open_session()
    for number in range(count):
        await world.ask(FACT.format(number), session)
    return session


async def compactions(world: RunWorld, run_id: str) -> list[tuple[str, str]]:
    return [(one["source"], one["outcome"]) for one in await world.items(f"/runs/{run_id}/compactions")]


async def compacted(world: RunWorld, session: str, **body: str) -> Json:
    async with asyncio.timeout(10):
        return await world.post(f"/sessions/{session}/compact", body or None, status=202)


@pytest.mark.parametrize("stopped", [False, True])
async def test_a_run_that_waits_for_a_worker_takes_the_wish_along(servers: Servers, stopped: bool) -> None:
    """SPEC K12, W2, S9: accepted at once though nobody is there to be told, and not forgotten by a stop."""
    async with ModelServer([Says()] * 30, strict="plain") as model, running_world(servers, model) as world:
        async with world.worker():
            session = await facts(world)
        run_id = await world.start("And now?", session)
        wish = {"session_id": session, "run_id": run_id, "episode_id": None}
        assert await compacted(world, session, client_key="mine") == wish
        assert await compacted(world, session, client_key="mine") == wish
        if stopped:
            await world.stop(run_id)
            await world.resume(run_id)
        async with world.worker():
            await world.ended(run_id)
        assert await compactions(world, run_id) == [("manual", "activated")]


async def test_a_stop_before_the_next_request_does_not_forget_what_was_asked_for(world: RunWorld) -> None:
    """SPEC K12, S9: the resume begins with it, and asks for it once."""
    world.model.add(*["Noted."] * 3, HELD, SUMMARY, replies.text(""), "Noted.")  # nothing said: one more loop
    session = await facts(world)
    run_id = await world.start("And now?", session)
    await world.model.wait_for_requests(4)
    await compacted(world, session)
    await world.stop(run_id)
    await world.ended(run_id)
    await world.resume(run_id)
    assert (await world.ended(run_id))["answer"] == "Noted."
    assert await compactions(world, run_id) == [("manual", "activated")]

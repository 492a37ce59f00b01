"""What a model had written when its call was cut off counts, as far as it was noted (SPEC L5, S9, R6)."""

import asyncio

import pytest

from activities import written
from tests.acceptance.test_usage import PRICE, PROMPT, attempts, cut_off, figures
from tests.support import replies
from tests.support.compactions import SMALL, is_summary, repeated, scripted
from tests.support.run_world import Json, RunWorld

SAID = "All of this was written, " * 8
CUT = replies.text(SAID + "and this never", pieces_of=len(SAID), usage=None).but(hold="never", hold_after=1)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(written, "SHORTEST_PAUSE_S", 0.05)


async def noted(world: RunWorld, run_id: str) -> Json:
    """The newest try at a model call, once it says what was written so far."""
    async with asyncio.timeout(20):
        while True:
            tries = await attempts(world, {"run_id": run_id})
            if tries and tries[-1]["state"] == "calling" and tries[-1]["usage"]:
                return tries[-1]
            await asyncio.sleep(0.02)


async def test_what_was_written_before_a_stop_counts(world: RunWorld) -> None:
    """SPEC L5, S8: by our own counting, and marked so; the Run counts it once, and not while the call goes on."""
    await world.publish(model=PRICE)
    world.model.add(CUT, "done")
    run_id = await world.start(PROMPT)
    under_way = await noted(world, run_id)
    assert (await world.get(f"/runs/{run_id}"))["usage"]["output_tokens"] == 0
    assert (await world.get("/usage"))["by_purpose"] == {}
    stopped = await cut_off(world, run_id, 1)
    [attempt], [manifest] = await attempts(world, stopped), await world.manifests(run_id)
    given, said = manifest["estimated_input_tokens"], len(SAID)
    assert figures(attempt) == figures(under_way) == (given, said, True)
    used = stopped["usage"]
    assert (used["input_tokens"], used["output_tokens"], used["unknown"]) == (given, said, 1)
    assert used["cost"] == attempt["cost"]
    await world.resume(run_id)
    assert (await world.ended(run_id))["usage"]["output_tokens"] == said + 10


async def test_no_stop_and_resume_writes_more_than_the_limit(world: RunWorld) -> None:
    """SPEC L5, S9: what was written and thrown away has used the budget up."""
    await world.publish(limits={"max_total_tokens": 300})
    world.model.add(*[CUT] * 9)
    run_id = await world.start("Hi?")
    for _ in range(9):
        await noted(world, run_id)
        await cut_off(world, run_id, 1)
        await world.resume(run_id)
        if (await world.get(f"/runs/{run_id}", wait_s=1))["status"] == "exhausted":
            break
    assert (await world.ended(run_id))["error"]["code"] == "BUDGET_EXHAUSTED"
    assert len(world.model.requests) <= 2


async def test_what_a_summariser_had_written_counts_too(world: RunWorld) -> None:
    """SPEC L5, K13: on the Run that waited for the summary."""
    await world.publish(tools=["repeat"], **SMALL)
    world.model.add(*[scripted([repeated(1_200)], [CUT])] * 9)
    run_id = await world.start()
    await noted(world, run_id)
    await world.stop(run_id)
    stopped = await world.ended(run_id)
    calls = sum(not is_summary(request) for request in world.model.requests)
    assert stopped["usage"]["output_tokens"] == calls * replies.USAGE["completion_tokens"] + len(SAID)

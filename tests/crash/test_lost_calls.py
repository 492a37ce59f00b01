"""What a call used whose worker was killed is counted, whether another try follows or the end (SPEC L5, R6)."""

import pytest

from tests.support import replies
from tests.support.child_worker import WorkerNursery, WorkerPlace
from tests.support.run_world import RunWorld

HELD = replies.text("never").but(hold="never")


@pytest.mark.parametrize("repeated", [True, False])
async def test_a_call_that_a_kill_cut_off_counts_what_was_sent(
    world: RunWorld, nursery: WorkerNursery, place: WorkerPlace, *, repeated: bool
) -> None:
    """SPEC L5: the estimate of the request, once for the try that was lost."""
    world.model.add(HELD, "done")
    async with nursery.worker(place) as first:
        run_id = await world.start()
        await world.model.wait_for_requests(1)
        await first.killed()
    if not repeated:
        await world.stop(run_id)
    async with nursery.worker(place):
        run = await world.ended(run_id)
    assert run["status"] == ("succeeded" if repeated else "stopped")
    [manifest] = await world.manifests(run_id)
    answered = 50 if repeated else 0
    assert run["usage"]["input_tokens"] == manifest["estimated_input_tokens"] + answered
    assert run["usage"]["unknown"] == 1


async def test_no_try_follows_a_lost_one_that_used_up_the_budget(
    world: RunWorld, nursery: WorkerNursery, place: WorkerPlace
) -> None:
    """SPEC L5: a worker that dies again and again gets round no limit; the try that was not made counts nothing."""
    await world.publish(limits={"max_total_tokens": 60})
    world.model.add(HELD, "not reached")
    async with nursery.worker(place) as first:
        run_id = await world.start()
        await world.model.wait_for_requests(1)
        await first.killed()
    async with nursery.worker(place):
        run = await world.ended(run_id)
    assert (run["status"], run["error"]["code"], len(world.model.requests)) == ("exhausted", "BUDGET_EXHAUSTED", 1)
    [call] = await world.operations(run_id)
    assert [(one["state"], one["usage"] is None) for one in call["attempts"]] == [
        ("superseded", False),
        ("failed", True),
    ]
    assert run["error"]["numbers"] == {"budget": "tokens", "limit": 60, "used": run["usage"]["input_tokens"]}

"""Compactions that somebody ends in the Temporal UI while a Run waits for them: the Run goes on (SPEC K1, K8, W2, S8).

Every token is a byte: B is 6744, the trigger 5395 (`SMALL`).
"""

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from temporalio.client import WorkflowHandle

from context.ids import compaction_workflow_id, episode_id, model_operation_id
from tests.support import replies
from tests.support.compactions import SMALL, SUMMARY, is_summary, repeated, scripted
from tests.support.model_server import ModelServer
from tests.support.replies import Reply
from tests.support.run_world import Json, RunWorld, Servers, running_world
from workflows.names import COMPACTION_WORKFLOW

FITS = [repeated(1_000)] * 4
"""Over the trigger and within B."""
TOO_LARGE = [repeated(1_400), repeated(1_400), repeated(4_300)]
HELD = replies.text(SUMMARY).but(hold="summary")
ENDS = {"cancelled": ("cancelled", "cancelled"), "terminated": ("failed", "lost")}
"""Status and reason of the episode, by how its workflow was ended."""


async def waiting(
    world: RunWorld,
    before: Sequence[Reply],
    after: Sequence[Reply | str] = ("done",),
    summaries: Sequence[Reply | str] = (HELD, SUMMARY),
    context: Json | None = None,
    limits: Json | None = None,
) -> str:
    """A Run that waits for its compaction, whose first call is under way; the answers around it are given."""
    await world.publish(tools=["repeat"], **SMALL, context=context or {}, limits=limits or {})
    world.model.add(*[scripted([*before, *after], summaries)] * 15)
    run_id = await world.start()
    await world.until(run_id, "compacting")
    await world.model.wait_for_requests(len(before) + 1)
    return run_id


async def episodes(world: RunWorld, run_id: str) -> list[Json]:
    return await world.items(f"/runs/{run_id}/compactions")


async def child_of(world: RunWorld, run_id: str) -> WorkflowHandle[Any, Any]:
    """The workflow of the Run's newest compaction."""
    return world.temporal.get_workflow_handle((await episodes(world, run_id))[-1]["workflow_id"])


async def end_child(world: RunWorld, run_id: str, how: str) -> None:
    """As somebody does in the Temporal UI."""
    child = await child_of(world, run_id)
    await (child.cancel() if how == "cancelled" else child.terminate("somebody in the Temporal UI"))


@pytest.mark.parametrize("how", ENDS)
async def test_a_run_whose_compaction_is_ended_from_outside_goes_on_with_what_fits(world: RunWorld, how: str) -> None:
    """SPEC K8, W2: nobody stopped the Run; the episode says how it ended, the originals are sent."""
    run_id = await waiting(world, FITS)
    await end_child(world, run_id, how)
    run = await world.ended(run_id, within_s=10)
    assert (run["status"], run["answer"], run["error"]) == ("succeeded", "done", None)
    [episode] = await episodes(world, run_id)
    status, reason = ENDS[how]
    assert (episode["status"], episode["failure"]["reason"], episode["snapshot_id"]) == (status, reason, None)
    assert [is_summary(request) for request in world.model.requests].count(True) == 1
    sent = json.dumps(world.sent[-1])
    assert (sent.count("z" * 1_000), "SUMMARY" in sent) == (4, False)
    notes = [one["notes"] for one in await world.manifests(run_id) if one["purpose"] == "business"]
    assert notes[-1] == [f"compaction:{status}"]
    finished = [event for event in await world.events(run_id) if event["type"] == "compaction_finished"]
    assert [(event["outcome"], event["reason"]) for event in finished] == [(status, reason)]
    calls = [one for one in await world.operations(run_id) if one["purpose"] == "compaction"]
    assert [(one["state"], one["attempts"][-1]["state"]) for one in calls] == [("cancelled", "superseded")]
    assert run["usage"]["unknown"] == 1, "what was sent is counted once"
    assert (await world.get(f"/sessions/{run['session_id']}/verify"))["breaks"] == []


@pytest.mark.parametrize("how", ENDS)
async def test_the_call_of_an_ended_compaction_is_over_while_the_run_goes_on(world: RunWorld, how: str) -> None:
    """SPEC S8, R5: it does not look as if it were under way, and a late summary changes nothing."""
    run_id = await waiting(world, FITS, [replies.text("done").but(hold="answer")])
    await end_child(world, run_id, how)
    await world.until(run_id, "calling_model")
    calls = [one for one in await world.operations(run_id) if one["purpose"] == "compaction"]
    assert [one["state"] for one in calls] == ["cancelled"]
    world.model.release("summary")
    world.model.release("answer")
    assert (await world.ended(run_id))["answer"] == "done"
    [episode] = await episodes(world, run_id)
    assert (episode["status"], episode["cursor"]) == (ENDS[how][0], 0)


@pytest.mark.parametrize("how", ENDS)
async def test_an_ended_compaction_that_used_up_the_budget_is_the_last_call(world: RunWorld, how: str) -> None:
    """SPEC L5, S2: what its call was sent is counted before the request that waited is let go."""
    run_id = await waiting(world, FITS, limits={"max_total_tokens": 1_000})
    called = len(world.model.requests)
    await end_child(world, run_id, how)
    run = await world.ended(run_id, within_s=10)
    assert (run["status"], run["end_reason"], run["error"]["code"]) == ("exhausted", "budget", "BUDGET_EXHAUSTED")
    assert (run["error"]["numbers"]["budget"], run["error"]["numbers"]["limit"]) == ("tokens", 1_000)
    assert run["error"]["numbers"]["used"] == run["usage"]["input_tokens"] + run["usage"]["output_tokens"]
    assert len(world.model.requests) == called
    waited = [one for one in await world.operations(run_id) if one["purpose"] == "business"][-1]
    assert (waited["state"], waited["attempts"]) == ("failed", [])
    [manifest] = await world.items(f"/runs/{run_id}/manifests", operation=waited["operation_id"])
    assert manifest["validation"] == "passed"
    assert (await world.get(f"/sessions/{run['session_id']}/verify"))["breaks"] == []


@pytest.mark.parametrize("how", ENDS)
async def test_an_ended_compaction_is_not_begun_again_at_once(world: RunWorld, how: str) -> None:
    """SPEC K8, K14: with nothing new the same material is not summarised right away, over the resume too."""
    run_id = await waiting(world, FITS, [replies.error(401), "done"], [HELD])
    await end_child(world, run_id, how)
    assert (await world.ended(run_id))["end_reason"] == "model_auth"
    await world.resume(run_id)
    resumed = await world.ended(run_id)
    assert (resumed["status"], resumed["answer"]) == ("succeeded", "done")
    assert len(await episodes(world, run_id)) == 1
    assert (await world.manifests(run_id))[-1]["notes"] == ["compaction_held_back:failed_before"]


@pytest.mark.parametrize("how", ENDS)
async def test_new_material_lets_an_ended_compaction_be_tried_again(world: RunWorld, how: str) -> None:
    """SPEC K8."""
    run_id = await waiting(world, FITS, [repeated(100), "done"])
    await end_child(world, run_id, how)
    assert (await world.ended(run_id))["answer"] == "done"
    assert [one["status"] for one in await episodes(world, run_id)] == [ENDS[how][0], "succeeded"]


@pytest.mark.parametrize(("how", "says"), [("cancelled", "cancelled outside"), ("terminated", "ended from outside")])
async def test_a_request_that_does_not_fit_fails_with_its_ended_compaction(
    world: RunWorld, how: str, says: str
) -> None:
    """SPEC K8, S13, S9: over B it is not sent; the Run says why and what to do, and a resume compacts it at once."""
    run_id = await waiting(world, TOO_LARGE)
    await end_child(world, run_id, how)
    run = await world.ended(run_id, within_s=10)
    assert (run["status"], run["end_reason"]) == ("failed", "compaction_failed")
    assert run["error"]["code"] == "COMPACTION_FAILED"
    assert says in run["error"]["message"]
    [episode] = await episodes(world, run_id)
    assert (episode["status"], episode["failure"]["reason"]) == ENDS[how]
    assert len(world.model.requests) == 4
    assert (await world.manifests(run_id))[-2]["validation"] == "budget_exceeded"
    await world.resume(run_id)
    assert (await world.ended(run_id))["answer"] == "done"
    assert [one["status"] for one in await episodes(world, run_id)] == [ENDS[how][0], "succeeded"]


async def test_the_providers_word_stands_if_the_compaction_that_it_forced_is_cancelled(world: RunWorld) -> None:
    """SPEC B7: the request that was refused as too long is not sent again as it was."""
    too_long = replies.error(400, "This model's maximum context length is 4096 tokens.", code="context_length_exceeded")
    run_id = await waiting(world, [repeated(1_200), repeated(1_200), too_long], context={"on_overflow": "compact_once"})
    await end_child(world, run_id, "cancelled")
    run = await world.ended(run_id)
    assert (run["end_reason"], run["error"]["code"]) == ("context_too_large", "MODEL_CONTEXT_LENGTH_EXCEEDED")
    assert [one["status"] for one in await episodes(world, run_id)] == ["cancelled"]


@pytest.mark.parametrize("by", ["the API", "the Temporal UI"])
@pytest.mark.parametrize("how", ENDS)
async def test_a_stop_of_the_run_stands_beside_the_end_of_its_compaction(servers: Servers, by: str, how: str) -> None:
    """SPEC S8, W2: both are there when the next worker comes; no further call is made.

    A cancellation in Temporal is known once the workflow has seen it: the block cut off may be under way again by then.
    """
    async with ModelServer(strict="plain") as model, running_world(servers, model) as world:
        async with world.worker():
            run_id = await waiting(world, FITS)
        await end_child(world, run_id, how)
        await (world.stop(run_id) if by == "the API" else world.workflow(run_id).cancel())
        async with world.worker():
            run = await world.ended(run_id)
        assert (run["status"], run["end_reason"]) == ("stopped", "user_stop")
        assert len({request.body for request in world.model.requests}) == len(FITS) + 1
        if by == "the API":
            assert len(world.model.requests) == len(FITS) + 1


async def test_a_compaction_that_a_stop_cancelled_is_begun_again_by_the_resume(world: RunWorld) -> None:
    """SPEC S9, K8: it did not fail, and nothing holds it back."""
    run_id = await waiting(world, FITS)
    await world.stop(run_id)
    assert (await world.ended(run_id, within_s=5))["status"] == "stopped"
    await world.resume(run_id)
    assert (await world.ended(run_id))["answer"] == "done"
    assert [one["status"] for one in await episodes(world, run_id)] == ["cancelled", "succeeded"]


async def test_a_run_whose_compaction_cannot_start_goes_on_with_what_fits(servers: Servers) -> None:
    """SPEC K8, S2: something else has its workflow id; the Run does not end as lost for that."""
    async with ModelServer(strict="plain") as model, running_world(servers, model) as world:
        await world.publish(tools=["repeat"], **SMALL)
        world.model.add(*[scripted([*FITS, "done"])] * 9)
        run_id = await world.start()
        taken = episode_id(model_operation_id(UUID(run_id), "root", len(FITS) + 1))
        await world.temporal.start_workflow(
            COMPACTION_WORKFLOW, id=compaction_workflow_id(taken), task_queue=f"{servers.task_queue}-nobody"
        )
        async with world.worker():
            run = await world.ended(run_id)
        assert (run["status"], run["answer"], run["error"]) == ("succeeded", "done", None)
        [episode] = await episodes(world, run_id)
        assert (episode["status"], episode["failure"]["reason"]) == ("failed", "not_started")

"""Where a compaction ends: time, room, calls, useless summaries, failures, and how the Run goes on (SPEC K1-K8, K14).

Every token is a byte: B is 6744, the trigger 5395 (`SMALL`).
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from hashlib import sha256

import pytest

from tests.support import replies
from tests.support.compactions import SMALL, SUMMARY, business_of, is_summary, repeated, scripted
from tests.support.model_server import RecordedRequest
from tests.support.run_world import Json, RunWorld, Servers, working_world

TOO_LONG = replies.error(400, "This model's maximum context length is 4096 tokens.", code="context_length_exceeded")
RANGE = re.compile(r"characters (\d+) to (\d+) of (\d+)")


@pytest.fixture
async def world(servers: Servers) -> AsyncIterator[RunWorld]:
    async with working_world(servers) as built:
        yield built


def small_writer(world: RunWorld, **more: object) -> Json:
    """A model for summaries, on the same server, with a window of 3000."""
    model = {"provider": "openai_compatible", "model": "writer", "context_window": 3_000, "max_output_tokens": 200}
    return {"summary_model": model | {"base_url": world.model.base_url}} | more


def summaries(world: RunWorld) -> list[RecordedRequest]:
    """The requests to the summariser."""
    return [request for request in world.model.requests if is_summary(request)]


async def compactions(world: RunWorld, run: Json) -> list[Json]:
    """The episodes of a Run."""
    return await world.items(f"/runs/{run['run_id']}/compactions")


# --- time ------------------------------------------------------------------------------------------------------------


async def test_a_run_whose_time_ends_during_a_compaction_is_timed_out(world: RunWorld) -> None:
    """SPEC K1: the block in flight is cancelled, the episode ends with the Run, and nothing is sent any more."""
    await world.publish(tools=["repeat"], **SMALL, limits={"deadline_s": 4})
    held = replies.text(SUMMARY).but(hold="never")
    world.model.add(*[scripted([repeated(1_200)], [held])] * 9)
    run = await world.ask()
    assert (run["status"], run["end_reason"], run["error"]["code"]) == ("timed_out", "deadline", "DEADLINE_EXCEEDED")
    assert [is_summary(request) for request in world.model.requests] == [False] * 4 + [True]
    (episode,) = await compactions(world, run)
    assert (episode["status"], episode["snapshot_id"]) == ("cancelled", None)
    async with asyncio.timeout(15):
        while world.model.disconnects < 1:
            await asyncio.sleep(0.01)


async def test_a_block_that_was_cut_off_leaves_its_hash_and_counts_what_was_sent(world: RunWorld) -> None:
    """SPEC A9, L5: as the call of any other request does; its request is rebuilt and checked."""
    await world.publish(tools=["repeat"], **SMALL, limits={"deadline_s": 4})
    held = replies.text(SUMMARY).but(hold="never")
    world.model.add(*[scripted([repeated(1_200)], [held])] * 9)
    run = await world.ask()
    [block] = [one for one in await world.operations(run["run_id"]) if one["purpose"] == "compaction"]
    [manifest] = [one for one in await world.manifests(run["run_id"]) if one["purpose"] == "compaction"]
    assert run["usage"]["input_tokens"] == 4 * 50 + manifest["estimated_input_tokens"]
    [episode] = await compactions(world, run)
    assert (episode["calls"], episode["input_tokens"]) == (1, manifest["estimated_input_tokens"])
    await world.until_hash_is_stored(block["operation_id"])
    rebuilt = await world.get(f"/operations/{block['operation_id']}/request")
    assert rebuilt["sha256"] == sha256(world.model.requests[-1].body).hexdigest()


# --- room ------------------------------------------------------------------------------------------------------------


async def test_with_nothing_to_compact_a_request_that_fits_goes_on_and_says_so(world: RunWorld) -> None:
    """SPEC K3: over the trigger and within B."""
    await world.publish(**SMALL)
    world.model.add("done")
    run = await world.ask("x" * 6_000)
    assert (run["status"], len(world.model.requests)) == ("succeeded", 1)
    assert (await world.manifests(run["run_id"]))[0]["notes"] == ["no_compressible_material"]
    assert await compactions(world, run) == []


async def test_with_nothing_to_compact_a_request_over_the_limit_is_refused_with_its_numbers(world: RunWorld) -> None:
    """SPEC K3, E: nothing is sent; the message says how large it is and where the limit comes from."""
    await world.publish(**SMALL)
    run = await world.ask("x" * 7_000)
    assert (run["end_reason"], run["error"]["code"]) == ("context_too_large", "CONTEXT_PROTECTED_INPUT_TOO_LARGE")
    assert "6744" in run["error"]["message"]
    assert "context_window" in run["error"]["message"]
    assert world.model.requests == []


async def test_material_beside_which_no_summary_fits_is_refused_without_a_call(world: RunWorld) -> None:
    """SPEC K3: H is not positive, since the newest result alone takes all there is."""
    await world.publish(tools=["repeat"], **SMALL)
    world.model.add(repeated(600), repeated(6_600))
    run = await world.ask()
    assert run["error"]["code"] == "CONTEXT_PROTECTED_INPUT_TOO_LARGE"
    assert len(world.model.requests) == 2
    assert await compactions(world, run) == []


async def test_a_request_still_over_the_limit_after_its_compaction_is_refused_and_not_compacted_again(
    world: RunWorld,
) -> None:
    """SPEC K4, K1: the provider ignored T; the summary shrank the request, and not enough."""
    await world.publish(tools=["repeat"], **SMALL)
    world.model.add(*[scripted([repeated(1_400), repeated(1_400), repeated(4_300)], ["S" * 2_600])] * 9)
    run = await world.ask()
    assert (run["end_reason"], run["error"]["code"]) == ("context_too_large", "CONTEXT_WINDOW_EXCEEDED")
    assert [is_summary(request) for request in world.model.requests] == [False] * 3 + [True]
    (episode,) = await compactions(world, run)
    assert episode["outcome"] == "activated"
    assert 6_744 < episode["tokens_after"] < episode["tokens_before"]
    assert f"{episode['tokens_after']} tokens of 6744" in run["error"]["message"]
    last = (await world.manifests(run["run_id"]))[-1]
    assert {one["validation"] for one in await world.manifests(run["run_id"])} == {"passed", "budget_exceeded"}
    assert last["estimated_input_tokens"] > 0


# --- calls -----------------------------------------------------------------------------------------------------------


async def test_a_record_larger_than_a_block_is_summarised_in_labelled_fragments(world: RunWorld) -> None:
    """SPEC K5: every character of it once, in order, each call within the summarising model's B."""
    await world.publish(tools=["repeat"], **SMALL, context=small_writer(world, keep_recent_tokens=0))
    world.model.add(*[scripted([repeated(4_000), repeated(1_200), "done"])] * 15)
    run = await world.ask()
    assert (run["status"], run["answer"], run["error"]) == ("succeeded", "done", None)
    (episode,) = await compactions(world, run)
    assert episode["blocks"] == episode["calls"] == len(summaries(world)) > 1
    spans = [tuple(map(int, found)) for request in summaries(world) for found in RANGE.findall(request.body.decode())]
    assert len(spans) > 1
    assert [start for start, _, _ in spans] == [0, *(end for _, end, _ in spans[:-1])]
    assert spans[-1][1] == spans[-1][2] >= 4_000
    assert all("tool" not in {message["role"] for message in request.json["messages"]} for request in summaries(world))
    manifests = [one for one in await world.manifests(run["run_id"]) if one["purpose"] == "compaction"]
    assert len(manifests) == episode["calls"]
    assert all(one["estimated_input_tokens"] <= one["input_limit"] for one in manifests)


async def test_a_plan_of_too_many_calls_is_refused_before_the_first(world: RunWorld) -> None:
    """SPEC K6, K14."""
    context = small_writer(world, keep_recent_tokens=0, max_compaction_calls=1)
    await world.publish(tools=["repeat"], **SMALL, context=context)
    world.model.add(*[scripted([repeated(4_000), repeated(1_200), "done"])] * 9)
    run = await world.ask()
    assert (run["end_reason"], run["error"]["code"]) == ("compaction_failed", "COMPACTION_FAILED")
    assert summaries(world) == []
    (episode,) = await compactions(world, run)
    assert (episode["failure"]["reason"], episode["calls"]) == ("too_many_calls", 0)


# --- useless and failed ----------------------------------------------------------------------------------------------


async def test_a_summary_that_does_not_shrink_the_request_is_kept_and_the_originals_are_sent(world: RunWorld) -> None:
    """SPEC K8, K4: stored and not activated; the request stands by I ≤ B."""
    await world.publish(tools=["repeat"], **SMALL)
    world.model.add(*[scripted([repeated(1_000)] * 4 + ["done"], ["SUMMARY " + "S" * 6_000])] * 9)
    run = await world.ask()
    assert (run["status"], run["answer"], run["error"]) == ("succeeded", "done", None)
    (episode,) = await compactions(world, run)
    assert (episode["status"], episode["outcome"]) == ("succeeded", "not_smaller")
    last = business_of(world.model.requests)[-1]
    assert "SUMMARY" not in json.dumps(last)
    assert [len(message["content"]) for message in last if message["role"] == "tool"] == [1_000] * 4
    notes = [one["notes"] for one in await world.manifests(run["run_id"]) if one["purpose"] == "business"]
    assert notes[-1] == ["compaction:not_smaller"]


async def test_a_failed_compaction_is_not_tried_again_at_once(world: RunWorld) -> None:
    """SPEC K8: kept durably over the resume; with nothing new the request is sent as it is, as long as it fits."""
    await world.publish(tools=["repeat"], **SMALL)
    script = scripted([repeated(1_000)] * 4 + ["done"], [" "])
    world.model.add(*[script] * 9)
    run = await world.ask()
    assert run["error"]["code"] == "COMPACTION_FAILED"
    await world.resume(run["run_id"])
    resumed = await world.ended(run["run_id"])
    assert (resumed["status"], resumed["answer"], resumed["error"]) == ("succeeded", "done", None)
    assert len(summaries(world)) == 1
    assert (await world.manifests(run["run_id"]))[-1]["notes"] == ["compaction_held_back:failed_before"]


async def test_a_resume_that_comes_before_a_failed_compaction_is_tried_again_is_told_so(world: RunWorld) -> None:
    """SPEC K8, E: without a summary the request does not fit; what helps is to wait, and that is said."""
    await world.publish(tools=["repeat"], **SMALL)
    world.model.add(*[scripted([repeated(1_200)], [" "])] * 9)
    run = await world.ask()
    await world.resume(run["run_id"])
    resumed = await world.ended(run["run_id"])
    assert (resumed["status"], resumed["error"]["code"]) == ("failed", "COMPACTION_FAILED")
    assert "tried again after a pause" in resumed["error"]["message"]
    assert len(summaries(world)) == 1


async def test_new_material_lets_a_failed_compaction_be_tried_again(world: RunWorld) -> None:
    """SPEC K8: and the old view was left as it was."""
    await world.publish(tools=["repeat"], **SMALL)
    script = scripted([repeated(1_000)] * 4 + [repeated(100), "done"], [" ", SUMMARY])
    world.model.add(*[script] * 12)
    run = await world.ask()
    await world.resume(run["run_id"])
    resumed = await world.ended(run["run_id"])
    assert (resumed["status"], resumed["answer"], resumed["error"]) == ("succeeded", "done", None)
    assert [one["status"] for one in await compactions(world, run)] == ["failed", "succeeded"]
    assert SUMMARY in json.dumps(world.sent[-1])


async def test_the_overflow_of_the_summarising_model_fails_the_compaction_once(world: RunWorld) -> None:
    """SPEC K8, K1, B7: compaction never compacts itself, whatever `on_overflow` says of the role."""
    await world.publish(tools=["repeat"], **SMALL, context={"on_overflow": "compact_once"})
    world.model.add(*[scripted([repeated(1_200)], [TOO_LONG])] * 9)
    run = await world.ask()
    assert (run["end_reason"], run["error"]["code"]) == ("compaction_failed", "COMPACTION_FAILED")
    assert len(summaries(world)) == 1
    (episode,) = await compactions(world, run)
    assert episode["failure"] == {"code": "COMPACTION_FAILED", "reason": "context_too_large", "block": 0}
    assert (await world.get(f"/sessions/{run['session_id']}/verify"))["breaks"] == []


async def test_a_block_that_keeps_failing_ends_with_its_tries_counted(world: RunWorld) -> None:
    """SPEC K8, L2: the same request each time; the blocks before it stay for audit."""
    retry = {"retry": {"max_attempts": 2, "max_elapsed_s": 60}}
    writer = small_writer(world, keep_recent_tokens=0)
    writer["summary_model"] |= retry
    await world.publish(tools=["repeat"], **SMALL, context=writer)
    broken = replies.error(503, "later", headers=(("retry-after", "0"),))
    world.model.add(*[scripted([repeated(4_000), repeated(1_200), "done"], [SUMMARY, broken])] * 15)
    run = await world.ask()
    assert run["error"]["code"] == "COMPACTION_FAILED"
    assert len(summaries(world)) == 3
    assert len({request.body for request in summaries(world)}) == 2
    (episode,) = await compactions(world, run)
    assert (episode["status"], episode["cursor"], episode["failure"]["block"]) == ("failed", 1, 1)
    (first, second) = [one for one in await world.operations(run["run_id"]) if one["purpose"] == "compaction"]
    assert (first["state"], second["state"], len(second["attempts"])) == ("accepted", "failed", 2)


async def test_above_the_trigger_for_good_there_is_a_new_episode_only_with_enough_new_material(world: RunWorld) -> None:
    """SPEC K14: max(T, B/20) of it; the manifest says what held the others back."""
    context = {"summary_target_tokens": 600, "keep_recent_tokens": 0}
    await world.publish(tools=["repeat"], **SMALL, context=context)
    world.model.add(*[scripted([repeated(10)] * 8 + ["done"], ["S" * 60])] * 30)
    run = await world.ask("x" * 4_700)
    assert (run["status"], run["answer"], run["error"]) == ("succeeded", "done", None)
    found = await compactions(world, run)
    notes = [one["notes"] for one in await world.manifests(run["run_id"]) if one["purpose"] == "business"]
    held = [one for one in notes if one == ["compaction_held_back:no_progress"]]
    assert {one["under_trigger"] for one in found} == {False}
    assert len(held) >= len(found) - 1 > 0

"""What manifests tell of the requests they stand for, one after the other (SPEC A8, T5)."""

from collections.abc import AsyncIterator

import pytest

from tests.support import replies
from tests.support.compactions import SMALL, SUMMARY, is_summary, repeated, scripted
from tests.support.run_world import Json, RunWorld, Servers, working_world

RESULTS: Json = {"max_result_chars": 2_000, "preview_chars": 100, "protect_tokens": 1, "prune_tokens": 500}
PRUNING: Json = {"model": {"context_window": 16_000, "max_output_tokens": 1_000}, "context": {"results": RESULTS}}
"""B is 14744 tokens of one byte each, the trigger 11795: it is reached with the fifth result of 1900 characters."""


@pytest.fixture
async def world(servers: Servers) -> AsyncIterator[RunWorld]:
    async with working_world(servers) as built:
        yield built


async def test_a_manifest_names_every_form_in_which_its_request_shows_something(world: RunWorld) -> None:
    """SPEC A8: also what an earlier request showed so first, and in later Runs."""
    await world.publish(tools=["repeat"], **PRUNING)
    session = await world.open_session()
    world.model.add(*[scripted([repeated(5_000), repeated(100), "done", *[repeated(1_900)] * 6, "done"])] * 20)
    first = await world.ask(session=session)
    assert [one["transforms"] for one in await world.manifests(first["run_id"])] == [
        [],
        ["tool_result_offload"],
        ["tool_result_offload"],
    ]
    second = await world.ask(session=session)
    manifests = [one for one in await world.manifests(second["run_id"]) if one["purpose"] == "business"]
    for one in manifests:
        assert one["transforms"] == sorted({item["transform"] for item in one["items"] if item["transform"]})
    assert "tool_result_offload" in manifests[0]["transforms"]
    assert "tool_result_pruned" in manifests[-1]["transforms"]
    assert (await world.get(f"/sessions/{session}/verify"))["breaks"] == []


async def test_a_result_that_is_shown_in_part_already_is_not_shortened_again(world: RunWorld) -> None:
    """SPEC T5: what it says of itself, its length and the ranges shown, stays true while others are pruned."""
    await world.publish(tools=["repeat"], **PRUNING)
    world.model.add(*[scripted([repeated(80_000), *[repeated(1_900)] * 6, "done"])] * 20)
    run = await world.ask()
    assert not any(is_summary(request) for request in world.model.requests)
    assert "tool_result_pruned" in (await world.manifests(run["run_id"]))[-1]["transforms"]
    shown = [[one["content"] for one in sent if one["role"] == "tool"][:1] for sent in world.sent[1:]]
    assert '"total_chars": 80000' in shown[0][0]
    assert shown == [shown[0]] * len(shown)
    assert (await world.get(f"/sessions/{run['session_id']}/verify"))["breaks"] == []


async def test_the_requests_of_a_compaction_are_events_too(world: RunWorld) -> None:
    """SPEC A8: one `context_build` for each request that has a manifest, in their order, with its size."""
    await world.publish(tools=["repeat"], **SMALL)
    world.model.add(*[scripted([repeated(1_200)] * 4 + ["done"])] * 20)
    run = await world.ask()
    manifests = await world.manifests(run["run_id"])
    assert {one["purpose"] for one in manifests} == {"business", "compaction"}
    built = {one["operation_id"]: one for one in await world.events(run["run_id"]) if one["type"] == "context_build"}
    assert {one["operation_id"] for one in manifests} == built.keys()
    for one in manifests:
        event = built[one["operation_id"]]
        assert (event["estimated"], event["input_limit"]) == (one["estimated_input_tokens"], one["input_limit"])
        assert event.get("purpose", "business") == one["purpose"]
    assert (await world.get(f"/sessions/{run['session_id']}/verify"))["breaks"] == []


async def test_a_request_whose_compaction_failed_is_an_event_too(world: RunWorld) -> None:
    """SPEC A8, K8: it was measured, and is never sent."""
    await world.publish(tools=["repeat"], **SMALL)
    world.model.add(*[scripted([repeated(1_200)], [" "])] * 9)
    run = await world.ask()
    assert run["error"]["code"] == "COMPACTION_FAILED"
    events = [one for one in await world.events(run["run_id"]) if one["type"] == "context_build"]
    manifests = await world.manifests(run["run_id"])
    assert sorted(one["operation_id"] for one in events) == sorted(one["operation_id"] for one in manifests)
    (refused,) = [one for one in manifests if one["validation"] == "budget_exceeded"]
    (told,) = [one for one in events if one["operation_id"] == refused["operation_id"]]
    assert (told["estimated"], told["loop"], told["notes"]) == (
        refused["estimated_input_tokens"],
        run["loops"],
        ["compaction:failed"],
    )
    assert (await world.get(f"/sessions/{run['session_id']}/verify"))["breaks"] == []


async def test_a_request_that_waits_for_a_compaction_when_its_run_ends_has_its_manifest(world: RunWorld) -> None:
    """SPEC A8, S8: it was measured and is never sent; a resume begins the compaction again at once."""
    await world.publish(tools=["repeat"], **SMALL)
    held = replies.text(SUMMARY).but(hold="summary")
    world.model.add(*[scripted([repeated(1_200)] * 4 + ["done"], [held, held, SUMMARY])] * 20)
    run_id = await world.start()
    await world.model.wait_for_requests(5)
    await world.stop(run_id)
    assert (await world.ended(run_id))["status"] == "stopped"
    (manifest,) = [one for one in await world.manifests(run_id) if one["validation"] != "passed"]
    assert (manifest["validation"], manifest["notes"]) == ("budget_exceeded", ["compaction:cancelled"])
    assert [item["kind"] for item in manifest["items"]][-2:] == ["assistant", "tool_result"]
    built = [one["operation_id"] for one in await world.events(run_id) if one["type"] == "context_build"]
    assert sorted(built) == sorted(one["operation_id"] for one in await world.manifests(run_id))
    world.model.release("summary")
    await world.resume(run_id)
    assert (await world.ended(run_id))["answer"] == "done"
    session = (await world.get(f"/runs/{run_id}"))["session_id"]
    assert (await world.get(f"/sessions/{session}/verify"))["breaks"] == []

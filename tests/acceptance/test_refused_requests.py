"""Requests that no model answered: their manifests, and the bytes that were or would have been sent (SPEC A8, A9)."""

import hashlib
import json
import re
from collections.abc import AsyncIterator

import pytest

from tests.acceptance.test_commands_of_a_run import command
from tests.support import replies
from tests.support.compactions import SMALL, is_summary, repeated, scripted
from tests.support.replies import Reply
from tests.support.run_world import Json, RunWorld, Servers, working_world

TOO_LONG = replies.error(400, "This model's maximum context length is 4096 tokens.", code="context_length_exceeded")


@pytest.fixture
async def world(servers: Servers) -> AsyncIterator[RunWorld]:
    async with working_world(servers) as built:
        yield built


async def last_business(world: RunWorld, run: Json) -> tuple[Json, Json]:
    """The newest business Operation of a Run with its manifest."""
    operations = [one for one in await world.operations(run["run_id"]) if one["purpose"] == "business"]
    manifests = {one["operation_id"]: one for one in await world.manifests(run["run_id"])}
    return operations[-1], manifests[operations[-1]["operation_id"]]


async def test_a_request_that_the_provider_found_too_long_is_rebuilt_as_it_was_sent(world: RunWorld) -> None:
    """SPEC A8, A9, B7."""
    await world.publish(**SMALL)
    world.model.add(TOO_LONG)
    run = await world.ask("The question.")
    operation, manifest = await last_business(world, run)
    assert (operation["state"], manifest["validation"]) == ("failed", "passed")
    rebuilt = await world.get(f"/operations/{operation['operation_id']}/request")
    assert rebuilt["sha256"] == hashlib.sha256(world.model.requests[0].body).hexdigest()
    assert [item["kind"] for item in manifest["items"]] == ["system", "input"]


async def test_a_request_that_was_never_sent_has_its_manifest_and_can_be_seen(world: RunWorld) -> None:
    """SPEC A8, A9, K3: what it contained, of what size, and why it was not sent."""
    await world.publish(**SMALL)
    run = await world.ask("x" * 7_000)
    operation, manifest = await last_business(world, run)
    assert (operation["state"], operation["attempts"], manifest["validation"]) == ("failed", [], "budget_exceeded")
    assert manifest["estimated_input_tokens"] > manifest["input_limit"] == 6_744
    assert [item["kind"] for item in manifest["items"]] == ["system", "input"]
    rebuilt = await world.get(f"/operations/{operation['operation_id']}/request")
    assert rebuilt["request"]["messages"][-1] == {"role": "user", "content": "x" * 7_000}
    assert (await world.get(f"/sessions/{run['session_id']}/verify"))["breaks"] == []
    assert world.model.requests == []


async def test_a_request_that_fits_and_whose_compaction_failed_is_not_called_good(world: RunWorld) -> None:
    """SPEC A8, K8: it was never sent, so its validation is not `passed`, though its size is not the reason."""
    await world.publish(tools=["repeat"], **SMALL)
    world.model.add(*[scripted([repeated(1_000)] * 4 + ["done"], [" "])] * 9)
    run = await world.ask()
    assert run["error"]["code"] == "COMPACTION_FAILED"
    _, manifest = await last_business(world, run)
    assert manifest["estimated_input_tokens"] <= manifest["input_limit"]
    assert manifest["validation"] == "build_failed"
    others = [one for one in await world.manifests(run["run_id"]) if one != manifest]
    assert {one["validation"] for one in others} == {"passed"}


async def test_a_question_that_can_not_fit_is_told_by_its_own_size(world: RunWorld) -> None:
    """SPEC E, K3: what could have been left out is no part of the number."""
    await world.publish(**SMALL)
    session = await world.open_session()
    world.model.add(*["y" * 1_500] * 2)
    for question in ("One?", "Two?"):
        await world.ask(question, session)
    run = await world.ask("x" * 7_000, session)
    assert run["error"]["code"] == "CONTEXT_PROTECTED_INPUT_TOO_LARGE"
    _, manifest = await last_business(world, run)
    (protected,) = map(int, re.findall(r"(\d+) tokens of 6744", run["error"]["message"]))
    assert 7_000 < protected < 8_000 < manifest["estimated_input_tokens"]
    assert run["error"]["numbers"] == {
        "estimated_input_tokens": manifest["estimated_input_tokens"],
        "input_limit": 6_744,
        "phase": "preparing",
        "protected_tokens": protected,
    }
    assert (await world.items(f"/sessions/{session}/runs"))[-1]["error"] == run["error"]


async def test_a_question_that_can_not_fit_is_told_what_a_further_one_would_do_with_it(world: RunWorld) -> None:
    """SPEC E, P1, K6: its text is history by then, which is summarised in as many calls as it takes."""
    await world.publish(**SMALL)
    session = await world.open_session()
    world.model.add(*[scripted(["fine"], ["SUMMARY: it was long."])] * 20)
    refused = await world.ask("x" * 20_000, session)
    assert "max_compaction_calls" in refused["error"]["message"]
    assert "a new session" in refused["error"]["message"]
    assert (await world.ask("And now?", session))["answer"] == "fine"
    assert sum(map(is_summary, world.model.requests)) > 3


async def test_of_a_request_that_has_nothing_to_leave_out_all_is_protected(world: RunWorld) -> None:
    """SPEC E, K3: its numbers do not contradict each other."""
    await world.publish(**SMALL)
    run = await world.ask("x" * 7_000)
    numbers = run["error"]["numbers"]
    assert numbers["protected_tokens"] == numbers["estimated_input_tokens"] > numbers["input_limit"]


async def test_a_question_that_just_fits_beside_what_no_summary_could_shorten_is_sent(world: RunWorld) -> None:
    """SPEC K3, K8, E: it stands or falls by I ≤ B, though the frame of a summary would not fit beside it."""
    await world.publish(**SMALL)
    world.model.add(*["y"] * 10)
    limit, size = 6_744, 6_000
    size += limit - (await asked_second(world, size))[1]["estimated_input_tokens"]
    run, manifest = await asked_second(world, size)
    assert (run["status"], manifest["estimated_input_tokens"]) == ("succeeded", limit)
    assert manifest["notes"] == ["no_compressible_material"]
    assert not any(map(is_summary, world.model.requests))
    run, manifest = await asked_second(world, size + 1)
    assert run["error"]["code"] == "CONTEXT_PROTECTED_INPUT_TOO_LARGE"
    numbers = run["error"]["numbers"]
    assert limit < numbers["protected_tokens"] <= numbers["estimated_input_tokens"] == limit + 1


async def asked_second(world: RunWorld, size: int) -> tuple[Json, Json]:
    """A question of so many characters after one of a few, in a session of their own: its Run and its manifest."""
    session = await world.open_session()
    assert (await world.ask("One?", session))["status"] == "succeeded"
    run = await world.ask("x" * size, session)
    return run, (await last_business(world, run))[1]


async def test_a_carried_supplement_that_can_not_fit_is_told_with_what_to_do_about_it(world: RunWorld) -> None:
    """SPEC E, S6, S12: it would go along with every further question, and make each of them fail."""
    await world.publish(**SMALL)
    session = await world.open_session()
    world.model.add(replies.text("early").but(hold="answer"), "fine")
    run_id = await world.start("q1", session)
    await world.model.wait_for_requests(1)
    sent = await world.send("y" * 7_000, session, mode="supplement")
    world.model.release("answer")
    assert (await world.ended(run_id))["status"] == "succeeded"
    refused = await world.ask("q2", session)
    assert refused["error"]["code"] == "CONTEXT_PROTECTED_INPUT_TOO_LARGE"
    assert "withdraw" in refused["error"]["message"]
    assert (await world.http.delete(f"/inputs/{sent['input_id']}")).status_code == 200
    assert (await world.ask("q3", session))["answer"] == "fine"


@pytest.mark.parametrize(("beside", "size"), [([], 6_300), ([repeated(1_200)], 5_400)])
async def test_a_late_supplement_that_can_not_fit_leaves_the_answer_standing(
    world: RunWorld, beside: list[Reply], size: int
) -> None:
    """SPEC S7, S6, E: with `late_input: continue` too, at once or after a compaction; it goes along as ever."""
    await world.publish(tools=["repeat"], **SMALL, context={"late_input": "continue"})
    session = await world.open_session()
    answers: list[Reply | str] = [*beside, replies.text("early").but(hold="answer"), "fine"]
    world.model.add(*[scripted(answers, ["s" * 1_100])] * 5)
    run_id = await world.start("q1", session)
    await world.model.wait_for_requests(1 + len(beside))
    sent = await world.send("y" * size, session, mode="supplement")
    world.model.release("answer")
    run = await world.ended(run_id)
    assert (run["status"], run["answer"], run["error"]) == ("succeeded", "early", None)
    _, manifest = await last_business(world, run)
    assert manifest["validation"] == "budget_exceeded"
    assert [one["state"] for one in await world.inputs(run_id)] == ["delivered", "carried"]
    assert (await world.http.delete(f"/inputs/{sent['input_id']}")).status_code == 200
    assert (await world.ask("q2", session))["answer"] == "fine"
    assert (await world.get(f"/sessions/{session}/verify"))["breaks"] == []


async def test_a_request_whose_compaction_failed_has_its_manifest_too(world: RunWorld) -> None:
    """SPEC A8, K8: it was measured, waited, and was never sent; its notes say how the compaction ended."""
    await world.publish(tools=["repeat"], **SMALL)
    world.model.add(*[scripted([repeated(1_200)], [" "])] * 9)
    run = await world.ask()
    assert run["error"]["code"] == "COMPACTION_FAILED"
    operation, manifest = await last_business(world, run)
    assert (operation["state"], operation["attempts"]) == ("cancelled", [])
    assert manifest["validation"] == "budget_exceeded"
    assert manifest["estimated_input_tokens"] > manifest["input_limit"]
    assert manifest["notes"] == ["compaction:failed"]
    rebuilt = await world.get(f"/operations/{operation['operation_id']}/request")
    assert [message["role"] for message in rebuilt["request"]["messages"]].count("tool") == 4
    shown = await command(world, "show", "request", operation["operation_id"])
    assert (json.loads(shown.out), shown.err) == (rebuilt["request"], f"sha256 {rebuilt['sha256']} · never sent\n")
    viewed = await command(world, "show", "view", run["run_id"])
    assert viewed.out.splitlines()[0].endswith(" · cancelled · validation budget_exceeded · never sent")
    assert [is_summary(request) for request in world.model.requests] == [False] * 4 + [True]

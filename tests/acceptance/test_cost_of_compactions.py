"""What summarising uses counts on the Run, whatever came of it, and against the Run's limits (SPEC K13, L5)."""

from collections.abc import AsyncIterator
from decimal import Decimal

import pytest

from tests.support import replies
from tests.support.compactions import SMALL, SUMMARY, is_summary, repeated, scripted
from tests.support.replies import Reply
from tests.support.run_world import Json, RunWorld, Servers, working_world

PRICED: Json = {"model": SMALL["model"] | {"price": {"input": "1000000", "output": "1000000"}}}
"""A token costs one unit, in and out; every scripted answer says 50 in and 10 out."""
ONE_CALL = Decimal(60)


@pytest.fixture
async def world(servers: Servers) -> AsyncIterator[RunWorld]:
    async with working_world(servers) as built:
        yield built


@pytest.mark.parametrize(
    "useless",
    [
        replies.text("   "),
        replies.text("half of", finish_reason="content_filter"),
        replies.text("", reasoning="I think that"),
    ],
    ids=["empty", "filtered", "reasoning alone"],
)
async def test_a_call_that_came_to_no_summary_has_been_used_and_is_paid_for(world: RunWorld, useless: Reply) -> None:
    """SPEC K8, K13, L5: on the Run, in the figures of the episode, and at its attempt; the answer is kept."""
    await world.publish(tools=["repeat"], **PRICED)
    world.model.add(*[scripted([repeated(1_200)], [useless])] * 9)
    run = await world.ask()
    calls = len(world.model.requests)
    assert run["end_reason"] == "compaction_failed"
    assert (run["usage"]["input_tokens"], run["usage"]["output_tokens"]) == (50 * calls, 10 * calls)
    assert Decimal(run["usage"]["cost"]) == ONE_CALL * calls
    (episode,) = await world.items(f"/runs/{run['run_id']}/compactions")
    assert (episode["status"], episode["calls"]) == ("failed", 1)
    assert (episode["input_tokens"], episode["output_tokens"]) == (50, 10)
    (operation,) = [one for one in await world.operations(run["run_id"]) if one["purpose"] == "compaction"]
    (attempt,) = operation["attempts"]
    assert (attempt["state"], attempt["usage"]["input_tokens"]) == ("failed", 50)
    assert Decimal(attempt["cost"]) == Decimal(episode["cost"]) == ONE_CALL
    kept = await world.get(f"/operations/{operation['operation_id']}/result", view="raw")
    assert kept["result"]
    assert Decimal((await world.get("/usage"))["cost"]) == ONE_CALL * calls


async def test_what_was_used_is_told_by_purpose_and_for_one_session(world: RunWorld) -> None:
    """SPEC L5: of all sessions and of one; the parts add up to the whole, and another's session is not there."""
    await world.publish(tools=["repeat"], **PRICED)
    world.model.add(*[scripted([repeated(1_200)] * 4 + ["done"], [SUMMARY])] * 12)
    run = await world.ask()
    assert run["status"] == "succeeded"
    world.model.add(scripted(["fine"], [SUMMARY]))
    await world.ask()
    everything = await world.get("/usage")
    assert set(everything["by_purpose"]) == {"business", "compaction"}
    for name in ("input_tokens", "output_tokens", "cached_tokens", "unknown"):
        assert sum(part[name] for part in everything["by_purpose"].values()) == everything[name]
    summaries = [one for one in await world.operations(run["run_id"]) if one["purpose"] == "compaction"]
    one_session = await world.get("/usage", session=run["session_id"])
    assert one_session["by_purpose"]["compaction"]["input_tokens"] == 50 * len(summaries) > 0
    assert Decimal(one_session["by_purpose"]["compaction"]["cost"]) == ONE_CALL * len(summaries)
    assert Decimal(one_session["cost"]) == Decimal(run["usage"]["cost"]) < Decimal(everything["cost"])
    nobodys = await world.http.get("/usage", params={"session": run["run_id"]})
    assert (nobodys.status_code, nobodys.json()["code"]) == (404, "NOT_FOUND")


async def test_a_summary_that_is_not_used_is_paid_for_all_the_same(world: RunWorld) -> None:
    """SPEC K8, K13: it did not shrink the request, but it was written."""
    context = {"summary_target_tokens": 900, "keep_recent_tokens": 0}
    await world.publish(tools=["repeat"], **PRICED, context=context)
    endless = replies.text("SUMMARY " * 900)
    world.model.add(*[scripted([repeated(1_200)] * 4 + ["done"], [endless])] * 12)
    run = await world.ask()
    calls = len(world.model.requests)
    found = await world.items(f"/runs/{run['run_id']}/compactions")
    assert "not_smaller" in {one["outcome"] for one in found}
    assert sum(one["input_tokens"] for one in found) == 50 * sum(map(is_summary, world.model.requests))
    assert run["usage"]["input_tokens"] == 50 * calls
    assert Decimal(run["usage"]["cost"]) == ONE_CALL * calls


@pytest.mark.parametrize("limit", ["max_total_tokens", "max_cost"])
async def test_a_compaction_that_uses_up_the_budget_ends_the_run_before_the_next_call(
    world: RunWorld, limit: str
) -> None:
    """SPEC L5: four answers and one block reach the limit; the request that waited is not sent."""
    context = {"summary_target_tokens": 100}
    await world.publish(tools=["repeat"], **PRICED, context=context, limits={limit: 300})
    world.model.add(*[scripted([repeated(1_200)])] * 12)
    run = await world.ask()
    assert (run["status"], run["end_reason"], run["error"]["code"]) == ("exhausted", "budget", "BUDGET_EXHAUSTED")
    assert [is_summary(request) for request in world.model.requests] == [False] * 4 + [True]
    assert run["usage"]["input_tokens"] + run["usage"]["output_tokens"] == 300


async def test_no_further_block_is_called_once_the_budget_is_used_up(world: RunWorld) -> None:
    """SPEC L5, K6: an episode of several blocks ends where the limit is reached; what was done is kept."""
    writer = {"provider": "openai_compatible", "model": "writer", "context_window": 3_000, "max_output_tokens": 200}
    writer |= {"base_url": world.model.base_url}
    limits = {"max_total_tokens": 300}
    await world.publish(tools=["repeat"], **SMALL, context={"summary_model": writer}, limits=limits)
    world.model.add(*[scripted([repeated(1_200)], [SUMMARY])] * 12)
    run = await world.ask()
    assert (run["status"], run["error"]["code"]) == ("exhausted", "BUDGET_EXHAUSTED")
    assert [is_summary(request) for request in world.model.requests] == [False] * 4 + [True]
    (episode,) = await world.items(f"/runs/{run['run_id']}/compactions")
    assert episode["blocks"] > 1
    assert (episode["status"], episode["cursor"], episode["failure"]["code"]) == ("failed", 1, "BUDGET_EXHAUSTED")


async def test_a_block_whose_break_uses_up_the_budget_ends_the_run_with_that(world: RunWorld) -> None:
    """SPEC L5, L2: no further try; the Run is exhausted, and did not fail to compact."""
    broken = replies.deltas_reply([{"content": "half"}], finish_reason=None, usage=None, done=False)
    await world.publish(tools=["repeat"], **PRICED, limits={"max_total_tokens": 300})
    world.model.add(*[scripted([repeated(1_200)], [broken])] * 12)
    run = await world.ask()
    assert (run["status"], run["end_reason"], run["error"]["code"]) == ("exhausted", "budget", "BUDGET_EXHAUSTED")
    assert [is_summary(request) for request in world.model.requests] == [False] * 4 + [True]
    used = run["usage"]["input_tokens"] + run["usage"]["output_tokens"]
    assert run["error"]["numbers"] == {"budget": "tokens", "limit": 300, "used": used}


async def test_a_late_inputs_compaction_that_uses_up_the_budget_leaves_the_answer_standing(world: RunWorld) -> None:
    """SPEC S7, L5: one more loop only while tokens remain, whoever used the last of them; the input is carried."""
    late: Json = {"context": {"late_input": "continue"}, "limits": {"max_total_tokens": 170}}
    await world.publish(tools=["repeat"], **PRICED, **late)
    answers = [repeated(2_500), replies.text("early").but(hold="answer")]
    world.model.add(*[scripted(answers, [SUMMARY])] * 3)
    run_id = await world.start()
    await world.model.wait_for_requests(2)
    await world.send("y" * 2_500, (await world.get(f"/runs/{run_id}"))["session_id"], mode="supplement")
    world.model.release("answer")
    run = await world.ended(run_id)
    assert [is_summary(request) for request in world.model.requests] == [False] * 2 + [True]
    assert (run["status"], run["answer"], run["error"]) == ("succeeded", "early", None)
    assert [one["state"] for one in await world.inputs(run_id)] == ["delivered", "carried"]
    assert (await world.get(f"/sessions/{run['session_id']}/verify"))["breaks"] == []

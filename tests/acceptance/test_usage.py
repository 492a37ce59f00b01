"""What calls used, whatever the provider says of it, and what the limits make of that (SPEC L5, B5)."""

from decimal import Decimal
from typing import Any

import pytest

from tests.support import replies
from tests.support.replies import Reply
from tests.support.run_world import Json, RunWorld

PRICE = {"price": {"input": 1_000, "output": 2_000}}
PROMPT = "What is it, and why does nobody count it?"


async def attempts(world: RunWorld, run: Json) -> list[Json]:
    """Every attempt of every model call of the Run, in order."""
    return [
        one for call in await world.operations(run["run_id"]) for one in call["attempts"] if call["purpose"] != "tool"
    ]


def figures(attempt: Json) -> tuple[int, int, bool]:
    usage = attempt["usage"]
    return usage["input_tokens"], usage["output_tokens"], usage["estimated"]


async def test_a_provider_that_reports_nothing_is_estimated_and_marked_so(world: RunWorld) -> None:
    """SPEC L5: the estimate of the request, the counted answer; the Run says how many figures are ours."""
    await world.publish(model=PRICE)
    world.model.add(replies.text("counted by us", usage=None))
    run = await world.ask(PROMPT)
    [attempt], [manifest] = await attempts(world, run), await world.manifests(run["run_id"])
    given, written, estimated = figures(attempt)
    assert (given, estimated) == (manifest["estimated_input_tokens"], True)
    assert manifest["reported_input_tokens"] is None
    assert written >= 3
    assert (run["usage"]["input_tokens"], run["usage"]["output_tokens"]) == (given, written)
    assert run["usage"]["unknown"] == 1
    assert Decimal(run["usage"]["cost"]) == (Decimal(given) * 1_000 + Decimal(written) * 2_000) / 1_000_000


@pytest.mark.parametrize("usage", [{"prompt_tokens": 0, "completion_tokens": 0}, {"completion_tokens": 7}])
async def test_a_report_in_part_is_completed_and_marked_so(world: RunWorld, usage: Json) -> None:
    """SPEC L1, L5: zeros are no count; what was reported stays as it was reported."""
    world.model.add(replies.text("an answer", usage=usage))
    run = await world.ask(PROMPT)
    [attempt], [manifest] = await attempts(world, run), await world.manifests(run["run_id"])
    given, written, estimated = figures(attempt)
    assert (given, estimated) == (manifest["estimated_input_tokens"], True)
    assert written == usage["completion_tokens"] or (usage["completion_tokens"] == 0 and written > 0)


async def test_what_the_provider_reports_is_taken_as_it_is(world: RunWorld) -> None:
    """SPEC L5, B5: cached and reasoning tokens too; nothing of it is an estimate."""
    usage = {"prompt_tokens": 900, "completion_tokens": 30, "prompt_tokens_details": {"cached_tokens": 800}}
    world.model.add(replies.text("x", usage=usage | {"completion_tokens_details": {"reasoning_tokens": 20}}))
    run = await world.ask(PROMPT)
    [attempt] = await attempts(world, run)
    assert figures(attempt) == (900, 30, False)
    assert (attempt["usage"]["cached_tokens"], attempt["usage"]["reasoning_tokens"]) == (800, 20)
    assert (run["usage"]["cached_tokens"], run["usage"]["unknown"]) == (800, 0)
    [manifest] = await world.manifests(run["run_id"])
    assert (manifest["reported_input_tokens"], manifest["estimated_input_tokens"] > 0) == (900, True)


@pytest.mark.parametrize(
    "lost",
    [
        pytest.param(replies.text("x").but(hold="never"), id="silent"),
        pytest.param(replies.text("x").but(break_after=0), id="cut behind its head"),
        pytest.param(
            replies.deltas_reply([{"role": "assistant"}], finish_reason=None, usage=None, done=False), id="role"
        ),
    ],
)
async def test_a_try_that_got_there_and_brought_nothing_counts_its_request(world: RunWorld, lost: Reply) -> None:
    """SPEC L5, L2: the provider had it, and may have worked on it; else tries without end get round a limit."""
    await world.publish(model={"timeout_s": 1})
    world.model.add(lost, "done")
    run = await world.ask(PROMPT)
    [first, good], [manifest] = await attempts(world, run), await world.manifests(run["run_id"])
    assert figures(first) == (manifest["estimated_input_tokens"], 0, True)
    assert (run["usage"]["input_tokens"], run["usage"]["unknown"]) == (first["usage"]["input_tokens"] + 50, 1)
    assert figures(good) == (50, 10, False)


async def test_a_try_that_was_refused_counts_nothing(world: RunWorld) -> None:
    """SPEC L5, L2: nobody charges for a refusal."""
    world.model.add(replies.error(503, "later", headers=(("retry-after", "0"),)), "done")
    run = await world.ask(PROMPT)
    refused, _ = await attempts(world, run)
    assert (refused["usage"], run["usage"]["input_tokens"], run["usage"]["unknown"]) == (None, 50, 0)


async def test_a_stream_cut_before_its_usage_counts_what_had_come(world: RunWorld) -> None:
    """SPEC L2, L5: the failed attempt was paid for, too."""
    await world.publish(model=PRICE)
    world.model.add(replies.deltas_reply([{"content": "half"}], finish_reason=None, usage=None, done=False), "whole")
    run = await world.ask(PROMPT)
    failed, good = await attempts(world, run)
    assert (failed["state"], good["state"]) == ("failed", "succeeded")
    given, written, estimated = figures(failed)
    assert (given > 0, written > 0, estimated) == (True, True, True)
    assert figures(good) == (50, 10, False)
    assert (run["usage"]["input_tokens"], run["usage"]["output_tokens"]) == (given + 50, written + 10)
    assert run["usage"]["unknown"] == 1
    assert Decimal(run["usage"]["cost"]) == Decimal(failed["cost"]) + Decimal(good["cost"])


@pytest.mark.parametrize("output", [[{"content": "half"}], []])
async def test_a_broken_attempt_that_had_reported_counts_as_reported(world: RunWorld, output: list[Json]) -> None:
    """SPEC L5: with or without output before the break."""
    usage = {"prompt_tokens": 40, "completion_tokens": 4}
    events = [replies.event({"choices": [{"index": 0, "delta": delta}]}) for delta in output]
    world.model.add(replies.raw(*events, replies.event({"choices": [], "usage": usage})), "whole")
    run = await world.ask(PROMPT)
    failed, _ = await attempts(world, run)
    assert figures(failed) == (40, 4, False)
    assert (run["usage"]["input_tokens"], run["usage"]["unknown"]) == (90, 0)


async def test_a_refusal_counts_nothing(world: RunWorld) -> None:
    """SPEC L5: a provider that answers with an error has worked for nothing."""
    world.model.add(replies.error(503), "fine")
    run = await world.ask(PROMPT)
    failed, _ = await attempts(world, run)
    assert (failed["usage"], failed["cost"]) == (None, None)
    assert (run["usage"]["input_tokens"], run["usage"]["unknown"]) == (50, 0)


SILENT: dict[str, Any] = {"usage": None}


@pytest.mark.parametrize("limit", [{"max_total_tokens": 60}, {"max_cost": 0.01}])
async def test_a_limit_holds_for_a_provider_that_reports_nothing(world: RunWorld, limit: Json) -> None:
    """SPEC L5: no limit is silently without effect."""
    await world.publish(tools=["now"], limits=limit, model=PRICE)
    world.model.add(replies.calls(("now", {}), **SILENT), "not reached")
    run = await world.ask(PROMPT)
    assert (run["status"], run["error"]["code"], len(world.model.requests)) == ("exhausted", "BUDGET_EXHAUSTED", 1)


@pytest.mark.parametrize("limit", [{"max_total_tokens": 60}, {"max_cost": 0.01}])
async def test_attempts_that_break_use_up_the_budget_too(world: RunWorld, limit: Json) -> None:
    """SPEC L2, L5: no further try is made once what broke has cost too much."""
    await world.publish(limits=limit, model=PRICE)
    broken = replies.deltas_reply([{"content": "half"}], finish_reason=None, usage=None, done=False)
    world.model.add(broken, broken, "not reached")
    run = await world.ask(PROMPT)
    assert (run["status"], run["error"]["code"], len(world.model.requests)) == ("exhausted", "BUDGET_EXHAUSTED", 1)


async def cut_off(world: RunWorld, run_id: str, requests: int) -> Json:
    """The Run once a stop has cut off its call number `requests`."""
    await world.model.wait_for_requests(requests)
    await world.stop(run_id)
    return await world.ended(run_id)


async def test_a_call_that_was_cut_off_counts_what_was_sent(world: RunWorld) -> None:
    """SPEC L5, S8: nobody was told what it used; what went in is known, and marked as our estimate."""
    await world.publish(model=PRICE)
    world.model.add(replies.text("never").but(hold="never"), "done")
    run_id = await world.start(PROMPT)
    stopped = await cut_off(world, run_id, 1)
    [attempt], [manifest] = await attempts(world, stopped), await world.manifests(run_id)
    given = manifest["estimated_input_tokens"]
    assert figures(attempt) == (given, 0, True)
    assert (stopped["usage"]["unknown"], stopped["usage"]["input_tokens"]) == (1, given)
    assert Decimal(stopped["usage"]["cost"]) == Decimal(attempt["cost"]) == Decimal(given) / 1_000
    await world.resume(run_id)
    run = await world.ended(run_id)
    assert (run["usage"]["unknown"], run["usage"]["input_tokens"]) == (1, given + 50)


@pytest.mark.parametrize("limit", [{"max_total_tokens": 60}, {"max_cost": 0.01}])
async def test_no_stop_and_resume_gets_round_a_limit(world: RunWorld, limit: Json) -> None:
    """SPEC L5, S9: what was cut off has used up the budget; a resume calls nothing, and its end says the numbers."""
    await world.publish(limits=limit, model=PRICE)
    world.model.add(replies.text("never").but(hold="never"), "not reached")
    run_id = await world.start(PROMPT)
    stopped = await cut_off(world, run_id, 1)
    await world.resume(run_id)
    run = await world.ended(run_id)
    assert (run["status"], run["end_reason"], len(world.model.requests)) == ("exhausted", "budget", 1)
    assert run["usage"] == stopped["usage"]
    used = run["usage"]["input_tokens"] if "max_total_tokens" in limit else run["usage"]["cost"]
    [(name, most)] = limit.items()
    told = {"budget": "tokens", "limit": most} if name == "max_total_tokens" else {"budget": "cost", "limit": str(most)}
    assert run["error"]["numbers"] == told | {"used": used}


async def test_costs_in_different_currencies_are_never_added(world: RunWorld) -> None:
    """SPEC L5: of two agents, and of one session whose agent was published again with prices of another country."""
    for name, currency in (("scout", "USD"), ("mei", "CNY")):
        await world.publish(name, model={"price": {"input": 10_000, "output": 10_000, "currency": currency}})
    world.model.add(*[replies.text("done")] * 3)  # 50 tokens in, 10 out
    await world.ask()
    one_currency = await world.get("/usage")
    assert Decimal(one_currency["cost"]) == Decimal(one_currency["costs"]["USD"]) == Decimal("0.6")
    session = await world.open_session("mei")
    await world.ask(session=session)
    await world.publish("mei", model={"price": {"input": 10_000, "output": 20_000, "currency": "EUR"}})
    await world.ask(session=session)
    of_session, everything = await world.get("/usage", session=session), await world.get("/usage")
    assert told(of_session) == {"CNY": Decimal("0.6"), "EUR": Decimal("0.7")}
    assert told(everything) == told(of_session) | {"USD": Decimal("0.6")}
    assert told(everything["by_purpose"]["business"]) == told(everything)
    assert (everything["cost"], everything["input_tokens"]) == (None, 150)


def told(usage: Json) -> dict[str, Decimal]:
    """What it cost, by currency."""
    return {currency: Decimal(cost) for currency, cost in usage["costs"].items()}

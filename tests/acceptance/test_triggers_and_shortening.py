"""The counting triggers over resumes and Runs, and old arguments cut in the view (SPEC B2, T5)."""

import json
from collections.abc import AsyncIterator

import pytest

from tests.support import replies
from tests.support.compactions import SMALL, SUMMARY, business_of, is_summary, repeated, scripted
from tests.support.model_server import RecordedRequest
from tests.support.run_world import RunWorld, Servers, working_world


@pytest.fixture
async def world(servers: Servers) -> AsyncIterator[RunWorld]:
    async with working_world(servers) as built:
        yield built


async def test_steps_are_counted_over_runs_and_a_success_holds_over_a_resume(world: RunWorld) -> None:
    """SPEC B2: two answers of one Run and two of the next are four; what was compacted is not due again so soon."""
    await world.publish(tools=["repeat"], **SMALL, context={"model_steps": 4, "keep_recent_tokens": 0})
    session = await world.open_session()
    held = repeated(20).but(hold="never")
    step = repeated(20)
    world.model.add(*[scripted([step, "done", step, step, held, step, step, "all done", "and again"])] * 14)
    first = await world.ask("A.", session)
    second = await world.start("B.", session)
    await world.model.wait_for_requests(6)
    assert [is_summary(request) for request in world.model.requests] == [False] * 4 + [True, False]
    await world.stop(second)
    await world.ended(second)
    await world.resume(second)
    assert (await world.ended(second))["answer"] == "all done"
    third = await world.ask("C.", session)
    assert third["answer"] == "and again"
    episodes = [len(await world.items(f"/runs/{run}/compactions")) for run in (first["run_id"], second)]
    assert episodes == [0, 1]
    (one,) = await world.items(f"/runs/{second}/compactions")
    assert (one["causes"], one["outcome"]) == (["model_steps"], "activated")


async def test_questions_are_counted_since_the_last_success(world: RunWorld) -> None:
    """SPEC B2: supplements are none; every second question is compacted before its first request."""
    await world.publish(**SMALL, context={"user_turns": 2, "keep_recent_tokens": 0, "recent_runs": 5})
    session = await world.open_session()
    long = "Mind this. " * 40
    world.model.add(*[scripted(["Noted."])] * 14)
    runs = [await world.ask(f"{name}. {long}", session) for name in "ABCDE"]
    counted = [[one["causes"] for one in await world.items(f"/runs/{run['run_id']}/compactions")] for run in runs]
    assert counted == [[], [["user_turns"]], [], [["user_turns"]], []]
    assert SUMMARY in json.dumps(business_of(world.model.requests)[3])


async def test_a_count_of_records_can_be_the_trigger(world: RunWorld) -> None:
    """SPEC B2: records in the view since the last success, far below the budget."""
    await world.publish(tools=["repeat"], **SMALL, context={"messages": 6, "keep_recent_tokens": 0})
    world.model.add(*[scripted([repeated(100)] * 4 + ["done"])] * 14)
    run = await world.ask()
    assert run["status"] == "succeeded"
    found = await world.items(f"/runs/{run['run_id']}/compactions")
    assert [one["causes"] for one in found] == [["messages"]]


async def test_records_are_counted_over_runs_with_what_the_user_said(world: RunWorld) -> None:
    """SPEC B2: a question and its answer are two, and a request counts the question that it is about."""
    await world.publish(**SMALL, context={"messages": 6, "keep_recent_tokens": 0})
    session = await world.open_session()
    world.model.add(*[scripted(["Noted."])] * 14)
    long = "Mind this. " * 40
    runs = [await world.ask(f"{name}. {long}", session) for name in "ABCDEFG"]
    counted = [[one["causes"] for one in await world.items(f"/runs/{run['run_id']}/compactions")] for run in runs]
    assert counted == [[], [], [], [["messages"]], [], [], [["messages"]]]


async def test_old_long_arguments_are_cut_in_the_view_and_stay_whole_in_the_record(world: RunWorld) -> None:
    """SPEC T5, A11: the first twenty characters and a notice, still a JSON object; the newest two groups are whole."""
    results = {"protect_tokens": 100_000, "prune_tokens": 500, "max_argument_chars": 200}
    await world.publish(tools=["echo"], **SMALL, context={"results": results})
    session = await world.open_session()
    long = "y" * 500

    def answer(request: RecordedRequest) -> replies.Reply:
        assert not is_summary(request)
        made.append(request)
        return replies.text("done") if len(made) > 4 else replies.calls(("echo", {"text": f"{len(made)}{long}"}))

    made: list[RecordedRequest] = []
    world.model.add(*[answer] * 9)
    run = await world.ask(session=session)
    assert run["status"] == "succeeded"
    sent = [
        json.loads(message["tool_calls"][0]["function"]["arguments"])["text"]
        for message in world.sent[-1]
        if message.get("tool_calls")
    ]
    assert [len(text) for text in sent[-2:]] == [501, 501]
    assert all(text.startswith(f"{n}{'y' * 19}…") and "501 characters" in text for n, text in enumerate(sent[:-2], 1))
    records = [one for one in await world.messages(session) if one["kind"] == "assistant"]
    assert long in json.dumps(records[0]["message"])
    assert "args_truncated" in (await world.manifests(run["run_id"]))[-1]["transforms"]
    assert world.model.refusals == []
    assert (await world.get(f"/sessions/{session}/verify"))["breaks"] == []

"""Inputs that reach a Run after its question (SPEC S3, S4, S6, S7; the rows on supplements; cases C064, C065)."""

import asyncio

import pytest

from tests.acceptance.test_history import texts
from tests.acceptance.test_tool_batches import results, settled
from tests.support import replies
from tests.support.model_server import ModelServer
from tests.support.replies import Reply
from tests.support.run_world import Json, RunWorld, Servers, running_world


async def test_five_supplements_are_five_inputs_of_one_run_and_survive_history(servers: Servers) -> None:
    """SPEC S3, P1: one Run, five inputs, all of them still there when the Run is old."""
    async with ModelServer(strict="plain") as model, running_world(servers, model) as world:
        await world.publish(context={"recent_runs": 0})
        session = await world.open_session()
        run_id = await world.start("the question", session)
        said = [f"supplement {n}" for n in range(5)]
        sent = [await world.send(text, session, mode="supplement") for text in said]
        assert {one["run_id"] for one in sent} == {run_id}
        assert len({one["input_id"] for one in sent}) == 5
        model.add("answer", "next answer")
        async with world.worker():
            assert (await world.ended(run_id))["loops"] == 1
            assert texts(world.sent[0])[1:] == ["the question", *said]
            await world.ask("next", session)
        assert [one for one in texts(world.sent[1]) if one in said] == said
        runs = await world.items(f"/sessions/{session}/runs")
        assert len(runs) == 2


async def test_a_supplement_during_a_batch_stands_behind_its_results(world: RunWorld) -> None:
    """Case C064, SPEC A4, S3: in no tool message, and the request that was frozen before is unchanged."""
    await world.publish(tools=["echo", "pause"])
    world.model.add(replies.calls(("echo", {"text": "one"}, "c1"), ("pause", {"seconds": 0.5, "text": "two"}, "c2")))
    world.model.add("done")
    session = await world.open_session()
    run_id = await world.start("go", session)
    await settled(world, run_id, "echo")
    sent = await world.send("MARK-S: metric units", session, mode="supplement")
    run = await world.ended(run_id)
    assert run["status"] == "succeeded"
    assert results(world.sent[1]) == ["one", "two"]
    assert [message["role"] for message in world.sent[1]][-4:] == ["assistant", "tool", "tool", "user"]
    assert world.sent[1][-1]["content"] == "MARK-S: metric units"
    assert sent["input_id"] in [one["input_id"] for one in await world.inputs(run_id)]


async def supplement_during_the_last_call(world: RunWorld, session: str) -> tuple[Json, Json]:
    """A supplement while the final answer is on its way: the accepted input, and the Run at its end."""
    world.model.add(replies.text("final").but(hold="answer"))
    run_id = await world.start("q1", session)
    await world.model.wait_for_requests(1)
    sent = await world.send("MARK-S", session, mode="supplement")
    world.model.release("answer")
    return sent, await world.ended(run_id)


async def test_a_supplement_too_late_for_the_last_request_is_carried_to_what_starts_next(world: RunWorld) -> None:
    """Case C065, SPEC S6, S7: acknowledged, not delivered; taken along once, before the new question, under its id."""
    session = await world.open_session()
    sent, first = await supplement_during_the_last_call(world, session)
    assert (sent["state"], first["status"], first["loops"]) == ("pending", "succeeded", 1)
    [late] = [one for one in await world.inputs(first["run_id"]) if one["kind"] == "supplement"]
    assert late["state"] == "carried"
    assert len(await world.items(f"/sessions/{session}/runs")) == 1
    world.model.add("second", "third")
    second = await world.ask("q2", session)
    assert texts(world.sent[1]).count("MARK-S") == 1
    assert texts(world.sent[1])[-2:] == ["MARK-S", "q2"]
    [taken] = [one for one in await world.inputs(second["run_id"]) if one["kind"] == "supplement"]
    assert (taken["input_id"], taken["previous_delivery_id"]) == (sent["input_id"], late["delivery_id"])
    assert taken["state"] == "delivered"
    await world.ask("q3", session)
    assert texts(world.sent[2]).count("MARK-S") == 1


async def test_late_input_may_have_one_more_loop(world: RunWorld) -> None:
    """SPEC S7: `late_input: continue` answers again while loops remain."""
    await world.publish(context={"late_input": "continue"})
    session = await world.open_session()
    world.model.add(replies.text("early").but(hold="answer"), "late")
    run_id = await world.start("q1", session)
    await world.model.wait_for_requests(1)
    await world.send("MARK-S", session, mode="supplement")
    world.model.release("answer")
    run = await world.ended(run_id)
    assert (run["status"], run["answer"], run["loops"]) == ("succeeded", "late", 2)
    assert texts(world.sent[1])[-2:] == ["early", "MARK-S"]


async def test_a_claimed_supplement_without_any_output_is_carried_once(servers: Servers) -> None:
    """SPEC S6: the request held it, the model never answered; the next question takes it along, with its own id."""
    async with ModelServer(strict="plain") as model, running_world(servers, model) as world:
        session = await world.open_session()
        run_id = await world.start("q1", session)
        sent = await world.send("MARK-S", session, mode="supplement")
        model.add(replies.error(401, "no"), "fine")
        async with world.worker():
            assert (await world.ended(run_id))["status"] == "failed"
            assert texts(world.sent[0])[-2:] == ["q1", "MARK-S"]
            states = {one["kind"]: one["state"] for one in await world.inputs(run_id)}
            assert states["supplement"] == "carried"
            second = await world.ask("q2", session)
        assert texts(world.sent[1]).count("MARK-S") == 1
        [taken] = [one for one in await world.inputs(second["run_id"]) if one["kind"] == "supplement"]
        assert (taken["input_id"], taken["state"]) == (sent["input_id"], "delivered")


@pytest.mark.parametrize(
    "script",
    [
        [replies.text(""), replies.error(401, "no")],
        [replies.text("", finish_reason="content_filter")],
        [replies.text("", finish_reason="length")],
    ],
    ids=["empty", "filtered", "cut"],
)
async def test_an_answer_without_any_output_delivers_nothing(servers: Servers, script: list[Reply]) -> None:
    """SPEC S6: no text, no reasoning, no call is no evidence; what the Run's end leaves so is carried, once."""
    async with ModelServer(strict="plain") as model, running_world(servers, model) as world:
        session = await world.open_session()
        run_id = await world.start("q1", session)
        await world.send("MARK-S", session, mode="supplement")
        model.add(*script, "fine")
        async with world.worker():
            assert (await world.ended(run_id))["status"] == "failed"
            states = {one["kind"]: one["state"] for one in await world.inputs(run_id)}
            assert states == {"question": "claimed", "supplement": "carried"}
            tries = [one for call in await world.operations(run_id) for one in call["attempts"]]
            assert [one["first_output_at"] for one in tries] == [None] * len(tries)
            await world.ask("q2", session)
        assert [one for one in texts(world.sent[-1]) if one in ("MARK-S", "q1", "q2")] == ["q1", "MARK-S", "q2"]
        assert (await world.get(f"/sessions/{session}/verify"))["breaks"] == []


async def test_the_first_answer_with_any_output_delivers_what_an_empty_one_did_not(servers: Servers) -> None:
    """SPEC S6, L1: the next loop's request still has the input, and its answer is the evidence."""
    async with ModelServer([replies.text(""), "fine"], strict="plain") as model, running_world(servers, model) as world:
        session = await world.open_session()
        run_id = await world.start("q1", session)
        await world.send("MARK-S", session, mode="supplement")
        async with world.worker():
            run = await world.ended(run_id)
        assert (run["status"], run["loops"]) == ("succeeded", 2)
        assert {one["state"] for one in await world.inputs(run_id)} == {"delivered"}
        assert [event["type"] for event in await world.events(run_id)].count("input_delivered") == 1
        assert texts(world.sent[1]).count("MARK-S") == 1
        assert (await world.get(f"/sessions/{session}/verify"))["breaks"] == []


async def test_the_first_output_delivers_before_the_answer_is_complete(servers: Servers) -> None:
    """SPEC S6, A5: evidence on the attempt; no message, no tool, no event for the fragment."""
    async with ModelServer(strict="plain") as model, running_world(servers, model) as world:
        session = await world.open_session()
        run_id = await world.start("q1", session)
        await world.send("MARK-S", session, mode="supplement")
        model.add(replies.text("half and half", pieces_of=4).but(hold="rest", hold_after=1))
        async with world.worker():
            await delivered(world, run_id)
            [call] = await world.operations(run_id)
            assert (call["state"], call["attempts"][0]["state"]) == ("calling", "calling")
            assert call["attempts"][0]["first_output_at"] is not None
            assert {message["kind"] for message in await world.messages(session)} == {"user_ref"}
            before = [event["type"] for event in await world.events(run_id)]
            model.release("rest")
            run = await world.ended(run_id)
        assert run["answer"] == "half and half"
        assert set(before) <= {"run_started", "input_accepted", "context_build", "input_delivered"}


async def delivered(world: RunWorld, run_id: str) -> None:
    """Wait until all inputs of the Run are delivered."""
    async with asyncio.timeout(20):
        while {one["state"] for one in await world.inputs(run_id)} != {"delivered"}:
            await asyncio.sleep(0.01)


async def test_a_stopped_run_resumed_with_a_supplement_goes_on(world: RunWorld) -> None:
    """SPEC S9: same Run, same history, the supplement behind it; loops go on counting."""
    await world.publish(tools=["echo"])
    world.model.add(replies.calls(("echo", {"text": "kept"})), replies.text("never").but(hold="never"))
    session = await world.open_session()
    run_id = await world.start("q", session)
    await world.model.wait_for_requests(2)
    await world.stop(run_id)
    assert (await world.ended(run_id))["status"] == "stopped"
    world.model.add("resumed")
    await world.resume(run_id, "go on")
    run = await world.ended(run_id)
    assert (run["status"], run["answer"], run["execution_no"]) == ("succeeded", "resumed", 2)
    assert world.sent[2][: len(world.sent[1])] == world.sent[1]
    assert texts(world.sent[2])[-1] == "go on"

"""Rows of the table of acceptance and injected faults that speak of budget, compaction, history and snapshots.

Over HTTP against real servers, each named after its row; docs/acceptance-rows.md lists all rows and their tests.
"""

import json
import re
from typing import Any

from storage.commits.create_key import CreateKey, create_key
from storage.commits.create_space_user import CreateSpaceUser, create_space_user
from tests.support import replies
from tests.support.long_sessions import is_block
from tests.support.model_server import ModelServer, RecordedRequest
from tests.support.replies import Reply
from tests.support.run_world import Json, RunWorld, Servers, running_world

SMALL: Json = {"model": {"context_window": 8_000, "max_output_tokens": 1_000}}
"""B is 8000 - 1000 - 256 = 6744 tokens of one byte each, the trigger is 5395."""
LIMIT, TRIGGER = 6_744, 5_395
SUMMARY = "SUMMARY: goals kept."


def summing_up(request: RecordedRequest) -> str:
    """A model that only says two things."""
    return SUMMARY if is_block(request) else "Noted."


def business(world: RunWorld) -> list[RecordedRequest]:
    """The requests that are no summariser's."""
    return [request for request in world.model.requests if not is_block(request)]


def blocks(world: RunWorld) -> list[RecordedRequest]:
    """The summariser's requests."""
    return [request for request in world.model.requests if is_block(request)]


def has_verbatim(request: RecordedRequest, text: str) -> bool:
    """Whether a text is the whole of a user message."""
    return {"role": "user", "content": text} in request.json["messages"]


async def asked_with(world: RunWorld, length: int, *, after: str | None) -> Json:
    """A question of so many letters in a new session, `after` an earlier one; its first manifest."""
    session = await world.open_session()
    if after:
        await world.ask(after, session)
    run = await world.ask("x" * length, session)
    manifest = (await world.manifests(run["run_id"]))[-1]
    return {"run": run, "estimated": manifest["estimated_input_tokens"], "limit": manifest["input_limit"]}


async def test_the_boundary_of_eighty_percent(world: RunWorld) -> None:
    """SPEC B1, K1: one token under the trigger nothing is compacted, at the trigger it is."""
    await world.publish(**SMALL)
    world.model.add(*[summing_up] * 8)
    earlier = "Keep this: " + "word " * 600
    beside = (await asked_with(world, 1, after=earlier))["estimated"] - 1
    under = await asked_with(world, TRIGGER - 1 - beside, after=earlier)
    assert (under["estimated"], blocks(world)) == (TRIGGER - 1, [])
    at_it = await asked_with(world, TRIGGER - beside, after=earlier)
    (episode,) = await world.items(f"/runs/{at_it['run']['run_id']}/compactions")
    assert (episode["tokens_before"], episode["outcome"], len(blocks(world))) == (TRIGGER, "activated", 1)


async def test_the_reserve_for_output_and_the_safety_margin_count_in_the_hard_window(world: RunWorld) -> None:
    """SPEC B1: what fits into W - O - S to the token is sent; one token more is not, and costs no call."""
    reserves = {"output_reserve_tokens": 1_500, "safety_margin_tokens": 700}
    await world.publish(model={"context_window": 8_000}, context=reserves)
    world.model.add("Noted.", "Noted.")
    probe = await asked_with(world, 1, after=None)
    beside, limit = probe["estimated"] - 1, probe["limit"]
    assert limit == 8_000 - 1_500 - 700
    full = await asked_with(world, limit - beside, after=None)
    assert (full["run"]["status"], full["estimated"]) == ("succeeded", limit)
    assert world.model.requests[-1].json["max_tokens"] == 1_500
    over = await asked_with(world, limit - beside + 1, after=None)
    assert over["run"]["error"]["code"] == "CONTEXT_PROTECTED_INPUT_TOO_LARGE"
    assert len(world.model.requests) == 2


async def test_a_new_question_that_itself_triggers_the_compaction_stands_verbatim(servers: Servers) -> None:
    """SPEC A2, K2, K5: with its supplement, behind the summary; neither goes into what is summarised."""
    question, added = "The question: " + "what " * 300 + "?", "The supplement: " + "also " * 100 + "!"
    async with ModelServer([summing_up] * 12, strict="plain") as model, running_world(servers, model) as world:
        await world.publish(**SMALL)
        session = await world.open_session()
        async with world.worker():
            for number in range(2):
                await world.ask(f"Earlier question {number}: " + "word " * 350, session)
        run_id = await world.start(question, session)
        await world.send(added, session, mode="supplement")
        async with world.worker():
            assert (await world.ended(run_id))["status"] == "succeeded"
        summarised, last = blocks(world), business(world)[-1]
        assert summarised
        assert not [one for one in summarised if question[:40] in str(one.json) or added[:40] in str(one.json)]
        texts = [message["content"] for message in last.json["messages"]]
        assert texts[-2:] == [question, added]
        assert sum(SUMMARY in text for text in texts) == 1
        assert model.refusals == []


async def test_a_supplement_received_during_a_compaction_is_outside_its_coverage(world: RunWorld) -> None:
    """SPEC K11, K10: the summary's watermark lies before it, and the request after the next holds it verbatim."""
    late = "And mind this too."
    call = replies.calls(("repeat", {"text": "z", "times": 1_200}))

    def script(request: RecordedRequest) -> Reply | str:
        if is_block(request):
            return replies.text(SUMMARY).but(hold="summary")
        return "done" if late.encode() in request.body else call

    await world.publish(tools=["repeat"], **SMALL)
    world.model.add(*[script] * 12)
    session = await world.open_session()
    run_id = await world.start("The question that must stay.", session)
    await world.until(run_id, "compacting")
    sent = await world.send(late, session, mode="supplement")
    world.model.release("summary")
    assert (await world.ended(run_id))["answer"] == "done"
    waited = (await world.items(f"/runs/{run_id}/compactions"))[0]
    assert sent["input_id"] not in waited["replaced_inputs"]
    assert not [one for one in blocks(world) if late in str(one.json)]
    operation = waited["operation_id"]
    told = await world.get(f"/operations/{operation}/explain", input=sent["input_id"])
    assert told["explanation"] == "not_yet_arrived"
    [where] = [at for at, one in enumerate(business(world)) if has_verbatim(one, late)]
    assert SUMMARY in str(business(world)[where - 1].json)


async def test_a_huge_result_stays_a_preview_in_history(world: RunWorld) -> None:
    """SPEC T5, P5: a later Run sees the message that was shown, byte for byte, and not the body that was not read."""
    await world.publish(tools=["repeat"], model={"context_window": 200_000})
    world.model.add(replies.calls(("repeat", {"text": "0123456789", "times": 10_000})), "first", "second")
    session = await world.open_session()
    first = await world.ask("one", session)
    await world.ask("two", session)
    shown = [message for message in world.sent[1] if message["role"] == "tool"]
    assert [message for message in world.sent[2] if message["role"] == "tool"] == shown
    preview = shown[0]["content"]
    assert ("truncated" in preview, len(preview) < 6_000) == (True, True)
    [call] = [one for one in await world.operations(first["run_id"]) if one["purpose"] == "tool"]
    raw = await world.get(f"/operations/{call['operation_id']}/result", view="raw")
    assert "0123456789" * 10_000 in str(raw)


async def test_a_summary_that_leaves_the_request_over_the_hard_window_ends_the_run(world: RunWorld) -> None:
    """SPEC K4, E: it is said in numbers; no second compaction, and no request over the window goes out."""
    await world.publish(tools=["repeat"], **SMALL)
    step = replies.calls(("repeat", {"text": "z", "times": 1_500}))
    jump = replies.calls(("repeat", {"text": "z", "times": 3_900}))
    world.model.add(step, step, jump, *[replies.text("y" * 2_950)] * 3)
    run = await world.ask("The question that must stay.")
    assert (run["status"], run["end_reason"]) == ("failed", "context_too_large")
    assert run["error"]["code"] == "CONTEXT_WINDOW_EXCEEDED"
    assert re.search(rf"\b{LIMIT}\b", json.dumps(run["error"])), run["error"]
    (episode,) = await world.items(f"/runs/{run['run_id']}/compactions")
    assert (episode["outcome"], episode["tokens_after"] > LIMIT) == ("activated", True)
    assert (len(blocks(world)), len(business(world))) == (1, 3)
    refused = [one for one in await world.manifests(run["run_id"]) if one["purpose"] == "business"][-1]
    assert (refused["validation"], refused["estimated_input_tokens"]) == ("budget_exceeded", episode["tokens_after"])


async def test_a_stream_that_broke_is_not_joined_and_no_piece_of_it_is_told(world: RunWorld) -> None:
    """SPEC A5, L1: five hundred pieces, once broken, once whole: the events are those of an answer in one piece."""
    pieces = replies.text("part " * 500, pieces_of=5)
    world.model.add("whole", pieces.but(break_after=2_000), pieces)
    plain, broken = await world.ask("q"), await world.ask("q")
    assert broken["answer"] == "part " * 500
    assert world.model.requests[1].body == world.model.requests[2].body
    told = [[event["type"] for event in await world.events(run["run_id"])] for run in (plain, broken)]
    assert told[0] == told[1]


async def test_the_context_of_another_person_is_as_if_it_did_not_exist(world: RunWorld) -> None:
    """SPEC Y1, 16: no view, record, request, result, manifest, compaction or check, in the same space or another."""
    await world.publish(tools=["repeat"], **SMALL)
    call = replies.calls(("repeat", {"text": "z", "times": 1_500}))
    world.model.add(*[lambda request: SUMMARY if is_block(request) else call] * 4)
    world.model.add(*[lambda request: SUMMARY if is_block(request) else "done"] * 3)
    session = await world.open_session()
    run_id = (await world.ask("private", session))["run_id"]
    (instance,) = (await world.get(f"/runs/{run_id}/instances"))["items"]
    operations = await world.operations(run_id)
    paths = [
        *(f"/sessions/{session}{rest}" for rest in ("", "/messages", "/runs", "/inputs", "/verify")),
        *(f"/runs/{run_id}{rest}" for rest in ("", "/inputs", "/operations", "/manifests", "/compactions")),
        *(f"/runs/{run_id}{rest}" for rest in ("/instances", "/events")),
        *(f"/contexts/{instance['context_id']}{rest}" for rest in ("/view", "/revisions")),
        *(f"/operations/{operations[0]['operation_id']}{rest}" for rest in ("", "/request", "/result?view=raw")),
        f"/operations/{operations[0]['operation_id']}/explain?record={operations[0]['operation_id']}",
        f"/operations/{operations[0]['operation_id']}/diff?with={operations[-1]['operation_id']}",
    ]
    own = [await world.http.get(path, headers={"accept": "application/json"}) for path in paths[:-2]]
    assert {answer.status_code for answer in own} == {200}
    stranger = await a_key_of_a_stranger(world)
    headers = {"authorization": f"Bearer {stranger}", "accept": "application/json"}
    answers: list[Any] = [await world.http.get(path, headers=headers) for path in paths]
    assert {(one.status_code, one.json()["code"]) for one in answers} == {(404, "NOT_FOUND")}


async def a_key_of_a_stranger(world: RunWorld) -> str:
    """A key of somebody else."""
    user = await create_space_user(world.store, CreateSpaceUser("eve", "member"))
    return (await create_key(world.store, CreateKey(user.user_id))).key

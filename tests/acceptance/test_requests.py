"""The shape of what is sent, against servers that refuse every slip (SPEC A6, A11; cases of kind provider-request)."""

import hashlib
import itertools
import json
from typing import Any

import pytest
from sqlalchemy import text

from tests.acceptance.test_tool_batches import results
from tests.support import replies
from tests.support.model_server import ModelServer
from tests.support.run_world import RunWorld, Servers, running_world


async def test_broken_arguments_poison_no_later_request(servers: Servers) -> None:
    """Case C012, SPEC T3, A11: an error result, only JSON objects on the wire, the broken text kept as it came."""
    broken = '{"text": "ls'
    async with ModelServer(strict="plain") as model, running_world(servers, model) as world:
        await world.publish(tools=["echo"])
        model.add(replies.calls(("echo", broken, "c1"), finish_reason="tool_calls"), "sorry", "hi")
        session = await world.open_session()
        async with world.worker():
            first = await world.ask("list files", session)
        async with world.worker():
            second = await world.ask("hello", session)
        assert (first["status"], second["status"], model.refusals) == ("succeeded", "succeeded", [])
        assert "JSON" in results(world.sent[1])[0]
        [call, tool, _] = await world.operations(first["run_id"])
        assert tool["attempts"] == []
        raw = await world.get(f"/operations/{call['operation_id']}/result", view="raw")
        assert json.dumps(broken) in raw["result"]


async def test_empty_argument_text_means_no_arguments(world: RunWorld) -> None:
    """Case C013, SPEC A11: a tool without parameters runs, one that needs a parameter gets an error result."""
    await world.publish(tools=["now", "echo"])
    world.model.add(replies.calls(("now", ""), ("echo", "")), "done")
    run = await world.ask()
    assert run["status"] == "succeeded"
    assert results(world.sent[1])[0] == "noon"
    assert "text" in results(world.sent[1])[1]
    sent = [call["function"]["arguments"] for call in world.sent[1][2]["tool_calls"]]
    assert [json.loads(arguments) for arguments in sent] == [{}, {}]


async def test_content_is_null_only_beside_calls_and_empty_answers_are_not_sent(world: RunWorld) -> None:
    """Case C015, SPEC A11: a message that only calls has a content key; one that says nothing is no message."""
    await world.publish(tools=["now"])
    world.model.add(replies.calls(("now", {})), replies.text(""), "done")
    run = await world.ask()
    assert (run["status"], run["loops"]) == ("succeeded", 3)
    last = world.sent[2]
    assert [message["role"] for message in last] == ["system", "user", "assistant", "tool", "user"]
    assert last[2]["content"] is None
    assert "neither text nor a tool call" in last[4]["content"]


async def test_results_that_say_nothing_are_marked_and_kept_as_they_were(world: RunWorld) -> None:
    """Case C017, SPEC A11: an empty text, a line break, and nothing at all."""
    await world.publish(tools=["echo", "nothing"])
    world.model.add(replies.calls(("echo", {"text": ""}), ("echo", {"text": "\r\n"}), ("nothing", {})), "ok")
    run = await world.ask()
    assert run["status"] == "succeeded"
    assert results(world.sent[1]) == ["(no output)"] * 3
    tools = [one for one in await world.operations(run["run_id"]) if one["purpose"] == "tool"]
    raw = [(await world.get(f"/operations/{one['operation_id']}/result", view="raw")) for one in tools]
    assert [body["result"] for body in raw] == ["", "\r\n", None]


async def test_reasoning_goes_back_where_it_is_required(servers: Servers) -> None:
    """Case C019, SPEC A6: a worker that never saw the first call sends it as stored; the call is not repeated."""
    async with ModelServer(strict="deepseek_thinking") as model, running_world(servers, model) as world:
        await world.publish(tools=["now"], model={"provider": "deepseek", "model": "deepseek-chat"})
        model.add(replies.calls(("now", {}), reasoning="r1 text"), replies.text("done", reasoning="r2 text"))
        async with world.worker():
            run = await world.ask()
        assert (run["status"], model.refusals, len(model.requests)) == ("succeeded", [], 2)
        assert world.sent[1][2]["reasoning_content"] == "r1 text"


async def test_reasoning_stays_at_home_where_it_is_refused(world: RunWorld) -> None:
    """SPEC A6: the record keeps it, the request leaves it out."""
    await world.publish(tools=["now"])
    world.model.add(replies.calls(("now", {}), reasoning="private"), "done")
    run = await world.ask()
    assert run["status"] == "succeeded"
    assert b"private" not in b"".join(request.body for request in world.model.requests)


async def test_adjacent_user_texts_are_one_message_where_they_must_be(servers: Servers) -> None:
    """Case C021, SPEC A11: three texts word for word in one message, three inputs of their own, all delivered."""
    bodies = await question_and_two_supplements(servers, strict="alternating", merge=True)
    [message] = [one for one in bodies if one["role"] == "user"]
    places = [message["content"].index(text) for text in ("Write the plan", "Only Docker", "No public ports")]
    assert places == sorted(places)


async def test_adjacent_user_texts_stay_apart_where_they_may(servers: Servers) -> None:
    """Case C021, SPEC A11: without the restriction they stay three messages."""
    bodies = await question_and_two_supplements(servers, strict="plain", merge=None)
    texts = [message["content"] for message in bodies if message["role"] == "user"]
    assert texts == ["Write the plan", "Only Docker", "No public ports"]


async def question_and_two_supplements(servers: Servers, *, strict: Any, merge: bool | None) -> list[dict[str, Any]]:
    """All three are there before a worker prepares the first request; the messages it sent."""
    async with ModelServer(["ok"], strict=strict) as model, running_world(servers, model) as world:
        await world.publish(model={"merge_user_messages": merge})
        session = await world.open_session()
        run_id = await world.start("Write the plan", session)
        for text in ("Only Docker", "No public ports"):
            await world.send(text, session, mode="supplement")
        async with world.worker():
            run = await world.ended(run_id)
        assert (run["status"], model.refusals) == ("succeeded", [])
        inputs = await world.inputs(run_id)
        assert [one["state"] for one in inputs] == ["delivered"] * 3
        assert len({one["input_id"] for one in inputs}) == 3
        return world.sent[0]


async def test_each_request_begins_with_the_one_before(world: RunWorld) -> None:
    """SPEC A7: within a Run the prefix is the same, byte for byte, tools and fields aside."""
    await world.publish(tools=["add"])
    world.model.add(*[replies.calls(("add", {"a": n, "b": n}, f"c{n}")) for n in range(4)], "done")
    await world.ask()
    starts = [request.body.partition(b'],"max_tokens"')[0] for request in world.model.requests]
    assert len(starts) == 5
    for earlier, later in itertools.pairwise(starts):
        assert later.startswith(earlier)


async def test_a_request_can_be_rebuilt_as_it_was_sent(world: RunWorld) -> None:
    """SPEC A9: byte for byte, with its hash."""
    await world.publish(tools=["add"])
    world.model.add(replies.calls(("add", {"a": 1, "b": 2})), "three")
    run = await world.ask()
    calls = [one for one in await world.operations(run["run_id"]) if one["purpose"] == "business"]
    for call, sent in zip(calls, world.model.requests, strict=True):
        rebuilt = await world.get(f"/operations/{call['operation_id']}/request")
        assert rebuilt["request"] == sent.json
        assert rebuilt["sha256"] == hashlib.sha256(sent.body).hexdigest()


@pytest.mark.parametrize("cause", ["a stop", "the deadline"])
async def test_a_call_that_was_broken_off_leaves_the_hash_of_what_it_sent(world: RunWorld, cause: str) -> None:
    """SPEC A9, M7: its request is rebuilt and checked as any other; a list cut short by hand is found out."""
    await world.publish(limits={"deadline_s": 600 if cause == "a stop" else 1})
    world.model.add(replies.text("never").but(hold="never"))
    run_id = await world.start()
    [sent] = await world.model.wait_for_requests(1)
    if cause == "a stop":
        await world.stop(run_id)
    await world.ended(run_id)
    [call] = await world.operations(run_id)
    await world.until_hash_is_stored(call["operation_id"])
    rebuilt = await world.get(f"/operations/{call['operation_id']}/request")
    assert rebuilt["sha256"] == hashlib.sha256(sent.body).hexdigest()
    async with world.store.reading() as connection:
        await connection.execute(text("UPDATE operations SET view_length = view_length - 1"))
    tampered = await world.http.get(f"/operations/{call['operation_id']}/request")
    assert (tampered.status_code, tampered.json()["code"]) == (500, "PAYLOAD_CORRUPT")


async def test_manifests_say_what_was_sent_and_hold_no_content(world: RunWorld) -> None:
    """SPEC A8: sizes, limit, method, and each item by id; the words are elsewhere."""
    await world.publish(tools=["echo"])
    world.model.add(replies.calls(("echo", {"text": "MARK-result"})), "MARK-answer")
    run = await world.ask("MARK-question")
    manifests = await world.manifests(run["run_id"])
    assert [manifest["validation"] for manifest in manifests] == ["passed", "passed"]
    assert (
        manifests[0]["estimated_input_tokens"] < manifests[1]["estimated_input_tokens"] <= manifests[1]["input_limit"]
    )
    assert len(manifests[1]["items"]) == len(world.sent[1])
    assert "MARK" not in json.dumps(manifests)


async def test_nothing_a_request_needs_lives_in_a_worker(servers: Servers) -> None:
    """SPEC A4, A9: another worker goes on where the first one left off."""
    async with ModelServer(strict="plain") as model, running_world(servers, model) as world:
        await world.publish(tools=["add"])
        model.add(replies.calls(("add", {"a": 1, "b": 1})), "two", "again two")
        session = await world.open_session()
        async with world.worker():
            await world.ask("1+1", session)
        async with world.worker():
            run = await world.ask("sure?", session)
        assert (run["status"], model.refusals) == ("succeeded", [])

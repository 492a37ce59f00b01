"""Batches of tool calls, as the model sees them (SPEC T2, T3, A4; cases of kind tool-pairing)."""

import asyncio
import base64
import json
import re
from pathlib import Path

from tests.support import replies
from tests.support.run_tools import draw, traced
from tests.support.run_world import Json, RunWorld, python_tool
from tests.support.tool_server import Answer, tool_server


def results(messages: list[Json]) -> list[str]:
    """Contents of the tool messages, in order."""
    return [str(message["content"]) for message in messages if message["role"] == "tool"]


def call_ids(messages: list[Json]) -> list[str]:
    return [call["id"] for message in messages for call in message.get("tool_calls", [])]


async def test_a_small_request_is_sent_whole(world: RunWorld) -> None:
    """Case C002, SPEC A1: far below the limit nothing is trimmed, and nothing pretends to have been."""
    await world.publish(tools=["echo"])
    world.model.add(replies.calls(("echo", {"text": "hi"})), "done")
    run = await world.ask()
    assert [message["role"] for message in world.sent[1]] == ["system", "user", "assistant", "tool"]
    assert [manifest["transforms"] for manifest in await world.manifests(run["run_id"])] == [[], []]
    assert "compaction_started" not in [event["type"] for event in await world.events(run["run_id"])]


async def test_two_calls_with_one_id_both_run_and_get_ids_of_their_own(world: RunWorld) -> None:
    """Case C004, SPEC A4: the provider repeats an id in one answer, and again in the next."""
    await world.publish(tools=["add"])
    twice = replies.calls(("add", {"a": 1, "b": 1}, "x"), ("add", {"a": 2, "b": 1}, "x"))
    world.model.add(twice, replies.calls(("add", {"a": 3, "b": 1}, "x")), "done")
    run = await world.ask()
    assert run["status"] == "succeeded"
    assert results(world.sent[2]) == ["2", "3", "4"]
    assert len(set(call_ids(world.sent[2]))) == 3


async def test_one_call_that_raises_costs_the_others_nothing(world: RunWorld) -> None:
    """Case C009, SPEC T3, T9: an exception without words has a result of its own."""
    await world.publish(tools=["echo", "fail", "pause"])
    asked = [("echo", {"text": "A"}, "p1"), ("fail", {}, "p2"), ("pause", {"seconds": 0.1, "text": "C"}, "p3")]
    world.model.add(replies.calls(*asked), "done")
    run = await world.ask()
    assert (run["status"], call_ids(world.sent[1])) == ("succeeded", ["p1", "p2", "p3"])
    first, second, third = results(world.sent[1])
    assert (first, third) == ("A", "C")
    assert "ValueError" in second
    states = [one["state"] for one in await world.operations(run["run_id"]) if one["purpose"] == "tool"]
    assert len(states) == 3


async def test_at_most_the_allowed_number_of_tools_run_at_once(world: RunWorld, tmp_path: Path) -> None:
    """SPEC T2: with one place, three calls come one after the other, in their order."""
    await world.publish(tools=[python_tool("pay", "idempotent")], limits={"max_parallel_tools": 1})
    trace = tmp_path / "trace"
    world.model.add(replies.calls(*[("pay", {"key": f"k{n}", "trace": str(trace)}) for n in range(3)]), "done")
    await world.ask()
    assert [line.split()[0] for line in traced(trace)] == ["k0", "k1", "k2"]


async def test_the_loop_limit_inside_a_batch_ends_the_run_and_not_the_session(world: RunWorld) -> None:
    """Case C010, SPEC S2, A4: no answer is invented, and the call that was not made is said to be so."""
    await world.publish(tools=["add"], limits={"max_loops": 2})
    asks = [replies.calls(("add", {"a": n, "b": 0}, f"k{n}")) for n in (1, 2)]
    world.model.add(*asks, "hello again")
    session = await world.open_session()
    first = await world.ask("count", session)
    assert (first["status"], first["end_reason"], first["answer"]) == ("exhausted", "loops", None)
    assert first["error"]["code"] == "LOOPS_EXHAUSTED"
    assert len(world.model.requests) == 2
    second = await world.ask("and now?", session)
    assert (second["status"], call_ids(world.sent[2])) == ("succeeded", ["k1", "k2"])
    assert results(world.sent[2])[0] == "1"
    assert results(world.sent[2])[1] == "Not executed: the run reached a limit before this call was made."


async def test_a_stop_inside_a_batch_leaves_a_session_that_works(world: RunWorld, tmp_path: Path) -> None:
    """Case C006, SPEC S8, A4: the result that came, a placeholder for the other, and no second execution."""
    trace = tmp_path / "trace"
    await world.publish(tools=["echo", python_tool("wait_for", "side_effect")])
    waits = ("wait_for", {"path": str(tmp_path / "never"), "trace": str(trace)}, "c2")
    world.model.add(replies.calls(("echo", {"text": "real"}, "c1"), waits), "fine")
    session = await world.open_session()
    run_id = await world.start("go", session)
    await settled(world, run_id, "echo")
    async with asyncio.timeout(20):
        while not traced(trace):
            await asyncio.sleep(0.01)
    await world.stop(run_id)
    stopped = await world.ended(run_id)
    assert (stopped["status"], stopped["end_reason"], stopped["answer"]) == ("stopped", "user_stop", None)
    second = await world.ask("what now?", session)
    assert second["status"] == "succeeded"
    assert results(world.sent[1])[0] == "real"
    assert results(world.sent[1])[1].startswith(("Unknown", "Stopped", "Not executed"))
    states = {one["name"]: one["state"] for one in await world.operations(run_id) if one["purpose"] == "tool"}
    assert states["wait_for"] in ("unknown", "cancelled")
    assert traced(trace) == ["waiting"]


async def test_of_calls_that_could_do_harm_the_one_that_had_not_begun_is_told_apart(
    world: RunWorld, tmp_path: Path
) -> None:
    """SPEC A4, T4, S8: what a stop cut off may have had its effect, what waited for its place has not."""
    trace = tmp_path / "trace"
    await world.publish(tools=[python_tool("wait_for", "side_effect")], limits={"max_parallel_tools": 1})
    waits = ("wait_for", {"path": str(tmp_path / "never"), "trace": str(trace)})
    world.model.add(replies.calls(waits, waits), "fine")
    session = await world.open_session()
    run_id = await world.start("go", session)
    async with asyncio.timeout(20):
        while not traced(trace):
            await asyncio.sleep(0.01)
    await world.stop(run_id)
    await world.ended(run_id)
    assert (await world.ask("what now?", session))["status"] == "succeeded"
    begun, waiting = results(world.sent[1])
    assert begun.startswith("Unknown: ")
    assert waiting == "Not executed: the run was stopped before this call was made."
    states = [one["state"] for one in await world.operations(run_id) if one["purpose"] == "tool"]
    assert (states, traced(trace)) == (["unknown", "cancelled"], ["waiting"])


async def settled(world: RunWorld, run_id: str, tool: str) -> None:
    """Wait until the call of this tool has its result."""
    async with asyncio.timeout(20):
        while not any(one["name"] == tool and one["state"] == "accepted" for one in await world.operations(run_id)):
            await asyncio.sleep(0.01)


async def test_a_tool_nobody_published_is_an_error_result(world: RunWorld) -> None:
    """SPEC T3: the other call goes on, nothing is guessed."""
    await world.publish(tools=["echo"])
    world.model.add(replies.calls(("ech", {"text": "no"}), ("echo", {"text": "yes"})), "done")
    run = await world.ask()
    assert run["status"] == "succeeded"
    assert "ech" in results(world.sent[1])[0]
    assert results(world.sent[1])[1] == "yes"


async def test_a_huge_result_is_stored_whole_shown_in_part_and_read_on_by_page(world: RunWorld) -> None:
    """SPEC T5: head and tail with the ranges and a reference; reading on is a new call with a result of its own."""
    await world.publish(tools=["repeat"], model={"context_window": 200_000})
    world.model.add(replies.calls(("repeat", {"text": "0123456789", "times": 10_000})))
    world.model.add(
        lambda request: replies.calls(("result_read", {"result_ref": result_ref(request.json["messages"])}))
    )
    world.model.add("done")
    run = await world.ask()
    assert run["status"] == "succeeded"
    shown = results(world.sent[1])[0]
    assert len(shown) < 6_000
    assert "truncated" in shown
    assert "0123456789" in results(world.sent[2])[1]
    [big, read] = [one for one in await world.operations(run["run_id"]) if one["purpose"] == "tool"]
    assert (big["name"], read["name"], read["state"]) == ("repeat", "result_read", "accepted")
    raw = await world.get(f"/operations/{big['operation_id']}/result", view="raw")
    assert "0123456789" * 10_000 in str(raw)


async def test_binary_content_is_read_by_its_reference(world: RunWorld) -> None:
    """SPEC T7, T5: the model has the reference, and whoever asked the question the picture, byte for byte."""
    await world.publish(tools=["draw"])
    world.model.add(replies.calls(("draw", {"dots": 3})), "done")
    run = await world.ask()
    shown = json.loads(results(world.sent[1])[0])
    picture = draw(3)["pictures"]
    for number, (note, body) in enumerate(zip(shown["pictures"], picture, strict=True), 1):
        assert (note["bytes"], note["artifact_ref"].endswith(f"/{number}")) == (len(body), True)
        operation_id = note["artifact_ref"].removeprefix("artifact:").split("/")[0]
        kept = await world.get(f"/operations/{operation_id}/result", artifact=number)
        assert (kept["encoding"], base64.b64decode(kept["result"])) == ("base64", body)
    assert kept["media_type"] == "application/octet-stream"
    missing = await world.http.get(f"/operations/{operation_id}/result", params={"artifact": 3})
    assert (missing.status_code, missing.json()["code"]) == (404, "NOT_FOUND")
    assert run["status"] == "succeeded"


async def test_reading_on_ends_no_run_whose_window_is_small(world: RunWorld) -> None:
    """SPEC T5, B1: Chinese text takes three times its characters, and what has just come is never left out."""
    await world.publish(tools=["repeat"], model={"context_window": 40_000})
    world.model.add(replies.calls(("repeat", {"text": "重跑悬空引用清零校验", "times": 10_000})))
    world.model.add(
        lambda request: replies.calls(("result_read", {"result_ref": result_ref(request.json["messages"])}))
    )
    world.model.add("done")
    run = await world.ask()
    assert (run["status"], run["answer"]) == ("succeeded", "done")
    page = json.loads(results(world.sent[-1])[-1].split("\n", 1)[0])
    assert page["total_chars"] == 100_000
    assert page["next_offset"] == page["range"][1] > 1_000


async def test_a_result_nested_too_deeply_for_an_answer_is_read_as_text(world: RunWorld) -> None:
    """SPEC T5, E: what a tool's server sends is its result, and reading it raw works whatever its shape."""
    body = b"[" * 600 + b"]" * 600
    async with tool_server(Answer(body=body)) as server:
        await world.publish(tools=[{"kind": "http", "name": "deep", "url": server.url, "effect": "read_only"}])
        world.model.add(replies.calls(("deep", {})), "done")
        run = await world.ask()
    assert results(world.sent[1]) == [body.decode()]
    [tool] = [one for one in await world.operations(run["run_id"]) if one["purpose"] == "tool"]
    raw = await world.get(f"/operations/{tool['operation_id']}/result", view="raw")
    assert (raw["encoding"], raw["result"]) == ("text", body.decode())


def result_ref(messages: list[Json]) -> str:
    """The reference in the last preview."""
    found = re.search(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}", results(messages)[-1])
    assert found
    return found.group()

"""Why a try at a tool call failed is kept as a code and shown, and nothing of what was said is (SPEC T4, Y6)."""

import json

import pytest

from activities import tool_calls
from tests.support import replies
from tests.support.run_world import Json, RunWorld, python_tool
from tests.support.tool_server import Answer, Received, tool_server


async def attempts(world: RunWorld, run: Json) -> list[Json]:
    """The tries at the Run's one tool call."""
    [tool] = [one for one in await world.operations(run["run_id"]) if one["purpose"] == "tool"]
    found: list[Json] = tool["attempts"]
    return found


def failure(reason: str, status: int = 0) -> Json:
    return {"code": "TOOL_UNAVAILABLE", "reason": reason, "status": status}


async def test_a_try_that_is_repeated_says_why_it_failed(world: RunWorld) -> None:
    """SPEC T4: the reason and the HTTP status of each try, and none of the server's words."""
    answers = [
        Answer(status=503, body=b"MARK-down"),
        Answer(status=429, headers={"Retry-After": "0"}),
        Answer(body=b"21"),
    ]

    async def serve(request: Received) -> Answer:
        return answers.pop(0)

    async with tool_server(serve) as server:
        await world.publish(tools=[{"kind": "http", "name": "weather", "url": server.url, "effect": "read_only"}])
        world.model.add(replies.calls(("weather", {})), "done")
        run = await world.ask()
    first, second, third = await attempts(world, run)
    assert (first["state"], first["error"]) == ("failed", failure("server_error", 503))
    assert (second["state"], second["error"]) == ("failed", failure("busy", 429))
    assert (third["state"], third["error"]) == ("succeeded", None)


async def test_an_unknown_outcome_says_why_it_is_unknown(world: RunWorld) -> None:
    """SPEC T4: of a call whose connection was lost, and of one over its time limit."""

    async def hang_up(request: Received) -> None:
        return None

    async with tool_server(hang_up) as server:
        await world.publish(tools=[{"kind": "http", "name": "pay", "url": server.url}])
        world.model.add(replies.calls(("pay", {})), "done")
        [lost] = await attempts(world, await world.ask())
    assert (lost["state"], lost["error"]) == ("failed", failure("connection_lost"))
    await world.publish("slow", tools=[python_tool("pause", "side_effect", timeout_s=0.2)])
    world.model.add(replies.calls(("pause", {"seconds": 9.0, "text": "MARK"})), "done")
    [late] = await attempts(world, await world.ask("go", await world.open_session("slow")))
    assert (late["state"], late["error"]) == ("failed", failure("timeout"))


@pytest.mark.parametrize("effect", ["side_effect", "idempotent"])
async def test_what_a_server_said_that_leaves_a_call_open_is_told_and_kept(
    world: RunWorld, effect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC T4, T5, T9: the state is as the status has it, the words are what happened, the body is kept whole."""
    monkeypatch.setattr(tool_calls, "MOST_TRIES", 2)
    body = b"down for MARK " + b"w" * 30_000
    busy = Answer(status=503, body=body, headers={"Content-Type": "text/plain", "Retry-After": "0"})
    async with tool_server(busy) as server:
        await world.publish(tools=[{"kind": "http", "name": "pay", "url": server.url, "effect": effect}])
        world.model.add(replies.calls(("pay", {})), "done")
        run = await world.ask()
    [tool] = [one for one in await world.operations(run["run_id"]) if one["purpose"] == "tool"]
    assert tool["state"] == ("unknown" if effect == "side_effect" else "failed")
    assert tool["attempts"][-1]["error"] == failure("server_error", 503)
    told = str(world.model.requests[-1].json["messages"][-1]["content"])
    assert "503" in told
    assert "down for MARK" in told
    assert '"truncated": true' in told
    assert "lost" not in told
    assert "reached" not in told
    assert told.startswith("Unknown") is (effect == "side_effect")
    raw = await world.get(f"/operations/{tool['operation_id']}/result", view="raw")
    assert body.decode() in str(raw)


async def test_a_harmless_call_beside_the_workflow_says_why_it_failed_too(world: RunWorld) -> None:
    """SPEC T4: its one try is written down with its result."""
    await world.publish(tools=[python_tool("pause", timeout_s=0.2)])
    world.model.add(replies.calls(("pause", {"seconds": 9.0, "text": "MARK"})), "done")
    run = await world.ask()
    [late] = await attempts(world, run)
    assert (run["status"], late["state"], late["error"]) == ("succeeded", "failed", failure("timeout"))


@pytest.mark.parametrize(("wish", "deadline_s"), [("15", 10), ("86400", 3_600)])
async def test_a_wish_to_wait_that_nobody_can_keep_is_told_at_once(world: RunWorld, wish: str, deadline_s: int) -> None:
    """SPEC T9, L2; case 037 for tools: a pause beyond the Run's time, or for hours, is the model's to know."""
    busy = Answer(status=429, body=b"come back later", headers={"Content-Type": "text/plain", "Retry-After": wish})
    async with tool_server(busy) as server:
        entry = {"kind": "http", "name": "weather", "url": server.url, "effect": "read_only"}
        await world.publish(tools=[entry], limits={"deadline_s": deadline_s})
        world.model.add(replies.calls(("weather", {})), "done")
        run = await world.ended(await world.start(), within_s=8)
    assert (run["status"], len(server.requests)) == ("succeeded", 1)
    told = json.loads(world.model.requests[-1].json["messages"][-1]["content"])["error"]
    assert (told["status"], told["message"], told["retry_after_s"]) == (429, "come back later", int(wish))

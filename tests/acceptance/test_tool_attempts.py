"""Why a try at a tool call failed is kept as a code and shown, and nothing of what was said is (SPEC T4, Y6)."""

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


async def test_a_harmless_call_beside_the_workflow_says_why_it_failed_too(world: RunWorld) -> None:
    """SPEC T4: its one try is written down with its result."""
    await world.publish(tools=[python_tool("pause", timeout_s=0.2)])
    world.model.add(replies.calls(("pause", {"seconds": 9.0, "text": "MARK"})), "done")
    run = await world.ask()
    [late] = await attempts(world, run)
    assert (run["status"], late["state"], late["error"]) == ("succeeded", "failed", failure("timeout"))

"""Tries of one call that overlap, as they do where a worker is too busy to show signs of life (SPEC W5, R2, R5)."""

import hashlib
from pathlib import Path
from uuid import UUID

import pytest

from context.steps import BeginAttempt
from storage.commits.begin_attempt import begin_attempt
from tests.support import replies
from tests.support.faults import Pauses
from tests.support.model_server import ModelServer
from tests.support.run_tools import traced
from tests.support.run_world import RunWorld, Servers, python_tool, running_world


async def overtake(world: RunWorld, purpose: str) -> None:
    """What a try does that was given up by the server and wakes up late: it begins, and is never heard of again."""
    [session] = await world.items("/sessions")
    [run] = await world.items(f"/sessions/{session['session_id']}/runs")
    [call] = [one for one in await world.operations(run["run_id"]) if one["purpose"] == purpose]
    digest = hashlib.sha256(world.model.requests[0].body).digest() if purpose == "business" else None
    await begin_attempt(world.store, BeginAttempt(UUID(call["operation_id"]), 1, digest))


@pytest.mark.parametrize(("point", "purpose"), [("call_model.answered", "business"), ("call_tool.answered", "tool")])
async def test_a_try_that_is_overtaken_fails_no_run(servers: Servers, tmp_path: Path, point: str, purpose: str) -> None:
    """SPEC R5: its result does not count; the call is tried again, and the Run ends with its answer."""
    trace = tmp_path / "trace"
    async with ModelServer(strict="plain") as model, running_world(servers, model) as world:
        await world.publish(tools=[python_tool("pay", "idempotent")])
        if purpose == "tool":
            model.add(replies.calls(("pay", {"key": "a", "trace": str(trace)})))
        model.add(*["answer"] * 2)
        async with world.worker(Pauses(point, lambda: overtake(world, purpose))):
            run = await world.ask()
    assert (run["status"], run["answer"]) == ("succeeded", "answer")
    assert len({line.split()[1] for line in traced(trace)}) <= 1, "an idempotent tool gets the same key"
    assert len({request.body for request in model.requests}) == (2 if purpose == "tool" else 1)

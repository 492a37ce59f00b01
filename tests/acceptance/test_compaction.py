"""Compaction over real servers: the older part becomes a summary, and what must stand stays verbatim (SPEC K, A2, A4).

The model's window is small. Its summaries are scripted by what their requests hold, so that a repeat says the same.
"""

import hashlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.support import replies
from tests.support.model_server import RecordedRequest
from tests.support.run_world import RunWorld, Servers, working_world

Json = dict[str, Any]

SMALL: Json = {"model": {"context_window": 8_000, "max_output_tokens": 1_000}}
"""B is 8000 - 1000 - 256 = 6744 tokens of one byte each, the trigger is 5395."""


@pytest.fixture
async def world(servers: Servers) -> AsyncIterator[RunWorld]:
    async with working_world(servers) as built:
        yield built


def is_summary(request: RecordedRequest) -> bool:
    """Whether this is a call of the summariser."""
    return b"You write the summary" in request.body


def steps(long: int, turns: int) -> list[Callable[[RecordedRequest], replies.Reply]]:
    """A model that calls `repeat` with `long` characters of output until it has had `turns` results, then answers."""

    def answer(request: RecordedRequest) -> replies.Reply:
        if is_summary(request):
            return replies.text("SUMMARY: goals kept.")
        done = request.body.count(b'"role":"tool"') + request.body.count(b"SUMMARY: goals kept.") * 100
        made.append(done)
        if len(made) > turns:
            return replies.text("all done")
        return replies.calls(("repeat", {"text": "z", "times": long}))

    made: list[int] = []
    return [answer] * (turns * 3 + 10)


async def test_a_run_that_outgrows_its_window_is_compacted_and_goes_on(world: RunWorld) -> None:
    """SPEC K1, K9, A2, A3, A4: the question stays verbatim, the summary is data, no pair is broken."""
    await world.publish(tools=["repeat"], **SMALL)
    world.model.add(*steps(1_200, 8))
    run = await world.ask("The question that must stay.")
    assert (run["status"], run["answer"]) == ("succeeded", "all done")
    summaries = [request for request in world.model.requests if is_summary(request)]
    business = [request.json["messages"] for request in world.model.requests if not is_summary(request)]
    assert summaries
    assert world.model.refusals == []
    assert all({"role": "user", "content": "The question that must stay."} in sent for sent in business)
    with_summary = [sent for sent in business if "SUMMARY: goals kept." in json.dumps(sent)]
    assert with_summary
    assert all(
        message["role"] == "user" for sent in with_summary for message in sent if "SUMMARY" in str(message["content"])
    )
    assert all(not request.json.get("tools") for request in summaries)
    events = [event["type"] for event in await world.events(run["run_id"])]
    assert (
        events.count("compaction_started")
        == events.count("compaction_finished")
        == len(
            {event["episode_id"] for event in map(flat, await world.events(run["run_id"])) if event.get("episode_id")}
        )
    )


def flat(event: Json) -> Json:
    """The event with its body beside its type."""
    return event | event.get("body", {})


async def test_every_request_of_a_compacted_run_is_rebuilt_byte_for_byte(world: RunWorld) -> None:
    """SPEC A8, A9: business and compaction requests alike, each within its limit, each with its manifest."""
    await world.publish(tools=["repeat"], **SMALL)
    world.model.add(*steps(1_200, 8))
    run = await world.ask()
    sent = {hashlib.sha256(request.body).hexdigest() for request in world.model.requests}
    manifests = await world.manifests(run["run_id"])
    assert len(manifests) == len(world.model.requests)
    assert {one["purpose"] for one in manifests} == {"business", "compaction"}
    assert all(one["estimated_input_tokens"] <= one["input_limit"] for one in manifests)
    for one in manifests:
        rebuilt = await world.get(f"/operations/{one['operation_id']}/request")
        assert rebuilt["sha256"] in sent

"""Another model writes the summaries: its own server, window, limits, estimator, key and price (SPEC K1, K3, L5)."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.compactions import SMALL, SUMMARY, is_summary, repeated, scripted
from tests.support.model_server import ModelServer
from tests.support.run_world import RunWorld, Servers, working_world
from tests.support.sent_bytes import input_bytes

Json = dict[str, Any]


@pytest.fixture
async def world(servers: Servers) -> AsyncIterator[RunWorld]:
    async with working_world(servers) as built:
        yield built


@pytest.fixture
async def writer() -> AsyncIterator[ModelServer]:
    """The server of the model that summarises."""
    async with ModelServer([scripted([], [SUMMARY])] * 20, strict="plain") as server:
        yield server


def summary_model(writer: ModelServer, **changes: Any) -> Json:
    """The definition of the model that summarises."""
    model = {"provider": "openai_compatible", "model": "writer", "context_window": 4_000, "max_output_tokens": 500}
    return model | {"base_url": writer.base_url} | changes


async def test_summaries_are_written_by_the_model_that_the_release_names(world: RunWorld, writer: ModelServer) -> None:
    """SPEC K1, K3, L5: its server, name, key, window, output limit and price; the role's model answers."""
    stored = {"provider": "openai_compatible", "base_url": writer.base_url, "api_key": "key-two"}
    (await world.http.put("/connections/of-the-writer", json=stored)).raise_for_status()
    price = {"price": {"input": "1000000", "output": "0"}}
    named = summary_model(writer, connection="of-the-writer", parameters={"temperature": 0}, **price)
    await world.publish(tools=["repeat"], **SMALL, context={"summary_model": named})
    world.model.add(*[scripted([repeated(1_200)] * 6 + ["all done"])] * 20)
    run = await world.ask()
    assert (run["status"], run["answer"]) == ("succeeded", "all done")
    assert not any(is_summary(request) for request in world.model.requests)
    assert writer.requests
    assert writer.refusals == []
    asked = [request.json for request in writer.requests]
    assert {one["model"] for one in asked} == {"writer"}
    assert {one["temperature"] for one in asked} == {0}
    assert all(one["max_tokens"] <= 500 and not one.get("tools") for one in asked)
    assert {request.headers["authorization"] for request in writer.requests} == {"Bearer key-two"}
    assert all("authorization" not in request.headers for request in world.model.requests)
    manifests = [one for one in await world.manifests(run["run_id"]) if one["purpose"] == "compaction"]
    assert {(one["model"], one["input_limit"]) for one in manifests} == {("writer", 4_000 - 500 - 256)}
    assert all(one["estimated_input_tokens"] <= one["input_limit"] for one in manifests)
    found = await world.items(f"/runs/{run['run_id']}/compactions")
    assert {float(one["cost"]) for one in found if one["blocks"]} == {50.0 * one["blocks"] for one in found}
    assert (await world.get(f"/sessions/{run['session_id']}/verify"))["breaks"] == []


async def test_the_blocks_are_as_large_as_the_window_of_the_model_that_summarises(
    world: RunWorld, writer: ModelServer
) -> None:
    """SPEC K3, K5: what the role's own model would take in one call is several here, each within the smaller B."""
    context = {"summary_model": summary_model(writer, context_window=3_000, max_output_tokens=200)}
    await world.publish(tools=["repeat"], **SMALL, context=context)
    world.model.add(*[scripted([repeated(1_200)] * 5 + ["all done"])] * 20)
    run = await world.ask()
    assert run["status"] == "succeeded"
    first = (await world.items(f"/runs/{run['run_id']}/compactions"))[0]
    assert first["blocks"] == first["calls"] > 1
    assert first["target"] <= 200


async def test_the_offline_model_can_summarise_for_another_one(world: RunWorld) -> None:
    """SPEC K1, 18: the demo model listens in the worker, where other models may not be."""
    demo = {"provider": "demo", "model": "demo", "context_window": 8_000}
    await world.publish(tools=["repeat"], **SMALL, context={"summary_model": demo})
    world.model.add(*[scripted([repeated(1_200)] * 5 + ["all done"])] * 20)
    run = await world.ask()
    assert (run["status"], run["answer"]) == ("succeeded", "all done")
    found = await world.items(f"/runs/{run['run_id']}/compactions")
    assert {one["outcome"] for one in found} == {"activated"}
    assert not any(is_summary(request) for request in world.model.requests)
    assert (await world.get(f"/sessions/{run['session_id']}/verify"))["breaks"] == []


async def test_a_summarising_model_that_refuses_fails_the_compaction_and_is_asked_once(world: RunWorld) -> None:
    """SPEC K8, L2: its refusal is told as the compaction's."""
    async with ModelServer() as refusing:  # without a script it answers 400
        await world.publish(tools=["repeat"], **SMALL, context={"summary_model": summary_model(refusing)})
        world.model.add(*[scripted([repeated(1_200)])] * 20)
        run = await world.ask()
        assert (run["status"], run["end_reason"]) == ("failed", "compaction_failed")
        assert run["error"]["code"] == "COMPACTION_FAILED"
        assert len(refusing.requests) == 1


async def test_a_window_without_room_for_a_block_is_refused_when_it_is_published(
    world: RunWorld, writer: ModelServer
) -> None:
    """SPEC K3, E: with the numbers, instead of in the middle of a Run."""
    named = summary_model(writer, context_window=2_400, max_output_tokens=600)
    with pytest.raises(AssertionError, match=r"CONFIGURATION_INVALID.*context\.summary_model") as refused:
        await world.publish(tools=["repeat"], **SMALL, context={"summary_model": named})
    assert '"input_limit":1544,"summary_tokens":600' in str(refused.value)


async def test_a_window_with_room_for_one_small_block_beside_the_summary_compacts(world: RunWorld) -> None:
    """SPEC K3, K5: what is kept free for a longer summary than was asked for gives way; every call is within B."""
    long = "A summary of more tokens than T: " + "words " * 150
    async with ModelServer([scripted([], [long])] * 90, strict="plain") as writer:
        context = {"summary_model": summary_model(writer, context_window=2_700, max_output_tokens=500)}
        await world.publish(tools=["repeat"], **SMALL, context=context)
        world.model.add(*[scripted([repeated(1_200)] * 5 + ["all done"])] * 20)
        run = await world.ask()
        assert (run["status"], run["answer"]) == ("succeeded", "all done")
        sent = [input_bytes(request.body) for request in writer.requests]
        assert 0 < max(sent) <= 2_700 - 500 - 256
        assert writer.refusals == []

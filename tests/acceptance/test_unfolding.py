"""A summary is taken back as a whole when anything it stands for changes (SPEC K9, K10).

A resume brings results to calls that later Runs have summarised. Nothing changes records by itself yet: such changes
are made here by the commit that every one will go through.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from context.messages import ChatMessage, message_bytes
from context.mutations import Mutated, MutateRecords, Mutation
from context.steps import Content
from storage.commits.mutate_records import mutate_records
from tests.support import replies
from tests.support.compactions import SMALL, SUMMARY, business_of, is_summary, scripted
from tests.support.replies import Reply
from tests.support.run_world import Json, RunWorld, Servers, python_tool, working_world

EARLY: Json = {"context": {"model_steps": 3, "keep_recent_tokens": 0}}
"""Compacted after three answers, far below the budget, so that what comes after is not compacted again."""


@pytest.fixture
async def world(servers: Servers) -> AsyncIterator[RunWorld]:
    async with working_world(servers) as built:
        yield built


def letters(letter: str) -> Reply:
    """A call whose result is a row of this letter."""
    return replies.calls(("repeat", {"text": letter, "times": 300}))


async def change(world: RunWorld, run_id: str, shown: str, content: str) -> Mutated:
    """Change the result that begins like this."""
    (instance,) = (await world.get(f"/runs/{run_id}/instances"))["items"]
    view = await world.get(f"/contexts/{instance['context_id']}/view")
    (record,) = [
        one for one in view["items"] if one["kind"] == "tool_result" and one["message"]["content"].startswith(shown)
    ]
    message = ChatMessage(role="tool", content=content, tool_call_id=record["message"]["tool_call_id"])
    mutation = Mutation(uuid4(), UUID(record["record_id"]), "test", Content(message_bytes(message)))
    context_id = UUID(instance["context_id"])
    request = MutateRecords(context_id, view["revision"], "test", "none", (mutation,))
    return await mutate_records(world.store, request)


async def test_a_changed_record_brings_the_originals_back(world: RunWorld) -> None:
    """SPEC K10, A7, A8, A9: whole, in order, the changed one in its newest version; and the manifest says so."""
    await world.publish(tools=["repeat"], **SMALL, **EARLY)
    held = letters("d").but(hold="fourth")
    world.model.add(*[scripted([letters("a"), letters("b"), letters("c"), held, "done"])] * 9)
    session = await world.open_session()
    run_id = await world.start("The question that must stay.", session)
    await world.model.wait_for_requests(5)
    mutated = await change(world, run_id, "aaa", "NEWEST")
    world.model.release("fourth")
    run = await world.ended(run_id)
    assert (run["status"], run["answer"]) == ("succeeded", "done")
    assert world.model.refusals == []
    compacted, last = business_of(world.model.requests)[-2:]
    assert SUMMARY in json.dumps(compacted)
    assert SUMMARY not in json.dumps(last)
    results = [message["content"][:6] for message in last if message["role"] == "tool"]
    assert results == ["NEWEST", "bbbbbb", "cccccc", "dddddd"]
    assert {"role": "user", "content": "The question that must stay."} in last
    (episode,) = await world.items(f"/runs/{run_id}/compactions")
    assert episode["outdated_at"] is not None
    assert [str(one) for one in mutated.outdated] == [episode["snapshot_id"]]
    notes = [one["notes"] for one in await world.manifests(run_id) if one["purpose"] == "business"]
    assert notes[-1] == ["prefix_broken:unfolding"]
    assert all("prefix_broken:unfolding" not in one for one in notes[:-1])
    assert (await world.get(f"/sessions/{session}/verify"))["breaks"] == []


async def test_a_change_of_what_no_summary_stands_for_leaves_the_summary(world: RunWorld) -> None:
    """SPEC K9, K10: it is shown in its newest version behind the summary."""
    await world.publish(tools=["repeat"], **SMALL, **EARLY)
    held = letters("d").but(hold="fourth")
    world.model.add(*[scripted([letters("a"), letters("b"), letters("c"), held, "done"])] * 9)
    session = await world.open_session()
    run_id = await world.start(session=session)
    await world.model.wait_for_requests(5)
    mutated = await change(world, run_id, "ccc", "NEWEST")
    world.model.release("fourth")
    await world.ended(run_id)
    assert mutated.outdated == ()
    last = business_of(world.model.requests)[-1]
    assert SUMMARY in json.dumps(last)
    assert [message["content"][:6] for message in last if message["role"] == "tool"] == ["NEWEST", "dddddd"]
    (episode,) = await world.items(f"/runs/{run_id}/compactions")
    assert episode["outdated_at"] is None
    assert (await world.manifests(run_id))[-1]["notes"] == ["prefix_broken:mutation"]
    assert (await world.get(f"/sessions/{session}/verify"))["breaks"] == []


async def test_a_source_that_changes_during_its_compaction_is_not_covered_by_the_summary(world: RunWorld) -> None:
    """SPEC K9: stored and not activated; the request that waited has the originals, and no second compaction."""
    await world.publish(tools=["repeat"], **SMALL, **EARLY)
    summary = replies.text(SUMMARY).but(hold="summary")
    script = scripted([letters("a"), letters("b"), letters("c"), "done"], [summary])
    world.model.add(*[script] * 9)
    session = await world.open_session()
    run_id = await world.start(session=session)
    await world.model.wait_for_requests(4)
    await change(world, run_id, "aaa", "NEWEST")
    world.model.release("summary")
    run = await world.ended(run_id)
    assert (run["status"], run["answer"]) == ("succeeded", "done")
    (episode,) = await world.items(f"/runs/{run_id}/compactions")
    assert (episode["status"], episode["outcome"]) == ("succeeded", "sources_changed")
    last = business_of(world.model.requests)[-1]
    assert [message["content"][:6] for message in last if message["role"] == "tool"] == ["NEWEST", "bbbbbb", "cccccc"]
    assert (await world.get(f"/sessions/{session}/verify"))["breaks"] == []


async def test_what_changes_beside_the_sources_during_a_compaction_stands_behind_the_summary(world: RunWorld) -> None:
    """SPEC K9: untouched sources are activated, later mutations added behind."""
    await world.publish(tools=["repeat"], **SMALL, **EARLY)
    summary = replies.text(SUMMARY).but(hold="summary")
    script = scripted([letters("a"), letters("b"), letters("c"), "done"], [summary])
    world.model.add(*[script] * 9)
    session = await world.open_session()
    run_id = await world.start(session=session)
    await world.model.wait_for_requests(4)
    await change(world, run_id, "ccc", "NEWEST")
    world.model.release("summary")
    await world.ended(run_id)
    (episode,) = await world.items(f"/runs/{run_id}/compactions")
    assert episode["outcome"] == "activated"
    last = business_of(world.model.requests)[-1]
    assert SUMMARY in json.dumps(last)
    assert [message["content"] for message in last if message["role"] == "tool"] == ["NEWEST"]
    assert (await world.get(f"/sessions/{session}/verify"))["breaks"] == []


@pytest.mark.parametrize(("shown", "back_to"), [("aaa", None), ("ccc", "ONE")])
async def test_only_the_summaries_that_stand_for_it_are_taken_back(
    world: RunWorld, shown: str, back_to: str | None
) -> None:
    """SPEC K10: a summary with what was folded into it; one that a changed record does not reach stays."""
    await world.publish(tools=["repeat"], **SMALL, **EARLY)
    business: list[Reply | str] = [*map(letters, "abcdef"), letters("g").but(hold="seventh"), "done"]
    world.model.add(*[scripted(business, ["SUMMARY ONE", "SUMMARY TWO"])] * 12)
    session = await world.open_session()
    run_id = await world.start(session=session)
    await world.model.wait_for_requests(9)
    first, second = await world.items(f"/runs/{run_id}/compactions")
    mutated = await change(world, run_id, shown, "NEWEST")
    world.model.release("seventh")
    await world.ended(run_id)
    last = json.dumps(business_of(world.model.requests)[-1])
    assert "SUMMARY TWO" not in last
    assert ("SUMMARY ONE" in last) == (back_to is not None)
    assert "NEWEST" in last
    assert [letter in last for letter in ("bbb", "ddd", "eee", "fff", "ggg")] == [
        back_to is None,
        True,
        True,
        True,
        True,
    ]
    taken = {second["snapshot_id"]} | (set() if back_to else {first["snapshot_id"]})
    assert {str(one) for one in mutated.outdated} == taken
    assert (await world.get(f"/sessions/{session}/verify"))["breaks"] == []


async def test_a_summary_after_a_change_stands_for_the_newest_version(world: RunWorld) -> None:
    """SPEC K5, K10: the summariser is given the effective content, and the coverage holds."""
    await world.publish(tools=["repeat"], **SMALL, **EARLY)
    held = letters("d").but(hold="fourth")
    world.model.add(*[scripted([*map(letters, "abc"), held, *map(letters, "ef"), "done"])] * 12)
    session = await world.open_session()
    run_id = await world.start(session=session)
    await world.model.wait_for_requests(5)
    await change(world, run_id, "aaa", "NEWEST")
    world.model.release("fourth")
    run = await world.ended(run_id)
    assert run["status"] == "succeeded"
    second = [request.body.decode() for request in world.model.requests if is_summary(request)][1]
    assert "NEWEST" in second
    assert "a" * 20 not in second  # three could stand in an id
    episodes = await world.items(f"/runs/{run_id}/compactions")
    assert [one["outdated_at"] is None for one in episodes] == [False, True]
    assert episodes[1]["previous_snapshot_id"] is None
    assert (await world.get(f"/sessions/{session}/verify"))["breaks"] == []


async def test_a_later_run_sees_what_a_record_has_become(world: RunWorld) -> None:
    """SPEC P5: history is projected from the effective version; what was recorded is not smuggled back."""
    await world.publish(tools=["repeat"], **SMALL)
    world.model.add(letters("a"), "done", "done again")
    session = await world.open_session()
    run = await world.ask(session=session)
    await change(world, run["run_id"], "aaa", "NEWEST")
    await world.ask("And now?", session)
    results = [message["content"] for message in world.sent[-1] if message["role"] == "tool"]
    assert results == ["NEWEST"]
    assert (await world.get(f"/sessions/{session}/verify"))["breaks"] == []


async def test_a_result_that_a_resume_brings_takes_back_the_summaries_of_the_open_call(
    world: RunWorld, tmp_path: Path
) -> None:
    """SPEC K10, S11: what later Runs summarised as unknown is known now; no Run to come begins with that."""
    await world.publish(tools=[python_tool("wait_for", "idempotent")], **SMALL)
    session = await world.open_session()
    gate, trace = tmp_path / "gate", tmp_path / "trace"
    world.model.add(replies.calls(("wait_for", {"path": str(gate), "trace": str(trace)})))
    stopped = await world.start("A.", session)
    async with asyncio.timeout(20):
        while not trace.exists():
            await asyncio.sleep(0.01)
    await world.stop(stopped)
    await world.ended(stopped)
    world.model.add(*[scripted(["Noted."])] * 9)
    later = await world.ask("B. " + "word " * 900, session)
    later = await world.ask("C. " + "word " * 200, session)
    (covering,) = await world.items(f"/runs/{later['run_id']}/compactions")
    assert (covering["outcome"], covering["outdated_at"]) == ("activated", None)
    gate.touch()
    await world.resume(stopped)
    assert (await world.ended(stopped))["answer"] == "Noted."
    (covering,) = await world.items(f"/runs/{later['run_id']}/compactions")
    assert covering["outdated_at"] is not None
    assert (await world.get(f"/sessions/{session}/verify"))["breaks"] == []

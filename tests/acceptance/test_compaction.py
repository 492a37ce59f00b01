"""Compaction over real servers: the older part becomes a summary, and what must stand stays verbatim (SPEC K, A2, A4).

The model's window is small. Its summaries are scripted by what their requests hold, so that a repeat says the same.
"""

import hashlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.support import replies
from tests.support.compactions import SMALL, is_summary
from tests.support.model_server import RecordedRequest
from tests.support.run_world import RunWorld, Servers, working_world

Json = dict[str, Any]


@pytest.fixture
async def world(servers: Servers) -> AsyncIterator[RunWorld]:
    async with working_world(servers) as built:
        yield built


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
    return {**event, **event.get("body", {})}


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


TOO_LONG = replies.error(400, "This model's maximum context length is 4096 tokens.", code="context_length_exceeded")


async def test_a_request_the_provider_finds_too_long_is_compacted_once_and_sent_anew(world: RunWorld) -> None:
    """SPEC B7: the same loop and cutoff, no tool run again; it counts no loop."""
    await world.publish(tools=["repeat"], **SMALL, context={"on_overflow": "compact_once"})
    call = replies.calls(("repeat", {"text": "z", "times": 900}))
    world.model.add(call, call, TOO_LONG, "SUMMARY: goals kept.", "all done")
    run = await world.ask("The question that must stay.")
    assert (run["status"], run["answer"], run["loops"]) == ("succeeded", "all done", 3)
    assert [is_summary(request) for request in world.model.requests] == [False, False, False, True, False]
    assert "SUMMARY: goals kept." in json.dumps(world.sent[-1])
    assert len([one for one in await world.operations(run["run_id"]) if one["purpose"] == "tool"]) == 2


async def test_without_that_wish_the_providers_word_ends_the_run(world: RunWorld) -> None:
    """SPEC B7."""
    await world.publish(tools=["repeat"], **SMALL)
    world.model.add(TOO_LONG)
    run = await world.ask()
    assert (run["status"], run["end_reason"]) == ("failed", "context_too_large")
    assert run["error"]["code"] == "MODEL_CONTEXT_LENGTH_EXCEEDED"
    assert len(world.model.requests) == 1


async def test_nothing_to_compact_leaves_the_providers_word_standing(world: RunWorld) -> None:
    """SPEC B7, K3."""
    await world.publish(**SMALL, context={"on_overflow": "compact_once"})
    world.model.add(TOO_LONG)
    run = await world.ask()
    assert run["error"]["code"] == "MODEL_CONTEXT_LENGTH_EXCEEDED"
    assert len(world.model.requests) == 1


async def test_a_count_of_steps_can_be_the_trigger(world: RunWorld) -> None:
    """SPEC B2: far below the budget; the baseline moves with the success."""
    await world.publish(tools=["repeat"], **SMALL, context={"model_steps": 3, "keep_recent_tokens": 0})
    call = replies.calls(("repeat", {"text": "z", "times": 600}))
    script = lambda request: "SUMMARY: goals kept." if is_summary(request) else call if len(world.sent) < 5 else "done"  # noqa: E731
    world.model.add(*[script] * 8)
    run = await world.ask()
    assert run["status"] == "succeeded"
    assert [is_summary(request) for request in world.model.requests].count(True) == 1


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("  ", "context.summary_model"),
        (replies.text("<think>They want a summ", finish_reason="length"), "context.summary_model"),
        (replies.deltas_reply([{"refusal": "I can't help with that."}]), "withheld"),
    ],
)
async def test_a_summary_that_says_nothing_fails_the_run_and_leaves_the_view_alone(
    world: RunWorld, said: replies.Reply | str, advice: str
) -> None:
    """SPEC K8: COMPACTION_FAILED; the old view stands, and a resume can go on from it."""
    await world.publish(tools=["repeat"], **SMALL)
    call = replies.calls(("repeat", {"text": "z", "times": 1_200}))
    script = lambda request: said if is_summary(request) else call  # noqa: E731
    world.model.add(*[script] * 9)
    run = await world.ask()
    assert (run["status"], run["end_reason"]) == ("failed", "compaction_failed")
    assert run["error"]["code"] == "COMPACTION_FAILED"
    assert advice in run["error"]["message"]
    assert [is_summary(request) for request in world.model.requests].count(True) == 1


async def test_a_stop_during_a_compaction_ends_the_run_at_once(world: RunWorld) -> None:
    """SPEC S8, K1: the block in flight is cancelled, no further one begins, the episode ends cancelled."""
    await world.publish(tools=["repeat"], **SMALL)
    call = replies.calls(("repeat", {"text": "z", "times": 1_200}))
    held = replies.text("SUMMARY").but(hold="never")
    script = lambda request: held if is_summary(request) else call  # noqa: E731
    world.model.add(*[script] * 9)
    run_id = await world.start()
    await world.until(run_id, "compacting")
    await world.stop(run_id)
    run = await world.ended(run_id, within_s=5)
    assert (run["status"], run["end_reason"]) == ("stopped", "user_stop")
    assert [is_summary(request) for request in world.model.requests].count(True) <= 1


async def test_an_input_that_comes_during_a_compaction_stands_verbatim_in_the_next_request(world: RunWorld) -> None:
    """SPEC K11: it is behind the cutoff, so it belongs to the loop after."""
    await world.publish(tools=["repeat"], **SMALL)
    call = replies.calls(("repeat", {"text": "z", "times": 1_200}))
    held = replies.text("SUMMARY: goals kept.").but(hold="summary")
    session = await world.open_session()
    late = "And mind this too."
    script = lambda request: held if is_summary(request) else "done" if late.encode() in request.body else call  # noqa: E731
    world.model.add(*[script] * 12)
    run_id = await world.start("The question that must stay.", session)
    await world.until(run_id, "compacting")
    await world.send(late, session, mode="supplement")
    world.model.release("summary")
    run = await world.ended(run_id)
    assert (run["status"], run["answer"]) == ("succeeded", "done")
    business = [request.json["messages"] for request in world.model.requests if not is_summary(request)]
    compacted = [sent for sent in business if "SUMMARY: goals kept." in json.dumps(sent)]
    assert late not in json.dumps(compacted[0])
    assert {"role": "user", "content": late} in compacted[1]


async def test_a_compaction_tells_what_it_covers_what_it_cost_and_what_it_gained(world: RunWorld) -> None:
    """SPEC K10, K13: exact ranges, calls, usage, sizes; the next one covers what the one before did, and more."""
    await world.publish(tools=["repeat"], **SMALL)
    world.model.add(*steps(1_200, 12))
    run = await world.ask()
    found = await world.items(f"/runs/{run['run_id']}/compactions")
    assert len(found) >= 2
    for one in found:
        assert (one["status"], one["outcome"], one["source"]) == ("succeeded", "activated", "auto")
        assert one["blocks"] == one["cursor"] == one["calls"]
        assert (one["input_tokens"], one["output_tokens"]) == (50 * one["calls"], 10 * one["calls"])
        assert one["tokens_after"] < one["tokens_before"]
        assert one["reaches_target"] is True
        assert one["truncated"] is False
        assert sum(part["through_seq"] - part["from_seq"] + 1 for part in one["ranges"]) == one["pieces"]
    assert found[1]["previous_snapshot_id"] == found[0]["snapshot_id"]
    assert found[1]["pieces"] > found[0]["pieces"]
    assert run["loops"] == len([one for one in await world.operations(run["run_id"]) if one["purpose"] == "business"])


async def test_what_became_of_each_record_is_explained_and_requests_are_compared(world: RunWorld) -> None:
    """SPEC A10, M7: included, replaced by that summary, or not yet arrived; nothing of the session is broken."""
    await world.publish(tools=["repeat"], **SMALL)
    world.model.add(*steps(1_200, 6))
    session = await world.open_session()
    run = await world.ask("The question that must stay.", session)
    calls = [one["operation_id"] for one in await world.operations(run["run_id"]) if one["purpose"] == "business"]
    records = [one for one in await world.messages(session) if one["kind"] == "tool_result"]
    compactions = await world.items(f"/runs/{run['run_id']}/compactions")

    async def explained(operation: str, **subject: str) -> Json:
        return await world.get(f"/operations/{operation}/explain", **subject)

    newest = await explained(calls[-1], record=records[-1]["record_id"])
    oldest = await explained(calls[-1], record=records[0]["record_id"])
    early = await explained(calls[0], record=records[0]["record_id"])
    asked = await explained(calls[-1], input=(await world.inputs(run["run_id"]))[0]["input_id"])
    assert [one["explanation"] for one in (newest, oldest, early, asked)] == [
        "included",
        "replaced_by_summary",
        "not_yet_arrived",
        "included",
    ]
    assert oldest["snapshot_id"] == compactions[-1]["snapshot_id"]
    grown = await world.get(f"/operations/{calls[1]}/diff", **{"with": calls[0]})
    assert (grown["common_prefix"], {one["change"] for one in grown["items"]}) == (2, {"same", "added"})
    shrunk = await world.get(f"/operations/{calls[-1]}/diff", **{"with": calls[0 if len(calls) < 3 else -3]})
    assert "summarised" in {one["change"] for one in shrunk["items"]}


async def test_what_became_of_each_record_in_the_calls_of_a_compaction_is_explained(world: RunWorld) -> None:
    """SPEC A10: in its block, in the summary so far, in a later block, not summarised, or not there yet."""
    await world.publish(tools=["repeat"], **SMALL)
    world.model.add(*steps(1_200, 6))
    session = await world.open_session()
    run = await world.ask("The question that must stay.", session)
    blocks = [one for one in await world.operations(run["run_id"]) if one["purpose"] == "compaction"]
    sent = [request.body.decode() for request in world.model.requests if is_summary(request)]
    assert len(blocks) == len(sent) == 3
    records = {f"record/{one['record_id']}": one for one in await world.messages(session) if one["kind"] != "user_ref"}
    told = [
        {piece: await explained(world, block, record=one["record_id"]) for piece, one in records.items()}
        for block in blocks
    ]
    shown = [{piece for piece, one in of.items() if one["explanation"] == "included"} for of in told]
    assert shown == [{piece for piece in records if f"=== {piece}, " in body} for body in sent]
    ways = [{(one["explanation"], one["rule"]) for one in of.values()} for of in told]
    arrived, kept = {("included", None), ("not_yet_arrived", None)}, {("left_out_by_rule", "not_summarised")}
    so_far = {("replaced_by_summary", None)}
    assert ways == [
        arrived | kept | {("left_out_by_rule", "later_block")},
        arrived | kept | so_far,
        arrived | kept | so_far,
    ]
    (question,) = await world.inputs(run["run_id"])
    for block in blocks:
        asked = await explained(world, block, input=question["input_id"])
        assert (asked["explanation"], asked["rule"]) == ("left_out_by_rule", "not_summarised")


async def explained(world: RunWorld, operation: Json, **subject: str) -> Json:
    return await world.get(f"/operations/{operation['operation_id']}/explain", **subject)


async def test_a_session_with_compactions_verifies_and_its_contexts_can_be_seen_as_they_were(world: RunWorld) -> None:
    """SPEC M7, 16: chains, coverage and every request, those of the summariser too."""
    await world.publish(tools=["repeat"], **SMALL)
    world.model.add(*steps(1_200, 9))
    session = await world.open_session()
    run = await world.ask(session=session)
    checked = await world.get(f"/sessions/{session}/verify")
    assert checked["breaks"] == []
    assert checked["requests"] == len(world.model.requests)
    assert checked["snapshots"] == len(await world.items(f"/runs/{run['run_id']}/compactions"))
    (instance,) = (await world.get(f"/runs/{run['run_id']}/instances"))["items"]
    revisions = (await world.get(f"/contexts/{instance['context_id']}/revisions"))["items"]
    first = await world.get(f"/contexts/{instance['context_id']}/revisions", limit=1)
    second = await world.get(f"/contexts/{instance['context_id']}/revisions", limit=1, after=first["next"])
    assert [*first["items"], *second["items"]] == revisions[:2]
    for one in (revisions[0], revisions[2], revisions[-1]):
        seen = await world.get(f"/contexts/{instance['context_id']}/view", revision=one["revision"])
        assert len(seen["items"]) == one["record_watermark"]
    assert checked["records"] == revisions[-1]["record_watermark"]


async def test_old_output_is_shown_as_previews_before_anything_is_summarised(world: RunWorld) -> None:
    """SPEC T5: the newest results stay whole; a pruned one can be read again by its reference."""
    results = {"protect_tokens": 1_000, "prune_tokens": 500, "preview_chars": 10}
    await world.publish(tools=["repeat"], **SMALL, context={"results": results})
    asked: list[str] = []

    def answer(request: RecordedRequest) -> replies.Reply:
        assert not is_summary(request)
        shown = [m["content"] for m in request.json["messages"] if m["role"] == "tool"]
        pruned = [json.loads(text.splitlines()[0]) for text in shown if "Older output" in text]
        if pruned and not asked:
            asked.append(pruned[0]["result_ref"])
            return replies.calls(("result_read", {"result_ref": asked[0], "offset": 500, "limit": 50}))
        return replies.text("done") if asked else replies.calls(("repeat", {"text": "z", "times": 1_200}))

    world.model.add(*[answer] * 12)
    run = await world.ask()
    assert run["status"] == "succeeded"
    assert await world.items(f"/runs/{run['run_id']}/compactions") == []
    last = [message["content"] for message in world.sent[-1] if message["role"] == "tool"]
    assert "z" * 50 in last[-1]
    assert len(last[-2]) == 1_200
    assert "tool_result_pruned" in (await world.manifests(run["run_id"]))[-2]["transforms"]
    assert (await world.get(f"/sessions/{run['session_id']}/verify"))["breaks"] == []


async def test_a_later_run_begins_with_an_earlier_runs_summary_once_all_it_covers_is_old(world: RunWorld) -> None:
    """SPEC P7: never in place of the recent Runs; what the summary covers appears nowhere else."""
    await world.publish(**SMALL, context={"recent_runs": 1})
    session = await world.open_session()
    long = "Keep this in mind: " + "word " * 210
    script = lambda request: "SUMMARY: goals kept." if is_summary(request) else "Noted."  # noqa: E731
    world.model.add(*[script] * 40)
    runs = [await world.ask(f"Q{number}. {long}", session) for number in range(1, 10)]
    assert {run["status"] for run in runs} == {"succeeded"}
    compactions = [await world.items(f"/runs/{run['run_id']}/compactions") for run in runs]
    manifests = [(await world.manifests(run["run_id"]))[-1] for run in runs]
    reused = [
        at
        for at, (own, manifest) in enumerate(zip(compactions, manifests, strict=True))
        if not own and any(item["kind"] == "summary" for item in manifest["items"])
    ]
    assert reused, "a Run began with a summary that it had not made"
    for at in reused:
        whole = [item for item in manifests[at]["items"] if item["run_no"] == at]
        assert {"input", "assistant", "marker"} <= {item["kind"] for item in whole}, "the recent Run is whole"
    assert (await world.get(f"/sessions/{session}/verify"))["breaks"] == []


async def test_a_compaction_can_be_asked_for_while_a_run_is_active(world: RunWorld) -> None:
    """SPEC K12: `source: manual`, far below any trigger; the same client key asks once."""
    await world.publish(tools=["repeat"], **SMALL, context={"keep_recent_tokens": 0})
    session = await world.open_session()
    call = replies.calls(("repeat", {"text": "z", "times": 600}))

    def script(request: RecordedRequest) -> replies.Reply | str:
        if is_summary(request):
            return "SUMMARY: goals kept."
        return call if len(world.sent) < 5 else "all done"

    world.model.add(call, call, call.but(hold="third"), *[script] * 5)
    run_id = await world.start("The question that must stay.", session)
    await world.model.wait_for_requests(3)
    asked = await world.post(f"/sessions/{session}/compact", {"client_key": "mine"}, status=202)
    assert asked == {"session_id": session, "run_id": run_id, "episode_id": None}
    world.model.release("third")
    await world.model.wait_for_requests(4)
    run = await world.ended(run_id)
    (one,) = await world.items(f"/runs/{run_id}/compactions")
    assert (run["answer"], one["source"], one["causes"], one["outcome"]) == (
        "all done",
        "manual",
        ["manual"],
        "activated",
    )
    assert await world.post(f"/sessions/{session}/compact", {"client_key": "mine"}, status=202) == asked

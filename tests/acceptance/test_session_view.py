"""The whole session as a Run's history, and the views that later Runs go on from (SPEC P2, S9-S11, K10)."""

import asyncio
import hashlib
import json
from pathlib import Path

from sqlalchemy import text

from tests.acceptance.test_history import texts
from tests.acceptance.test_tool_batches import call_ids, results
from tests.support import replies
from tests.support.compactions import SMALL, is_summary
from tests.support.run_tools import traced
from tests.support.run_world import Json, RunWorld, python_tool

WHOLE: Json = {"history": "session_view"}


async def manifest_of(world: RunWorld, run: Json, which: int = 0) -> Json:
    """A manifest of the Run, the first by default."""
    return (await world.manifests(run["run_id"]))[which]


async def check_proofs(world: RunWorld, session: str) -> None:
    """Everything verifies, and each stored request is rebuilt byte for byte."""
    assert (await world.get(f"/sessions/{session}/verify"))["breaks"] == []
    sent = {hashlib.sha256(request.body).hexdigest() for request in world.model.requests}
    for run in await world.items(f"/sessions/{session}/runs"):
        for one in await world.manifests(run["run_id"]):
            assert (await world.get(f"/operations/{one['operation_id']}/request"))["sha256"] in sent
    assert world.model.refusals == []


async def test_a_run_goes_on_from_the_view_of_the_run_before(world: RunWorld) -> None:
    """SPEC P2, A7: the first request begins with the last one of the Run before, and nothing of it is left out."""
    await world.publish(tools=["echo"], context=WHOLE | {"recent_runs": 0})
    session = await world.open_session()
    for number in (1, 2, 3):
        world.model.add(replies.calls(("echo", {"text": f"result {number}"}, f"c{number}")), f"answer {number}")
        await world.ask(f"question {number}", session)
    first, last = world.sent[0::2], world.sent[1::2]
    for before, after in zip(last, first[1:], strict=False):
        assert after[: len(before)] == before
    assert call_ids(last[2]) == ["c1", "c2", "c3"]
    assert results(last[2]) == ["result 1", "result 2", "result 3"]
    assert [one for one in texts(last[2])[1:] if not one.startswith(("[", "result"))] == [
        *("question 1", "answer 1", "question 2", "answer 2", "question 3")
    ]
    await check_proofs(world, session)


async def test_a_b_c_then_a_resumed_then_d(world: RunWorld) -> None:
    """SPEC S11, P2: A sees neither B nor C; D sees all of them, each fact once, and goes on from the view of C."""
    await world.publish(tools=["echo"], context=WHOLE)
    session = await world.open_session()
    world.model.add(replies.calls(("echo", {"text": "result A1"}, "a1")), replies.error(401, "no"), "answer B")
    world.model.add(replies.calls(("echo", {"text": "result C"}, "c1")), "answer C")
    a = await world.ask("question A", session)
    assert (a["status"], (await world.ask("question B", session))["status"]) == ("failed", "succeeded")
    await world.ask("question C", session)
    last_of_c = world.sent[-1]
    world.model.add(replies.calls(("echo", {"text": "result A2"}, "a2")), "answer A")
    await world.resume(a["run_id"], "supplement A")
    assert (await world.ended(a["run_id"]))["answer"] == "answer A"
    resumed = [request for request in world.sent[-2:] if request[-1]["content"] in ("supplement A", "result A2")]
    assert len(resumed) == 2
    assert not any(text.endswith((" B", " C")) for request in resumed for text in texts(request))
    world.model.add("answer D", "answer E")
    d = await world.ask("question D", session)
    seen = world.sent[-1]
    assert seen[: len(last_of_c)] == last_of_c
    assert results(seen) == ["result A1", "result C", "result A2"]
    assert [one for one in texts(seen)[1:] if not one.startswith("result")] == [
        *("question A", "[AgentLoom] Question 1 has ended: it failed, without a final result."),
        *("question B", "answer B", "[AgentLoom] Question 2 has ended: it was answered."),
        *("question C", "answer C", "[AgentLoom] Question 3 has ended: it was answered."),
        *("supplement A", "answer A", "[AgentLoom] Question 1 has ended: it was answered."),
        "question D",
    ]
    await world.ask("question E", session)
    assert world.sent[-1][: len(seen)] == seen
    assert [item["kind"] for item in (await manifest_of(world, d))["items"]].count("input") == 5
    await check_proofs(world, session)


async def test_results_that_a_resume_brought_stand_behind_their_calls(world: RunWorld, tmp_path: Path) -> None:
    """SPEC P2, P5, A4: a view that showed a call of A as not finished is of no use once it has a result."""
    await world.publish(tools=["echo", python_tool("wait_for", "idempotent")], context=WHOLE)
    session = await world.open_session()
    gate, trace = tmp_path / "gate", tmp_path / "trace"
    waits = ("wait_for", {"path": str(gate), "trace": str(trace)}, "a2")
    world.model.add(replies.calls(("echo", {"text": "fast A"}, "a1"), waits))
    a = await world.start("question A", session)
    async with asyncio.timeout(20):
        while not traced(trace):
            await asyncio.sleep(0.01)
    await world.stop(a)
    await world.ended(a)
    world.model.add("answer B", "answer C", "answer A", "answer D")
    await world.ask("question B", session)
    assert results(world.sent[-1])[1].startswith("Unknown")
    await world.ask("question C", session)
    assert world.sent[-1][: len(world.sent[-2])] == world.sent[-2]
    gate.touch()
    await world.resume(a)
    await world.ended(a)
    await world.ask("question D", session)
    assert call_ids(world.sent[-1]) == ["a1", "a2"]
    assert [one.startswith(("Unknown", "Stopped", "Not executed")) for one in results(world.sent[-1])] == [False, False]
    assert [one for one in texts(world.sent[-1]) if one.startswith(("question", "answer"))] == [
        *("question A", "answer A", "question B", "answer B", "question C", "answer C", "question D")
    ]
    await check_proofs(world, session)


async def test_an_input_that_waits_is_in_no_saved_view_and_stands_once_in_the_next(world: RunWorld) -> None:
    """SPEC P2, P3, S6: a carried supplement appears as the next Run's own, and so does one that was withdrawn not."""
    await world.publish(context=WHOLE)
    session = await world.open_session()
    world.model.add(replies.text("answer A").but(hold="a"))
    a = await world.start("question A", session)
    await world.model.wait_for_requests(1)
    await world.send("kept", session, mode="supplement")
    dropped = await world.send("dropped", session, mode="supplement")
    world.model.release("a")
    await world.ended(a)
    assert (await world.http.delete(f"/inputs/{dropped['input_id']}")).status_code == 200
    world.model.add("answer B", "answer C")
    b = await world.ask("question B", session)
    assert texts(world.sent[-1])[-2:] == ["kept", "question B"]
    await world.ask("question C", session)
    assert world.sent[-1][: len(world.sent[-2])] == world.sent[-2]
    assert [text for text in texts(world.sent[-1]) if text in ("kept", "dropped")] == ["kept"]
    told = await world.get(
        f"/operations/{(await manifest_of(world, b))['operation_id']}/explain", input=dropped["input_id"]
    )
    assert (told["explanation"], told["rule"]) == ("left_out_by_rule", "withdrawn")
    await check_proofs(world, session)


async def test_what_was_asked_with_and_withdrawn_is_in_no_later_request_of_its_run(world: RunWorld) -> None:
    """SPEC S12, A7: nobody answered to it, so it waits again; the resume goes on without it, and says so."""
    await world.publish(tools=["echo"])
    session = await world.open_session()
    world.model.add(replies.calls(("echo", {"text": "result"})).but(hold="a"), replies.error(401, "no"), "done")
    a = await world.start("question", session)
    await world.model.wait_for_requests(1)
    sent = await world.send("never mind", session, mode="supplement")
    world.model.release("a")
    await world.ended(a)
    assert "never mind" in texts(world.sent[1])
    assert (await world.http.delete(f"/inputs/{sent['input_id']}")).status_code == 200
    await world.resume(a, "but this")
    assert (await world.ended(a))["answer"] == "done"
    assert world.sent[2] == [*world.sent[1][:-1], {"role": "user", "content": "but this"}]
    assert (await world.manifests(a))[-1]["notes"] == ["prefix_broken:withdrawal"]
    record = next(one for one in await world.messages(session) if one["message"]["content"] == "never mind")
    for subject in ({"input": sent["input_id"]}, {"record": record["record_id"]}):
        last = (await world.manifests(a))[-1]["operation_id"]
        assert (await world.get(f"/operations/{last}/explain", **subject))["rule"] == "withdrawn"
    await check_proofs(world, session)


async def test_a_later_run_begins_with_the_summary_of_an_earlier_view(world: RunWorld) -> None:
    """SPEC P2, K10, A10: what the summary covers appears nowhere else, and `explain` says where it went."""
    await world.publish(**SMALL, context=WHOLE)
    session = await world.open_session()
    script = lambda request: "SUMMARY: goals kept." if is_summary(request) else "Noted."  # noqa: E731
    world.model.add(*[script] * 60)
    runs = [await world.ask(f"Q{number}. " + "word " * 210, session) for number in range(1, 13)]
    assert {run["status"] for run in runs} == {"succeeded"}
    assert len([request for request in world.model.requests if is_summary(request)]) >= 2
    manifests = [await manifest_of(world, run, -1) for run in runs]
    compacted = [bool(await world.items(f"/runs/{run['run_id']}/compactions")) for run in runs]
    began = [at for at, own in enumerate(compacted) if not own and manifests[at]["items"][1]["kind"] == "summary"]
    assert began, "a Run began with a summary that it had not made"
    at = began[-1]
    question = (await world.inputs(runs[0]["run_id"]))[0]["input_id"]
    told = await world.get(f"/operations/{manifests[at]['operation_id']}/explain", input=question)
    assert (told["explanation"], told["snapshot_id"]) == (
        "replaced_by_summary",
        manifests[at]["items"][1]["source_id"],
    )
    assert all(one["estimated_input_tokens"] <= one["input_limit"] for one in manifests)
    await check_proofs(world, session)


async def test_what_came_to_an_earlier_run_later_had_not_arrived(world: RunWorld) -> None:
    """SPEC A10: a record of A's resume was not there yet when B asked."""
    await world.publish(context=WHOLE)
    session = await world.open_session()
    world.model.add(replies.error(401, "no"), "answer B", "answer A")
    a = await world.ask("question A", session)
    b = await world.ask("question B", session)
    await world.resume(a["run_id"])
    await world.ended(a["run_id"])
    late = next(one for one in await world.messages(session) if one["message"]["content"] == "answer A")
    operation = (await manifest_of(world, b))["operation_id"]
    told = await world.get(f"/operations/{operation}/explain", record=late["record_id"])
    assert told["explanation"] == "not_yet_arrived"


async def test_a_list_that_shows_less_than_the_whole_session_is_no_view_of_it(world: RunWorld) -> None:
    """SPEC P2: after a release that showed outlines, a Run with the whole session projects it anew."""
    await world.publish(tools=["echo"], context={"recent_runs": 0})
    session = await world.open_session()
    for number in (1, 2):
        world.model.add(replies.calls(("echo", {"text": f"result {number}"})), f"answer {number}")
        await world.ask(f"question {number}", session)
    await world.publish(tools=["echo"], context=WHOLE)
    world.model.add("answer 3")
    await world.ask("question 3", session)
    assert results(world.sent[-1]) == ["result 1", "result 2"]
    await check_proofs(world, session)


async def test_a_run_that_was_stopped_before_its_first_request_sees_what_came_before_it(world: RunWorld) -> None:
    """SPEC S9, P2: and not what came after; its view claims nothing beyond."""
    await world.publish(context=WHOLE)
    session = await world.open_session()
    world.model.add("answer A", replies.error(401, "no"), "answer C")
    await world.ask("question A", session)
    b = await world.ask("question B", session)
    await world.ask("question C", session)
    world.model.add("answer B", "answer D")
    await world.resume(b["run_id"])
    await world.ended(b["run_id"])
    assert "answer C" not in json.dumps(world.sent[-1])
    await world.ask("question D", session)
    said = [one for one in texts(world.sent[-1]) if one.startswith(("question", "answer"))]
    assert said == [
        *("question A", "answer A", "question B", "question C", "answer C", "answer B", "question D"),
    ]
    await check_proofs(world, session)


async def test_a_view_that_claims_what_it_never_saw_is_reported(world: RunWorld) -> None:
    """SPEC P2, M7."""
    await world.publish(context=WHOLE)
    session = await world.open_session()
    world.model.add("answer A", "answer B")
    a = await world.ask("question A", session)
    await world.ask("question B", session)
    async with world.store.transaction("tampering") as connection:
        stretch = text("UPDATE session_views SET through_seq = through_seq + 2 WHERE run_no = 1")
        await connection.execute(stretch)
    checked = await world.get(f"/sessions/{session}/verify")
    assert [(one["kind"], one["subject"]) for one in checked["breaks"]] == [("view", f"run/{a['run_id']}")]

"""A Run that is resumed while a summary is made of what it left open (SPEC K9, K10, A4, A8, P2)."""

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.acceptance.test_idle_compaction import FACT, LARGE, Says, compact, ended, says
from tests.acceptance.test_tool_batches import call_ids, results
from tests.support import replies
from tests.support.run_tools import traced
from tests.support.run_world import Json, RunWorld, python_tool

WHOLE: Json = {"context": {"history": "session_view", "keep_recent_tokens": 0}}
RECENT: Json = {"context": {"recent_runs": 0, "keep_recent_tokens": 0}}
SETTLED = ("raw_stored", "accepted")
__all__ = ["says"]


async def stopped_in_its_calls(world: RunWorld, says: Says, gate: Path, context: Json) -> tuple[str, str]:
    """A session and its first Run, which was stopped while its two calls waited at the gate; a second one has ended."""
    await world.publish(tools=[python_tool("wait_for", "idempotent")], **LARGE, **context)
    session, trace = await world.open_session(), Path(f"{gate}.trace")
    says.answer = replies.calls(*[("wait_for", {"path": str(gate), "trace": str(trace)}, one) for one in ("a1", "a2")])
    run_id = await world.start("Question A.", session)
    async with asyncio.timeout(20):
        while len(traced(trace)) < 2:
            await asyncio.sleep(0.01)
    await world.stop(run_id)
    await world.ended(run_id)
    says.answer = replies.text("Noted.")
    for number in (1, 2):
        assert (await world.ask(FACT.format(number), session))["status"] == "succeeded"
    return session, run_id


async def check_pairs(world: RunWorld, session: str, *, calls: list[str]) -> None:
    """The next three questions get whole requests, with these calls in them, each followed by its result."""
    for question in ("And C?", "And D?", "And E?"):
        assert (await world.ask(question, session))["status"] == "succeeded"
        assert call_ids(world.sent[-1]) == calls
        assert results(world.sent[-1]) == ["it is there"] * len(calls)
    assert world.model.refusals == []
    assert (await world.get(f"/sessions/{session}/verify"))["breaks"] == []


@pytest.mark.parametrize("context", [WHOLE, RECENT])
async def test_a_summary_of_calls_that_got_results_meanwhile_is_kept_and_not_used(
    world: RunWorld, says: Says, tmp_path: Path, context: Json
) -> None:
    """SPEC K9, K10, K12, A4: the resume came before there was a summary to take back."""
    session, run_id = await stopped_in_its_calls(world, says, tmp_path / "gate", context)
    says.summary = replies.text("SUMMARY").but(hold="summary")
    accepted = await world.post(f"/sessions/{session}/compact", None, status=202)
    await world.model.wait_for_requests(4)
    (tmp_path / "gate").touch()
    await world.resume(run_id)
    assert (await world.ended(run_id))["status"] == "succeeded"
    world.model.release("summary")
    one = await ended(world, accepted["episode_id"])
    whole = context is WHOLE
    assert (one["status"], one["outcome"]) == ("succeeded", "sources_changed" if whole else "activated")
    assert (one["outdated_at"] is not None) == whole
    await check_pairs(world, session, calls=["a1", "a2"] if whole else [])


async def test_a_summary_folded_from_one_that_was_taken_back_meanwhile_is_kept_and_not_used(
    world: RunWorld, says: Says, tmp_path: Path
) -> None:
    """SPEC K9, K10: the calls are covered by the earlier summary alone, which the resume takes back."""
    session, run_id = await stopped_in_its_calls(world, says, tmp_path / "gate", WHOLE)
    says.summary = replies.text("SUMMARY")
    first = await compact(world, session)
    await world.ask(FACT.format(3), session)
    says.summary = replies.text("SUMMARY").but(hold="summary")
    accepted = await world.post(f"/sessions/{session}/compact", None, status=202)
    await world.model.wait_for_requests(len(world.model.requests) + 1)
    (tmp_path / "gate").touch()
    await world.resume(run_id)
    assert (await world.ended(run_id))["status"] == "succeeded"
    world.model.release("summary")
    second = await ended(world, accepted["episode_id"])
    assert (second["outcome"], second["previous_snapshot_id"]) == ("sources_changed", first["snapshot_id"])
    assert second["outdated_at"] is not None
    await check_pairs(world, session, calls=["a1", "a2"])


async def test_a_result_that_is_stored_and_not_carried_takes_its_summary_back_when_its_run_goes_on(
    world: RunWorld, says: Says, tmp_path: Path
) -> None:
    """SPEC K10, S9: it is covered under the name of its call; the resume brings it as a record."""
    await world.publish(tools=[python_tool("wait_for", "idempotent")], **LARGE, **WHOLE)
    session, gates = await world.open_session(), [tmp_path / "first", tmp_path / "second"]
    says.answer = replies.calls(
        *(("wait_for", {"path": str(gate), "trace": f"{gate}.trace"}, f"a{n}") for n, gate in enumerate(gates, 1))
    )
    run_id = await world.start("Question A.", session)
    async with asyncio.timeout(20):
        while not all(traced(Path(f"{gate}.trace")) for gate in gates):
            await asyncio.sleep(0.01)
        gates[0].touch()
        while not [
            one for one in await world.operations(run_id) if one["purpose"] == "tool" and one["state"] in SETTLED
        ]:
            await asyncio.sleep(0.01)
    await world.stop(run_id)
    await world.ended(run_id)
    says.answer = replies.text("Noted.")
    await world.ask(FACT.format(1), session)
    says.summary = replies.text("SUMMARY")
    one = await compact(world, session)
    async with world.store.transaction("only the stored one") as connection:
        await connection.execute(text("DELETE FROM snapshot_pieces WHERE piece LIKE 'call/%'"))
    gates[1].touch()
    await world.resume(run_id)
    assert (await world.ended(run_id))["status"] == "succeeded"
    assert (await world.get(f"/compactions/{one['episode_id']}"))["outdated_at"] is not None


async def test_a_summary_of_calls_as_its_own_run_saw_them_is_used_there_and_nowhere_else(
    world: RunWorld, says: Says, tmp_path: Path
) -> None:
    """SPEC S9, K9, P5: a later Run that is resumed goes on with the calls as open; no other begins so."""
    session, run_id = await stopped_in_its_calls(world, says, tmp_path / "gate", WHOLE)
    says.answer, says.summary = replies.error(401), replies.text("SUMMARY")
    failed = await world.ask("It fails.", session)
    says.answer = replies.text("Noted.")
    (tmp_path / "gate").touch()
    await world.resume(run_id)
    assert (await world.ended(run_id))["status"] == "succeeded"
    says.answer = replies.calls(("wait_for", {"path": str(tmp_path / "gate"), "trace": str(tmp_path / "more")}))
    await world.resume(failed["run_id"])
    await world.post(f"/sessions/{session}/compact", None, status=202)
    async with asyncio.timeout(30):
        while not (found := await world.items(f"/runs/{failed['run_id']}/compactions")) or not found[0]["ended_at"]:
            await asyncio.sleep(0.01)
    says.answer = replies.text("Noted.")
    assert (await world.ended(failed["run_id"]))["status"] == "succeeded"
    assert (found[0]["outcome"], found[0]["outdated_at"] is not None) == ("activated", True)
    assert "SUMMARY" in str(world.sent[-1])
    await check_pairs(world, session, calls=["a1", "a2", *call_ids(world.sent[-1])])


async def test_a_session_whose_lists_lost_the_calls_of_results_heals(
    world: RunWorld, says: Says, tmp_path: Path
) -> None:
    """SPEC A4, A8, A11: a summary that was not taken back is not used where it would leave results without a call."""
    session, run_id = await stopped_in_its_calls(world, says, tmp_path / "gate", WHOLE)
    says.summary = replies.text("SUMMARY")
    assert (await compact(world, session))["outcome"] == "activated"
    await world.ask("Before the resume.", session)
    assert call_ids(world.sent[-1]) == []
    (tmp_path / "gate").touch()
    await world.resume(run_id)
    await world.ended(run_id)
    async with world.store.transaction("tampering") as connection:
        await connection.execute(text("UPDATE snapshots SET outdated_at = NULL"))
        await connection.execute(text("UPDATE session_views SET outdated_at = NULL"))
    await check_pairs(world, session, calls=["a1", "a2"])


async def test_a_summary_of_open_calls_that_is_taken_back_without_a_cause_is_named(
    world: RunWorld, says: Says, tmp_path: Path
) -> None:
    """SPEC M7, K10: nobody has gone on with the calls, so nothing took it back; the resume of their Run does."""
    session, run_id = await stopped_in_its_calls(world, says, tmp_path / "gate", WHOLE)
    says.summary = replies.text("SUMMARY")
    first = await compact(world, session)
    await world.ask(FACT.format(3), session)
    folded = await compact(world, session)
    assert (folded["outcome"], folded["previous_snapshot_id"]) == ("activated", first["snapshot_id"])

    async def breaks(change: str) -> list[str]:
        async with world.store.transaction("tampering") as connection:
            await connection.execute(text(change))
        return [one["subject"] for one in (await world.get(f"/sessions/{session}/verify"))["breaks"]]

    named = {one["snapshot_id"]: f"snapshot/{one['snapshot_id']}" for one in (first, folded)}
    for snapshot_id, subject in named.items():
        changed = f"UPDATE snapshots SET outdated_at = now() WHERE snapshot_id = '{snapshot_id}'"
        assert subject in await breaks(changed)
        assert await breaks("UPDATE snapshots SET outdated_at = NULL") == []
    (tmp_path / "gate").touch()
    await world.resume(run_id)
    assert (await world.ended(run_id))["status"] == "succeeded"
    rows = [await world.get(f"/compactions/{one['episode_id']}") for one in (first, folded)]
    assert all(one["outdated_at"] for one in rows)
    assert await breaks("SELECT 1") == []


async def test_a_request_that_would_part_a_result_from_its_call_is_not_sent(world: RunWorld) -> None:
    """SPEC A4, A8: whatever the reason; the manifest says which rule it breaks, and the Run ends with an error."""
    await world.publish(tools=["echo"])
    world.model.add(replies.calls(("echo", {"text": "here"}, "c1")), "done")
    session = await world.open_session()
    await world.ask("Question A.", session)
    async with world.store.transaction("tampering") as connection:
        await connection.execute(text("UPDATE context_records SET call_id = 'lost' WHERE kind = 'tool_result'"))
    run = await world.ask("Question B.", session)
    assert (run["status"], run["error"]["code"]) == ("failed", "PAYLOAD_CORRUPT")
    assert [one["validation"] for one in await world.manifests(run["run_id"])] == ["invalid_tool_pairs"]
    assert len(world.sent) == 2


async def test_a_list_saved_again_with_calls_as_they_were_is_not_gone_on_from(
    world: RunWorld, says: Says, tmp_path: Path
) -> None:
    """SPEC P2, P5, A4: a Run that is resumed after the results came, and fails at once, has not seen them."""
    session, run_id = await stopped_in_its_calls(world, says, tmp_path / "gate", WHOLE)
    says.answer = replies.error(401)
    failed = await world.ask("It fails.", session)
    says.answer = replies.text("Noted.")
    (tmp_path / "gate").touch()
    await world.resume(run_id)
    assert (await world.ended(run_id))["status"] == "succeeded"
    says.answer = replies.error(401)
    await world.resume(failed["run_id"])
    assert (await world.ended(failed["run_id"]))["status"] == "failed"
    says.answer = replies.text("Noted.")
    await check_pairs(world, session, calls=["a1", "a2"])

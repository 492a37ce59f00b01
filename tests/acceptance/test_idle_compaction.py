"""Compaction of an idle Session over real servers: the next Run begins with its summary (SPEC K12, P7, K3, K8, L5).

The window is large, so that nothing is compacted unless somebody asks for it.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError, CancelledError

from tests.support import replies
from tests.support.model_server import ModelServer, RecordedRequest
from tests.support.run_world import Json, RunWorld, Servers, running_world
from workflows.lost_runs import TemporalWatch

LARGE: Json = {"model": {"context_window": 24_000, "max_output_tokens": 800}}
"""B is 24000 - 800 - 256 = 22944 tokens of one byte each; what is asked below makes some 9000 of them."""
EAGER: Json = {"context": {"recent_runs": 1, "keep_recent_tokens": 0}}
FACT = "Fact {0} is kept: " + "word " * 300
SUMMARY = "SUMMARY: goals kept."
ENDED = ("succeeded", "failed", "cancelled")


def is_summary(request: RecordedRequest) -> bool:
    return b"You write the summary" in request.body


@dataclass
class Says:
    """What the model says to a summariser and to everybody else, until a test wants something else."""

    summary: replies.Reply = field(default_factory=lambda: replies.text(SUMMARY))
    answer: replies.Reply = field(default_factory=lambda: replies.text("Noted."))

    def __call__(self, request: RecordedRequest) -> replies.Reply:
        return self.summary if is_summary(request) else self.answer


@pytest.fixture
def says(world: RunWorld) -> Says:
    said = Says()
    world.model.add(*[said] * 60)
    return said


async def asked(world: RunWorld, count: int = 5, **definition: Json) -> str:
    """A session with this many answered questions, each with a long fact."""
    await world.publish(**(LARGE | EAGER | definition))
    session = await world.open_session()
    for number in range(1, count + 1):
        assert (await world.ask(FACT.format(number), session))["status"] == "succeeded"
    return session


async def compact(world: RunWorld, session: str) -> Json:
    """Ask for a compaction of the idle session; the compaction once it has ended."""
    accepted = await world.post(f"/sessions/{session}/compact", None, status=202)
    return await ended(world, accepted["episode_id"])


async def ended(world: RunWorld, episode_id: str, *, within_s: float = 20) -> Json:
    found = await world.get(f"/compactions/{episode_id}", wait_s=within_s)
    assert found["status"] in ENDED, found
    return found


async def started(world: RunWorld, episode_id: str) -> None:
    """Wait until its workflow is there."""
    async with asyncio.timeout(20):
        while await TemporalWatch(world.temporal).standing_of_compaction(UUID(episode_id)) == "missing":
            await asyncio.sleep(0.01)


def texts(messages: Sequence[Json]) -> str:
    return json.dumps(list(messages))


async def test_the_next_run_begins_with_the_summary_of_an_idle_session(world: RunWorld, says: Says) -> None:
    """SPEC K12, P7: far below any trigger; the recent Run stays whole, every older fact is in the summary only."""
    session = await asked(world)
    one = await compact(world, session)
    assert (one["status"], one["outcome"], one["source"], one["operation_id"]) == (
        "succeeded",
        "activated",
        "manual",
        None,
    )
    assert one["tokens_after"] < one["tokens_before"]
    assert (one["blocks"], one["cursor"], one["calls"]) == (1, 1, 1)
    run = await world.ask("And now?", session)
    sent = world.sent[-1]
    assert run["answer"] == "Noted."
    assert SUMMARY in sent[1]["content"]
    assert sent[1]["role"] == "user"
    assert [f"Fact {number} is kept" in texts(sent) for number in range(1, 6)] == [False] * 4 + [True]
    assert sent[-1] == {"role": "user", "content": "And now?"}
    first = (await world.items(f"/sessions/{session}/inputs"))[0]
    (call,) = await world.operations(run["run_id"])
    explained = await world.get(f"/operations/{call['operation_id']}/explain", input=first["input_id"])
    assert (explained["explanation"], explained["snapshot_id"]) == ("replaced_by_summary", one["snapshot_id"])
    assert (await world.get(f"/sessions/{session}/verify"))["breaks"] == []
    assert world.model.refusals == []


async def test_a_second_compaction_folds_the_first(world: RunWorld, says: Says) -> None:
    """SPEC K6, K10: what came since goes in with the summary; every piece is covered once."""
    session = await asked(world, 4)
    first = await compact(world, session)
    for number in (5, 6):
        await world.ask(FACT.format(number), session)
    second = await compact(world, session)
    assert second["previous_snapshot_id"] == first["snapshot_id"]
    assert second["pieces"] > first["pieces"]
    last_call = [request for request in world.model.requests if is_summary(request)][-1].body
    assert SUMMARY.encode() in last_call
    await world.ask("And now?", session)
    sent = texts(world.sent[-1])
    assert sent.count("SUMMARY") == 1
    assert [f"Fact {number} is kept" in sent for number in range(1, 7)] == [False] * 5 + [True]
    checked = await world.get(f"/sessions/{session}/verify")
    assert (checked["breaks"], checked["snapshots"]) == ([], 2)


async def test_a_run_that_sees_the_whole_session_goes_on_from_the_summary(world: RunWorld, says: Says) -> None:
    """SPEC K12, P2, K10: it takes the place of what it covers in the view that was saved; a second one folds it."""
    whole: Json = {"history": "session_view", "keep_recent_tokens": 2_500}
    session = await asked(world, 4, context=whole)
    assert (await compact(world, session))["outcome"] == "activated"
    await world.ask(FACT.format(5), session)
    sent = texts(world.sent[-1])
    assert [f"Fact {number} is kept" in sent for number in range(1, 6)] == [False] * 3 + [True] * 2
    assert sent.count("SUMMARY") == 1
    await world.ask(FACT.format(6), session)
    assert texts(world.sent[-1]).startswith(sent.removesuffix("]")), "the list with the summary is the saved view now"
    second = await compact(world, session)
    assert second["previous_snapshot_id"] is not None
    await world.ask("And now?", session)
    sent = texts(world.sent[-1])
    assert sent.count("SUMMARY") == 1
    assert [f"Fact {number} is kept" in sent for number in range(1, 7)] == [False] * 5 + [True]
    assert (await world.get(f"/sessions/{session}/verify"))["breaks"] == []


async def test_with_nothing_old_enough_there_is_nothing_to_compact(world: RunWorld, says: Says) -> None:
    """SPEC K3, P7: recent Runs are never summarised; it says so and calls nothing."""
    session = await asked(world, 1)
    one = await compact(world, session)
    assert (one["status"], one["outcome"], one["calls"], one["failure"]) == ("succeeded", "nothing_to_compact", 0, None)
    assert one["tokens_before"] > 0
    assert not any(is_summary(request) for request in world.model.requests)
    assert (await world.get(f"/sessions/{session}/verify"))["breaks"] == []


async def test_recent_runs_that_fill_the_window_alone_are_an_error_of_their_own(world: RunWorld, says: Says) -> None:
    """SPEC K3, P7: what is older could go, but what must stay is over B by itself; nothing is called for that."""
    small: Json = {"context_window": 8_000, "max_output_tokens": 1_000}
    session = await asked(world, 5, model=small, context={"recent_runs": 4, "keep_recent_tokens": 0})
    calls = len(world.model.requests)
    one = await compact(world, session)
    assert (one["status"], one["failure"]["code"]) == ("failed", "CONTEXT_PROTECTED_INPUT_TOO_LARGE")
    assert one["tokens_before"] > 6_744
    assert len(world.model.requests) == calls


async def test_a_session_without_a_run_has_nothing_to_compact(world: RunWorld, says: Says) -> None:
    """SPEC K12, K3."""
    session = await world.open_session()
    refused = await world.post(f"/sessions/{session}/compact", None, status=409)
    assert refused["code"] == "RUN_NOT_ACTIVE"
    assert "nothing to compact" in refused["detail"]


async def test_an_archived_session_is_not_compacted(world: RunWorld, says: Says) -> None:
    """SPEC M3: nothing new begins in it."""
    session = await asked(world, 1)
    await world.http.patch(f"/sessions/{session}", json={"archived": True})
    assert (await world.post(f"/sessions/{session}/compact", None, status=409))["code"] == "SESSION_ARCHIVED"


async def test_a_summary_that_is_no_shorter_is_kept_and_not_used(world: RunWorld, says: Says) -> None:
    """SPEC K8: the next Run shows the originals."""
    session = await asked(world, 3)
    says.summary = replies.text("long " * 700)
    one = await compact(world, session)
    assert (one["status"], one["outcome"]) == ("succeeded", "not_smaller")
    await world.ask("And now?", session)
    assert "Fact 1 is kept" in texts(world.sent[-1])


@pytest.mark.parametrize(
    ("said", "code", "reason"),
    [
        (replies.text("  "), "COMPACTION_FAILED", "empty"),
        (replies.error(401), "COMPACTION_FAILED", "model_auth"),
    ],
)
async def test_a_compaction_that_fails_says_why_and_changes_nothing(
    world: RunWorld, says: Says, said: replies.Reply, code: str, reason: str
) -> None:
    """SPEC K8: code and reason; the workflow closes as Failed with the code; the session goes on."""
    session = await asked(world, 3)
    says.summary = said
    one = await compact(world, session)
    assert (one["status"], one["failure"]["code"], one["failure"]["reason"]) == ("failed", code, reason)
    with pytest.raises(WorkflowFailureError) as closed:
        await world.temporal.get_workflow_handle(one["workflow_id"]).result()
    assert isinstance(closed.value.cause, ApplicationError)
    assert closed.value.cause.type == code
    assert (await world.ask("And now?", session))["status"] == "succeeded"
    assert "Fact 1 is kept" in texts(world.sent[-1])


async def test_a_question_that_comes_during_a_compaction_starts_its_run_at_once(world: RunWorld, says: Says) -> None:
    """SPEC S1, K11, K12: a compaction is no Run; the question stands verbatim, what is covered is not disturbed."""
    session = await asked(world, 4)
    says.summary = replies.text(SUMMARY).but(hold="summary")
    accepted = await world.post(f"/sessions/{session}/compact", None, status=202)
    await world.model.wait_for_requests(5)
    run = await world.ask("Meanwhile?", session)
    assert (run["status"], run["run_no"]) == ("succeeded", 5)
    assert "Fact 1 is kept" in texts(world.sent[-1])
    world.model.release("summary")
    one = await ended(world, accepted["episode_id"])
    assert one["outcome"] == "activated"
    await world.ask("And now?", session)
    sent = texts(world.sent[-1])
    assert [f"Fact {number} is kept" in sent for number in range(1, 5)] == [False] * 3 + [True]
    assert "Meanwhile?" in sent
    assert (await world.get(f"/sessions/{session}/verify"))["breaks"] == []


async def test_a_run_that_is_resumed_during_a_compaction_leaves_it_alone(world: RunWorld, says: Says) -> None:
    """SPEC S9, K12: the episode stands with that Run, which does not own it."""
    session = await asked(world, 3)
    says.answer = replies.error(401)
    failed = await world.ask("Last question.", session)
    assert failed["status"] == "failed"
    says.answer = replies.text("Noted.")
    says.summary = replies.text(SUMMARY).but(hold="summary")
    accepted = await world.post(f"/sessions/{session}/compact", None, status=202)
    await world.model.wait_for_requests(5)
    await world.resume(failed["run_id"])
    assert (await world.ended(failed["run_id"]))["status"] == "succeeded"
    calls = [one for one in await world.operations(failed["run_id"]) if one["purpose"] == "compaction"]
    assert [call["state"] for call in calls] == ["calling"], "the Run's end closes its own calls only"
    world.model.release("summary")
    one = await ended(world, accepted["episode_id"])
    assert (one["status"], one["outcome"], one["calls"]) == ("succeeded", "activated", 1)


async def test_whoever_asks_meanwhile_or_again_gets_the_same_compaction(world: RunWorld, says: Says) -> None:
    """SPEC S5, K12: one at a time; a client key finds its first answer even when it has ended."""
    session = await asked(world, 3)
    says.summary = replies.text(SUMMARY).but(hold="summary")
    path = f"/sessions/{session}/compact"
    first = await world.post(path, {"client_key": "mine"}, status=202)
    other = await world.post(path, None, status=202)
    assert other["episode_id"] == first["episode_id"]
    world.model.release("summary")
    await ended(world, first["episode_id"])
    again = await world.http.post(path, headers={"Idempotency-Key": "mine"})
    assert again.json() == first
    assert len(await world.items(f"/runs/{first['run_id']}/compactions")) == 1
    reused = await world.http.post(f"/sessions/{session}/inputs", json={"text": "q", "client_key": "mine"})
    assert reused.json()["code"] == "CLIENT_KEY_REUSED"


async def test_what_it_used_is_the_sessions_and_no_runs(world: RunWorld, says: Says) -> None:
    """SPEC K13, L5: figures of the episode; the totals grow by them, the Run it stands with does not."""
    session = await asked(world, 3)
    runs = await world.items(f"/sessions/{session}/runs")
    before = await world.get("/usage")
    one = await compact(world, session)
    assert (one["input_tokens"], one["output_tokens"]) == (50, 10)
    assert await world.items(f"/sessions/{session}/runs") == [
        runs[0],
        runs[1],
        runs[2] | {"event_head": runs[2]["event_head"] + 4},
    ]
    after = await world.get("/usage")
    assert after["input_tokens"] - before["input_tokens"] == 50
    assert after["output_tokens"] - before["output_tokens"] == 10


async def test_its_steps_are_events_of_the_run_it_stands_with(world: RunWorld, says: Says) -> None:
    """SPEC K12, A8: started, block by block, finished, behind the Run's end."""
    session = await asked(world, 3)
    one = await compact(world, session)
    events = [event for event in await world.events(one["run_id"]) if event.get("episode_id") == one["episode_id"]]
    assert [event["type"] for event in events] == [
        "compaction_started",
        "context_build",
        "compaction_progress",
        "compaction_finished",
    ]
    assert (events[2]["done"], events[2]["blocks"]) == (1, 1)
    assert events[3]["tokens_after"] == one["tokens_after"]
    seen = await world.get(f"/compactions/{one['episode_id']}", wait_s=5, finished=0)
    assert seen["cursor"] == 1


async def test_a_release_that_counts_otherwise_begins_with_the_summary_too(world: RunWorld, says: Says) -> None:
    """SPEC K12, B4: another model since then is no reason to show all that was summarised again."""
    session = await asked(world, 3)
    assert (await compact(world, session))["outcome"] == "activated"
    await world.publish(**({"model": LARGE["model"] | {"encoding": "o200k_base"}} | EAGER))
    run = await world.ask("And now?", session)
    assert SUMMARY in texts(world.sent[-1])
    assert "Fact 1 is kept" not in texts(world.sent[-1])
    (manifest,) = await world.manifests(run["run_id"])
    (summary,) = [item for item in manifest["items"] if item["kind"] == "summary"]
    assert 0 < summary["tokens"] < 200  # words, not bytes
    assert (await world.get(f"/sessions/{session}/verify"))["breaks"] == []


async def test_the_budget_of_its_calls_is_that_of_the_release_it_works_with(world: RunWorld, says: Says) -> None:
    """SPEC A8, B1: published since the newest Run; the model that writes the summary is that one's."""
    session = await asked(world, 3)
    await world.publish(**(EAGER | {"model": LARGE["model"] | {"context_window": 16_000}}))
    one = await compact(world, session)
    assert one["outcome"] == "activated"
    (manifest,) = [row for row in await world.manifests(one["run_id"]) if row["purpose"] == "compaction"]
    assert manifest["budget"]["context_window"] == 16_000
    assert (
        manifest["input_limit"] == 16_000 - manifest["budget"]["output_reserve"] - manifest["budget"]["safety_margin"]
    )


async def test_its_calls_are_explained(world: RunWorld, says: Says) -> None:
    """SPEC A10, K12: what was summarised is in its block, what stays is not, and what came later had not arrived."""
    session = await asked(world, 3)
    one = await compact(world, session)
    await world.ask("And now?", session)
    (block,) = [call for call in await world.operations(one["run_id"]) if call["purpose"] == "compaction"]
    told = [
        await world.get(f"/operations/{block['operation_id']}/explain", record=record["record_id"])
        for record in await world.messages(session)
    ]
    stays, later = ("left_out_by_rule", "not_summarised"), ("left_out_by_rule", "later_run")
    assert [(of["explanation"], of["rule"]) for of in told] == [
        *[("included", None)] * 4,
        *[stays] * 2,
        ("not_yet_arrived", None),
        later,
    ]


async def test_it_is_visible_in_temporal_by_session_and_block(world: RunWorld, says: Says) -> None:
    """SPEC W3, W3a: id, attributes, a row per block; Completed, with the outcome."""
    session = await asked(world, 3)
    one = await compact(world, session)
    handle = world.temporal.get_workflow_handle(one["workflow_id"])
    await handle.result()
    description = await handle.describe()
    attributes = {pair.key.name: pair.value for pair in description.typed_search_attributes}
    assert (attributes["AgentLoomSession"], attributes["AgentLoomOutcome"]) == (session, "activated")
    assert one["workflow_id"] == f"compaction/{one['episode_id']}"
    history = (await handle.fetch_history()).to_json()
    rows = [event for event in json.loads(history)["events"] if "userMetadata" in event]
    assert len(rows) >= 3
    assert "Fact" not in history


async def end(world: RunWorld, episode_id: str, by: str) -> None:
    """Stop it through the API, or cancel its workflow as somebody does in the Temporal UI."""
    if by == "the API":
        await world.post(f"/compactions/{episode_id}/stop", None, status=202)
    else:
        await world.temporal.get_workflow_handle(f"compaction/{episode_id}").cancel()


@pytest.mark.parametrize("by", ["the API", "the Temporal UI"])
async def test_a_stop_ends_it_and_frees_the_session(world: RunWorld, says: Says, by: str) -> None:
    """SPEC S8, K12, W2: the call under way is cancelled, nothing is published; the workflow closes as Canceled."""
    session = await asked(world, 3)
    says.summary = replies.text(SUMMARY).but(hold="never")
    accepted = await world.post(f"/sessions/{session}/compact", None, status=202)
    await world.model.wait_for_requests(4)
    await end(world, accepted["episode_id"], by)
    one = await ended(world, accepted["episode_id"], within_s=5)
    assert (one["status"], one["failure"]["reason"]) == ("cancelled", "cancelled")
    handle = world.temporal.get_workflow_handle(one["workflow_id"])
    with pytest.raises(WorkflowFailureError) as closed:
        await handle.result()
    assert isinstance(closed.value.cause, CancelledError)
    operations = await world.operations(one["run_id"])
    assert {call["state"] for call in operations if call["purpose"] == "compaction"} == {"cancelled"}
    says.summary = replies.text(SUMMARY)
    assert (await compact(world, session))["outcome"] == "activated"


@pytest.mark.parametrize("by", ["the API", "the Temporal UI"])
async def test_a_stop_before_it_began_ends_it_without_a_call(servers: Servers, by: str) -> None:
    """SPEC S8, K12, W2: no worker was there yet."""
    async with ModelServer(strict="plain") as model, running_world(servers, model) as world:
        said = Says()
        world.model.add(*[said] * 9)
        async with world.worker():
            session = await asked(world, 3)
        accepted = await world.post(f"/sessions/{session}/compact", None, status=202)
        await started(world, accepted["episode_id"])
        await end(world, accepted["episode_id"], by)
        async with world.worker():
            one = await ended(world, accepted["episode_id"])
            assert (one["status"], one["failure"]["reason"], one["calls"]) == ("cancelled", "cancelled", 0)
            with pytest.raises(WorkflowFailureError) as closed:
                await world.temporal.get_workflow_handle(one["workflow_id"]).result()
            assert isinstance(closed.value.cause, CancelledError)
            assert (await compact(world, session))["outcome"] == "activated"


async def test_without_a_worker_a_stop_frees_the_session_at_once(servers: Servers) -> None:
    """SPEC S8, K12: another one can be asked for; whichever worker comes closes the first workflow as Canceled."""
    async with ModelServer([Says()] * 9, strict="plain") as model, running_world(servers, model) as world:
        async with world.worker():
            session = await asked(world, 3)
        accepted = await world.post(f"/sessions/{session}/compact", None, status=202)
        await started(world, accepted["episode_id"])
        stopped = await world.post(f"/compactions/{accepted['episode_id']}/stop", None, status=202)
        assert (stopped["status"], stopped["failure"]["reason"]) == ("cancelled", "cancelled")
        second = await world.post(f"/sessions/{session}/compact", None, status=202)
        assert second["episode_id"] != accepted["episode_id"]
        async with world.worker():
            assert (await ended(world, second["episode_id"]))["outcome"] == "activated"
            with pytest.raises(WorkflowFailureError) as closed:
                await world.temporal.get_workflow_handle(stopped["workflow_id"]).result()
            assert isinstance(closed.value.cause, CancelledError)
        assert (await world.get(f"/sessions/{session}/verify"))["breaks"] == []


async def test_a_time_limit_ends_it(world: RunWorld, says: Says) -> None:
    """SPEC K1, K12: the release's deadline_s goes for a compaction too."""
    session = await asked(world, 3, limits={"deadline_s": 1.5})
    says.summary = replies.text(SUMMARY).but(hold="never")
    one = await compact(world, session)
    assert (one["status"], one["failure"]["code"]) == ("failed", "DEADLINE_EXCEEDED")


async def test_a_terminated_workflow_frees_the_session(world: RunWorld, says: Says) -> None:
    """SPEC S13, K12: within 30 s, with the reason; the next one can be asked for."""
    session = await asked(world, 3)
    says.summary = replies.text(SUMMARY).but(hold="never")
    accepted = await world.post(f"/sessions/{session}/compact", None, status=202)
    await world.model.wait_for_requests(4)
    handle = world.temporal.get_workflow_handle(f"compaction/{accepted['episode_id']}")
    await handle.terminate("somebody in the Temporal UI")
    one = await ended(world, accepted["episode_id"], within_s=30)
    assert (one["status"], one["failure"]["code"], one["failure"]["reason"]) == ("failed", "COMPACTION_FAILED", "lost")
    says.summary = replies.text(SUMMARY)
    assert (await compact(world, session))["outcome"] == "activated"


async def test_another_persons_session_and_compaction_do_not_exist(world: RunWorld, says: Says) -> None:
    """SPEC 14: as if there were none."""
    nobody = "00000000-0000-0000-0000-000000000001"
    assert (await world.post(f"/sessions/{nobody}/compact", None, status=404))["code"] == "NOT_FOUND"
    assert (await world.http.get(f"/compactions/{nobody}")).status_code == 404
    assert (await world.http.post(f"/compactions/{nobody}/stop")).status_code == 404

"""How earlier Runs appear in a later one's requests (SPEC P1, P3; the rows on history and on the tool protocol)."""

from tests.acceptance.test_tool_batches import call_ids, results
from tests.support import replies
from tests.support.run_world import Json, RunWorld


def texts(messages: list[Json]) -> list[str]:
    """Contents in order, of messages that have one."""
    return [str(message["content"]) for message in messages if message.get("content")]


async def a_success_a_failure_and_a_stop(world: RunWorld) -> str:
    """A session whose three Runs ended so: with a tool call, with a refused key, with a stop after a tool call."""
    await world.publish(tools=["echo", "pause"])
    world.model.add(replies.calls(("echo", {"text": "first result"}, "r1")), "first answer")
    world.model.add(replies.calls(("echo", {"text": "second result"}, "r2")), replies.error(401, "bad key"))
    world.model.add(
        replies.calls(("echo", {"text": "third result"}, "r3")), replies.text("never").but(hold="never", hold_after=0)
    )
    session = await world.open_session()
    ends = [(await world.ask(question, session))["status"] for question in ("question one", "question two")]
    run_id = await world.start("question three", session)
    await world.model.wait_for_requests(6)
    await world.stop(run_id)
    ends.append((await world.ended(run_id))["status"])
    assert ends == ["succeeded", "failed", "stopped"]
    return session


async def test_the_last_two_runs_appear_whole_whatever_their_end(world: RunWorld) -> None:
    """SPEC P1: N=2 after success, failure, stop: the success is an outline, the other two are whole."""
    session = await a_success_a_failure_and_a_stop(world)
    world.model.add("fourth answer")
    run = await world.ask("question four", session)
    last = world.sent[-1]
    assert run["status"] == "succeeded"
    assert call_ids(last) == ["r2", "r3"]
    assert results(last) == ["second result", "third result"]
    assert [one for one in texts(last) if one.startswith(("question", "first answer"))] == [
        *("question one", "first answer", "question two", "question three", "question four")
    ]
    assert sum("without a final result" in one for one in texts(last)) == 2


async def test_without_whole_runs_all_questions_and_results_remain(world: RunWorld) -> None:
    """SPEC P1: N=0 is allowed; no process, but every input and every result, and how each Run ended."""
    await world.publish(tools=["echo"], context={"recent_runs": 0})
    world.model.add(replies.calls(("echo", {"text": "hidden"})), "one", "two", "three")
    session = await world.open_session()
    for question in ("first?", "second?", "third?"):
        await world.ask(question, session)
    last = world.sent[-1]
    assert results(last) == []
    assert [one for one in texts(last) if not one.startswith("[")][1:] == ["first?", "one", "second?", "two", "third?"]


async def test_while_there_are_no_more_runs_than_wanted_all_appear_whole(world: RunWorld) -> None:
    """SPEC P1: N=5 with one to six earlier Runs; none loses its answer or its tool work before there are too many."""
    await world.publish(tools=["echo"], context={"recent_runs": 5})
    session = await world.open_session()
    for number in range(1, 8):
        world.model.add(replies.calls(("echo", {"text": f"result {number}"})), f"answer {number}")
        await world.ask(f"question {number}", session)
        first = world.sent[-2]
        assert results(first) == [f"result {earlier}" for earlier in range(max(1, number - 5), number)]
        assert [one for one in texts(first) if one.startswith("answer")] == [f"answer {n}" for n in range(1, number)]


async def test_only_the_first_request_of_a_run_is_prepared_from_history(world: RunWorld) -> None:
    """SPEC P6, A7: the second request of a Run extends the first, history included."""
    session = await a_success_a_failure_and_a_stop(world)
    world.model.add(replies.calls(("echo", {"text": "again"})), "done")
    await world.ask("question four", session)
    assert world.sent[-1][: len(world.sent[-2])] == world.sent[-2]


async def test_a_placeholder_in_history_leaves_the_operation_as_it_was(world: RunWorld) -> None:
    """SPEC A4: the later request says 'not executed', the earlier Operation still says how it stood."""
    await world.publish(tools=["echo"], limits={"max_loops": 1})
    world.model.add(replies.calls(("echo", {"text": "x"}, "c1")), "fine")
    session = await world.open_session()
    first = await world.ask("one", session)
    before = await world.operations(first["run_id"])
    await world.ask("two", session)
    assert results(world.sent[1])[0].startswith("Not executed")
    assert await world.operations(first["run_id"]) == before
    assert before[1]["state"] in ("cancelled", "prepared")


async def test_calls_that_repeat_ids_over_runs_stay_apart(world: RunWorld) -> None:
    """SPEC A4: a provider that counts its calls from zero in each answer."""
    await world.publish(tools=["echo"])
    for text in ("a", "b", "c"):
        world.model.add(replies.calls(("echo", {"text": text}, "call_0")), f"said {text}")
    session = await world.open_session()
    for _ in range(3):
        assert (await world.ask("go", session))["status"] == "succeeded"
    assert len(set(call_ids(world.sent[-1]))) == 3
    assert world.model.refusals == []

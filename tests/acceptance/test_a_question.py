"""A question from its asking to its answer, as a client sees it."""

from tests.support import replies
from tests.support.run_world import RunWorld


async def test_a_question_is_answered_and_the_run_says_so(world: RunWorld) -> None:
    """SPEC S1, S2: one model call, one answer, one end."""
    world.model.add("It is noon.")
    run = await world.ask("What time is it?")
    assert (run["status"], run["end_reason"], run["answer"]) == ("succeeded", "answered", "It is noon.")
    assert (run["loops"], run["error"], run["run_no"]) == (1, None, 1)
    assert world.sent == [[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What time is it?"}]]


async def test_tool_results_come_back_in_the_order_of_the_calls(world: RunWorld) -> None:
    """SPEC T2, A4: three calls that finish in another order."""
    await world.publish(tools=["pause"])
    asked = [("pause", {"seconds": s, "text": t}) for s, t in ((0.2, "A"), (0.01, "B"), (0.1, "C"))]
    world.model.add(replies.calls(*asked), "done")
    run = await world.ask()
    assert run["status"] == "succeeded"
    assert [m["content"] for m in world.sent[1] if m["role"] == "tool"] == ["A", "B", "C"]


async def test_a_session_remembers_its_earlier_runs(world: RunWorld) -> None:
    """SPEC P1: the second question sees the first one and its answer, and how it ended."""
    world.model.add("one", "two")
    session = await world.open_session()
    await world.ask("first?", session)
    await world.ask("second?", session)
    contents = [message["content"] for message in world.sent[1]]
    assert contents[1:3] == ["first?", "one"]
    assert contents[-1] == "second?"

"""What clients may count on when answers get lost or come at the same time (SPEC S1, S5; cases C067, C070, C103)."""

import asyncio

import httpx

from tests.support import replies
from tests.support.run_world import RunWorld


async def test_a_question_sent_again_is_one_question(world: RunWorld) -> None:
    """Case C067, SPEC S5: in parallel, one after the other, and after the end."""
    session = await world.open_session()
    world.model.add("once")
    body = {"mode": "question", "client_key": "k1"}
    first, second = await asyncio.gather(*(posted(world, session, "q", body) for _ in range(2)))
    accepted = [one.json() for one in (first, second) if one.status_code == 202]
    assert accepted
    run = await world.ended(accepted[0]["run_id"])
    again = await world.send("q", session, **body)
    assert {one["input_id"] for one in [*accepted, again]} == {accepted[0]["input_id"]}
    assert (run["status"], len(world.model.requests)) == ("succeeded", 1)
    other = await posted(world, session, "another", body)
    assert (other.status_code, other.json()["code"]) == (422, "CLIENT_KEY_REUSED")


async def posted(world: RunWorld, session: str, text: str, body: dict[str, str]) -> httpx.Response:
    """The answer to an input, whatever it is."""
    return await world.http.post(f"/sessions/{session}/inputs", json={"text": text} | body)


async def test_of_twenty_questions_at_once_one_starts_a_run(world: RunWorld) -> None:
    """Case C070, SPEC S1: the others are told which Run is active, and nothing of them is stored."""
    session = await world.open_session()
    world.model.add(replies.text("slow").but(hold="answer"), "later")
    asks = [
        world.http.post(f"/sessions/{session}/inputs", json={"text": f"q{n}", "mode": "question"}) for n in range(20)
    ]
    answers = await asyncio.gather(*asks)
    [winner] = [one.json() for one in answers if one.status_code == 202]
    losers = [one for one in answers if one.status_code == 409]
    assert len(losers) == 19
    assert {one.json()["code"] for one in losers} == {"RUN_ACTIVE"}
    assert {one.json()["run_id"] for one in losers} == {winner["run_id"]}
    assert len(await world.items(f"/sessions/{session}/inputs")) == 1
    world.model.release("answer")
    await world.ended(winner["run_id"])
    assert (await world.ask("next", session))["status"] == "succeeded"


async def test_events_resume_where_they_were_cut(world: RunWorld) -> None:
    """Case C103: from any place the rest comes once, in order, and a finished stream closes."""
    await world.publish(tools=["now"])
    world.model.add(replies.calls(("now", {})), "done")
    run = await world.ask()
    whole = await streamed(world, run["run_id"], None)
    assert whole == list(range(1, len(whole) + 1))
    for cut in (1, 3, len(whole) - 1):
        assert await streamed(world, run["run_id"], str(cut)) == whole[cut:]
    for impossible in ("999", "x"):
        answer = await world.http.get(f"/runs/{run['run_id']}/events", headers={"last-event-id": impossible})
        assert 400 <= answer.status_code < 500


async def streamed(world: RunWorld, run_id: str, after: str | None) -> list[int]:
    """Ids of the events of the stream, to its end."""
    headers = {"accept": "text/event-stream"} | ({"last-event-id": after} if after else {})
    answer = await world.http.get(f"/runs/{run_id}/events", headers=headers)
    assert answer.status_code == 200
    return [int(line.removeprefix("id:")) for line in answer.text.splitlines() if line.startswith("id:")]

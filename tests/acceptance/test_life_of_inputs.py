"""What becomes of everything a user sends, over HTTP (SPEC S1, S3-S7, S12, P3, W4; cases C067, C070, C071, C083)."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from api.app import build_app, reaching
from api.limits import RateLimit
from api.wiring import ApiOptions
from stack import temporal
from stack.ports import any_free_port
from tests.acceptance.test_history import texts
from tests.support import replies
from tests.support.faults import Pauses
from tests.support.model_server import ModelServer
from tests.support.prompt_server import serving
from tests.support.run_tools import traced
from tests.support.run_world import Json, RunWorld, Servers, api_server, python_tool, running_world
from tests.support.servers import running_child

HELD = replies.text("at last").but(hold="answer")


async def busy(world: RunWorld, *, late_input: str = "carry") -> tuple[str, str]:
    """A session, and its Run that waits for the model until the gate `answer` is released."""
    await world.publish(context={"late_input": late_input})
    session = await world.open_session()
    world.model.add(HELD)
    run_id = await world.start("q1", session)
    await world.model.wait_for_requests(1)
    return session, run_id


# --- once ------------------------------------------------------------------------------------------------------------


async def until_told(http: httpx.AsyncClient, path: str, body: Json) -> Json:
    """The 202 of this request; while its first one is being handled, 409 asks to send it again."""
    async with asyncio.timeout(20):
        while (answer := await http.post(path, json=body)).status_code == 409:
            assert answer.json()["code"] == "CLIENT_KEY_REUSED"
    assert answer.status_code == 202, answer.text
    told: Json = answer.json()
    return told


@pytest.mark.parametrize("mode", ["question", "supplement"])
async def test_a_message_that_landed_and_is_sent_again_lands_once(world: RunWorld, mode: str) -> None:
    """Case C067, SPEC S5: repeats, several at once and to a restarted API, get the first answer."""
    if mode == "supplement":
        session, _ = await busy(world)
    else:
        session = await world.open_session()
        world.model.add(HELD)
    path, body = f"/sessions/{session}/inputs", {"text": "once", "mode": mode, "client_key": "key-1"}
    lost = asyncio.create_task(world.http.post(path, json=body))
    await asyncio.sleep(0)
    lost.cancel()  # the answer, if there is one, never arrives
    told = await asyncio.gather(*(until_told(world.http, path, body) for _ in range(3)))
    async with restarted_api(world) as http:
        told.append(await until_told(http, path, body))
    assert len({(one["input_id"], one["run_id"], one["delivery_id"]) for one in told}) == 1
    world.model.release("answer")
    await world.ended(told[0]["run_id"])
    inputs = await world.items(f"/sessions/{session}/inputs")
    assert [one["text"] for one in inputs].count("once") == 1
    assert len(await world.items(f"/sessions/{session}/runs")) == 1
    assert len(world.model.requests) == 1


@asynccontextmanager
async def restarted_api(world: RunWorld, options: ApiOptions | None = None) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a new application on the same record, as after a restart."""
    sender = reaching(world.temporal, task_queue=world.servers.task_queue, private_addresses="loopback")
    async with AsyncExitStack() as stack:
        app = build_app(world.store, await stack.enter_async_context(sender), options=options or ApiOptions())
        address = await stack.enter_async_context(serving(api_server(app)))
        key = world.http.headers["authorization"]
        async with httpx.AsyncClient(
            base_url=f"{address}/api/v1", headers={"authorization": key}, trust_env=False
        ) as http:
            yield http


async def test_the_same_key_with_another_text_is_refused_and_stores_nothing(world: RunWorld) -> None:
    """SPEC S5: 422, whatever became of the first."""
    session, _ = await busy(world)
    body = {"text": "once", "mode": "supplement", "client_key": "k"}
    await world.send(session=session, **body)
    refused = await world.post(f"/sessions/{session}/inputs", body | {"text": "twice"}, status=422)
    assert refused["code"] == "CLIENT_KEY_REUSED"
    assert len(await world.items(f"/sessions/{session}/inputs")) == 2


# --- one Run at a time -----------------------------------------------------------------------------------------------


async def test_of_twenty_questions_at_once_one_starts_a_run(world: RunWorld) -> None:
    """Case C070, SPEC S1: 409 with the active Run's id for the others, and nothing of them is stored."""
    session = await world.open_session()
    world.model.add(HELD, "next")
    bodies = [{"text": f"q{n}", "mode": "question"} for n in range(20)]
    answers = await asyncio.gather(*(world.http.post(f"/sessions/{session}/inputs", json=body) for body in bodies))
    assert Counter(answer.status_code for answer in answers) == {202: 1, 409: 19}
    [run_id] = [answer.json()["run_id"] for answer in answers if answer.status_code == 202]
    refused = [answer.json() for answer in answers if answer.status_code == 409]
    assert {(one["code"], one["run_id"]) for one in refused} == {("RUN_ACTIVE", run_id)}
    assert len(await world.items(f"/sessions/{session}/inputs")) == 1
    world.model.release("answer")
    await world.ended(run_id)
    assert (await world.ask("one more", session))["run_no"] == 2


async def test_an_auto_input_goes_where_it_can_and_says_where(world: RunWorld) -> None:
    """SPEC S4: to the active Run while there is one, else it is the question of a new one."""
    session, run_id = await busy(world)
    during = await world.send("one more thing", session)
    assert (during["kind"], during["run_id"], during["state"]) == ("supplement", run_id, "pending")
    world.model.release("answer")
    await world.ended(run_id)
    world.model.add("answer")
    after = await world.send("and now?", session)
    assert (after["kind"], after["run_id"] != run_id) == ("question", True)
    await world.ended(after["run_id"])
    assert texts(world.sent[1])[-2:] == ["one more thing", "and now?"]


async def test_a_supplement_without_a_run_is_refused_and_stores_nothing(world: RunWorld) -> None:
    """SPEC S4: 409 RUN_NOT_ACTIVE."""
    session = await world.open_session()
    body = {"text": "too early", "mode": "supplement"}
    assert (await world.post(f"/sessions/{session}/inputs", body, status=409))["code"] == "RUN_NOT_ACTIVE"
    assert await world.items(f"/sessions/{session}/inputs") == []


# --- withdrawn -------------------------------------------------------------------------------------------------------


async def withdraw(world: RunWorld, input_id: str) -> httpx.Response:
    return await world.http.delete(f"/inputs/{input_id}")


async def test_a_withdrawn_supplement_reaches_no_request_and_stays_on_record(world: RunWorld) -> None:
    """SPEC S12: neither this Run nor the next one; its text can still be read as what was sent."""
    session, run_id = await busy(world)
    sent = await world.send("never mind", session, mode="supplement")
    assert (await withdraw(world, sent["input_id"])).json()["state"] == "withdrawn"
    world.model.release("answer")
    await world.ended(run_id)
    world.model.add("second")
    await world.ask("q2", session)
    assert all("never mind" not in texts(sent) for sent in world.sent)
    [kept] = [one for one in await world.items(f"/sessions/{session}/inputs") if one["kind"] == "supplement"]
    assert (kept["text"], kept["state"]) == ("never mind", "withdrawn")


async def test_a_carried_supplement_can_be_withdrawn_before_the_next_question(world: RunWorld) -> None:
    """SPEC S12, S6: it is pending again, so it can be taken back; the Run that carried it keeps its word."""
    session, run_id = await busy(world)
    sent = await world.send("never mind", session, mode="supplement")
    world.model.release("answer")
    await world.ended(run_id)
    assert (await withdraw(world, sent["input_id"])).status_code == 200
    world.model.add("second")
    second = await world.ask("q2", session)
    assert "never mind" not in texts(world.sent[1])
    assert [one["kind"] for one in await world.inputs(second["run_id"])] == ["question"]
    [left] = [one for one in await world.inputs(run_id) if one["kind"] == "supplement"]
    assert left["state"] == "carried"


async def test_what_a_request_contains_can_not_be_withdrawn(world: RunWorld) -> None:
    """SPEC S12: claimed is too late, and so is delivered; the question never can be."""
    session, run_id = await busy(world, late_input="continue")
    sent = await world.send("count me in", session, mode="supplement")
    world.model.add(replies.text("second").but(hold="second"))
    world.model.release("answer")
    await world.model.wait_for_requests(2)
    for release in ("second", ""):
        refused = await withdraw(world, sent["input_id"])
        assert (refused.status_code, refused.json()["code"]) == (409, "INPUT_NOT_PENDING")
        if release:
            world.model.release(release)
            await world.ended(run_id)
    [question] = [one for one in await world.inputs(run_id) if one["kind"] == "question"]
    assert (await withdraw(world, question["input_id"])).status_code == 409


@pytest.mark.parametrize("limits", [{"max_total_tokens": 60}, {"max_cost": 0.0001}])
async def test_a_late_input_is_not_served_with_a_budget_that_is_used_up(world: RunWorld, limits: Json) -> None:
    """SPEC S7, L5: one more loop only while tokens and money remain; the answer stands, the input is carried."""
    priced = {"price": {"input": 10, "output": 10, "cached": 1}}
    await world.publish(context={"late_input": "continue"}, limits=limits, model=priced)
    session = await world.open_session()
    world.model.add(HELD, "never asked for")
    run_id = await world.start("q1", session)
    await world.model.wait_for_requests(1)
    await world.send("and this?", session, mode="supplement")
    world.model.release("answer")
    run = await world.ended(run_id)
    assert (run["status"], run["answer"], run["loops"]) == ("succeeded", "at last", 1)
    assert len(world.model.requests) == 1
    [_, late] = await world.inputs(run_id)
    assert late["state"] == "carried"


async def test_a_withdrawal_that_overtakes_the_loop_it_would_have_caused_ends_the_run(servers: Servers) -> None:
    """SPEC S12, S7: the answer is there, one more loop was agreed on, and then there is nothing to add to it."""
    async with ModelServer(strict="plain") as model, running_world(servers, model) as world:
        await world.publish(context={"late_input": "continue"})
        session = await world.open_session()
        sent: list[Json] = []

        async def take_back() -> None:
            assert (await withdraw(world, sent[0]["input_id"])).status_code == 200

        async with world.worker(Pauses("finish_run.after_commit", take_back)):
            model.add(HELD)
            run_id = await world.start("q1", session)
            await model.wait_for_requests(1)
            sent.append(await world.send("never mind", session, mode="supplement"))
            model.release("answer")
            run = await world.ended(run_id)
    assert (run["status"], run["answer"], len(model.requests)) == ("succeeded", "at last", 1)


# --- late ------------------------------------------------------------------------------------------------------------


async def test_late_input_continues_only_while_loops_remain(world: RunWorld) -> None:
    """SPEC S7: without a loop left the Run ends with its answer, and the input is carried."""
    await world.publish(context={"late_input": "continue"}, limits={"max_loops": 1})
    session = await world.open_session()
    world.model.add(HELD)
    run_id = await world.start("q1", session)
    await world.model.wait_for_requests(1)
    await world.send("too late", session, mode="supplement")
    world.model.release("answer")
    run = await world.ended(run_id)
    assert (run["status"], run["answer"], run["loops"]) == ("succeeded", "at last", 1)
    states = {one["kind"]: one["state"] for one in await world.inputs(run_id)}
    assert states == {"question": "delivered", "supplement": "carried"}


async def test_an_input_carried_over_two_runs_keeps_its_place_and_its_links(world: RunWorld) -> None:
    """SPEC S6, P3: what no Run got goes on to the third, once, with its first id and a chain back to the first."""
    session, first = await busy(world)
    sent = await world.send("MARK-S", session, mode="supplement")
    world.model.release("answer")
    await world.ended(first)
    world.model.add(replies.error(401, "no"), "fine")
    second = await world.ask("q2", session)
    assert second["status"] == "failed"
    third = await world.ask("q3", session)
    assert texts(world.sent[2]).count("MARK-S") == 1
    assert texts(world.sent[2])[-2:] == ["MARK-S", "q3"]
    chain = [
        next(one for one in await world.inputs(run) if one["kind"] == "supplement")
        for run in (first, second["run_id"], third["run_id"])
    ]
    assert {one["input_id"] for one in chain} == {sent["input_id"]}
    assert [one["state"] for one in chain] == ["carried", "carried", "delivered"]
    assert [one["previous_delivery_id"] for one in chain] == [None, *[one["delivery_id"] for one in chain[:2]]]


async def test_five_supplements_while_a_tool_runs_follow_its_whole_group(world: RunWorld, tmp_path: Path) -> None:
    """SPEC S3, S7, A4: verbatim, in order, once, in the next request, behind the results of both calls."""
    gate, trace = tmp_path / "gate", tmp_path / "trace"
    await world.publish(tools=["echo", python_tool("wait_for", "idempotent")])
    waits = ("wait_for", {"path": str(gate), "trace": str(trace)})
    world.model.add(replies.calls(("echo", {"text": "one"}), waits), "done")
    session = await world.open_session()
    run_id = await world.start("go", session)
    async with asyncio.timeout(20):
        while not traced(trace):
            await asyncio.sleep(0.01)
    said = [f"{n}. " + "\t\n  ünïcödé 漢字 " * n for n in range(1, 6)]
    for text in said:
        assert (await world.send(text, session))["run_id"] == run_id
    gate.touch()
    assert (await world.ended(run_id))["loops"] == 2
    assert [message["role"] for message in world.sent[1]][2:] == ["assistant", "tool", "tool", *["user"] * 5]
    assert [message["content"] for message in world.sent[1]][-5:] == said


# --- many ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def short_histories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that suggests continue-as-new after a few events, as it does after thousands by default."""
    folder = tmp_path_factory.mktemp("short-histories")
    server = temporal.prepare(folder / "temporal.db", port=any_free_port(), ui_port=None)
    child = server.child(log_file=folder / "temporal.log")
    limit = ("--dynamic-config-value", "limit.historyCount.suggestContinueAsNew=40")
    with running_child(replace(child, command=child.command + limit)):
        yield server.address


@pytest.fixture
async def continuing(
    short_histories: str, database_url: str, task_queue: str, tmp_path: Path
) -> AsyncIterator[RunWorld]:
    """A world whose Runs continue as new every few loops."""
    servers = Servers(database_url, short_histories, task_queue, tmp_path)
    async with (
        ModelServer(strict="plain") as model,
        running_world(servers, model) as world,
        world.worker(),
    ):
        yield world


async def test_two_hundred_supplements_over_continuations_arrive_once_and_in_order(continuing: RunWorld) -> None:
    """Case C071, SPEC W4, S3, R1: bursts while the Run goes on as new executions; no gap, no double."""
    world = continuing
    await world.publish(tools=["now"], limits={"max_loops": 200}, context={"late_input": "continue"})
    session = await world.open_session()
    world.model.add(*[replies.calls(("now", {})).but(delay_s=0.02)] * 24, HELD)
    run_id = await world.start("long run", session)
    said = [f"MARK-{n}" for n in range(1, 201)]
    for first in range(0, 200, 25):
        await asyncio.gather(*(world.send(text, session, mode="supplement") for text in said[first : first + 25]))
    await world.model.wait_for_requests(25)
    world.model.add("done")
    world.model.release("answer")
    run = await world.ended(run_id)
    assert run["status"] == "succeeded"
    inputs = await world.inputs(run_id)
    assert [one["input_seq"] for one in inputs] == list(range(1, 202))
    assert {one["state"] for one in inputs} == {"delivered"}
    received = [one["text"] for one in inputs[1:]]
    assert [text for text in texts(world.sent[-1]) if text.startswith("MARK-")] == received
    assert sorted(received) == sorted(said)
    executions = [one async for one in world.temporal.list_workflows(f"WorkflowId = 'run/{run_id}'")]
    assert len(executions) > 2


async def test_a_burst_beyond_the_limit_is_told_to_come_back_and_then_stored_once(world: RunWorld) -> None:
    """Case C083, SPEC Y1, S5: 429 with Retry-After; after retries each of them is there once, and the session works."""
    session, run_id = await busy(world, late_input="continue")
    refusals: Counter[int] = Counter()

    async def insist(http: httpx.AsyncClient, n: int) -> None:
        body = {"text": f"MARK-{n}", "mode": "supplement", "client_key": f"k{n}"}
        async with asyncio.timeout(50):
            while (answer := await http.post(f"/sessions/{session}/inputs", json=body)).status_code != 202:
                refusals[answer.status_code] += 1
                await asyncio.sleep(int(answer.headers["retry-after"]))

    async with restarted_api(world, ApiOptions(rate_limit=RateLimit(per_second=2, burst=80))) as http:
        for first in range(0, 90, 30):
            await asyncio.gather(*(insist(http, n) for n in range(first, first + 30)))
    assert set(refusals) == {429}
    world.model.add("done")
    world.model.release("answer")
    assert (await world.ended(run_id))["status"] == "succeeded"
    marks = [text for text in texts(world.sent[1]) if text.startswith("MARK-")]
    assert sorted(marks) == sorted(f"MARK-{n}" for n in range(90))
    world.model.add("still here")
    assert (await world.ask("and?", session))["answer"] == "still here"

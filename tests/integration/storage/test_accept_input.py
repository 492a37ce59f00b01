"""Accepting inputs: one Run at a time, nothing acknowledged is lost, nothing is stored twice."""

import asyncio
from dataclasses import replace
from uuid import uuid4

import pytest
from sqlalchemy import text

from context.errors import (
    ClientKeyInFlightError,
    ClientKeyReusedError,
    InputInvalidError,
    NotFoundError,
    RunActiveError,
    RunNotActiveError,
    SessionArchivedError,
    TooLargeError,
)
from storage.commits.create_session import CreateSession, create_session
from storage.commits.update_session import UpdateSession, update_session
from storage.store import Store
from tests.integration.storage.world import (
    KEYS,
    Crash,
    CrashAt,
    World,
    count,
    end_run,
    execute,
    outcomes,
    rows,
    say,
)

RUN = text("""
    INSERT INTO runs (run_id, session_id, run_no, release_id, status, phase)
    VALUES (:run, :session, 2, :release, 'queued', 'opening')
""")


async def test_a_question_starts_a_queued_run_of_the_newest_release(store: Store, world: World) -> None:
    """S1, S4: the input, its delivery, the event and the intent to start are one fact."""
    accepted = await say(store, world, "How are you?")
    assert (accepted.kind, accepted.input_seq, accepted.state) == ("question", 1, "pending")
    (run,) = await rows(store, "SELECT * FROM runs")
    assert (run["run_id"], run["status"], run["phase"], run["run_no"]) == (accepted.run_id, "queued", "opening", 1)
    assert run["release_id"] == world.release_id
    (delivery,) = await rows(store, "SELECT * FROM input_deliveries")
    assert (delivery["delivery_id"], delivery["run_id"]) == (accepted.delivery_id, accepted.run_id)
    (event,) = await rows(store, "SELECT * FROM run_events")
    assert (event["run_seq"], event["type"]) == (1, "input_accepted")
    (intent,) = await rows(store, "SELECT * FROM outbox")
    assert (intent["outbox_id"], intent["kind"], intent["sent_at"]) == (accepted.outbox_id, "start", None)


async def test_no_column_outside_payloads_holds_the_text(store: Store, world: World) -> None:
    """Y2: content stands only in payloads, encrypted."""
    marker = "zq-7731-zq"  # longer than anything that a random id holds by chance, as text and as bytes
    await say(store, world, marker, client_key=f"KEY-{marker}")
    tables = await rows(store, "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'")
    assert {"payloads", "user_inputs", "context_records"} <= {table["table_name"] for table in tables}
    for table in tables:
        assert await count(store, f"{table['table_name']} t", f"t::text LIKE '%{marker}%'") == 0
        assert await count(store, f"{table['table_name']} t", f"t::text LIKE '%{marker.encode().hex()}%'") == 0


async def test_twenty_questions_at_once_start_exactly_one_run(store: Store, world: World) -> None:
    """S1, case 070: the others are refused, name the Run and store nothing."""
    accepted, refused = await outcomes([say(store, world, f"q{n}", mode="question") for n in range(20)])
    assert len(accepted) == 1
    assert {type(error) for error in refused} == {RunActiveError}
    assert {error.numbers["run_id"] for error in refused} == {str(accepted[0].run_id)}
    assert [await count(store, name) for name in ("runs", "user_inputs", "outbox", "input_deliveries")] == [1, 1, 1, 1]


async def test_the_database_itself_refuses_a_second_active_run(store: Store, world: World) -> None:
    """S1: enforced by a constraint, which speaks the language of the domain."""
    await say(store, world, "q")
    with pytest.raises(RunActiveError):
        await _insert_run(store, world)


async def _insert_run(store: Store, world: World) -> None:
    row = {"run": uuid4(), "session": world.session_id, "release": world.release_id}
    async with store.transaction("insert_run") as connection:
        await connection.execute(RUN, row)


async def test_five_supplements_are_five_inputs_of_one_run(store: Store, world: World) -> None:
    """S3: they start nothing new and rise in order."""
    question = await say(store, world, "q")
    more = await asyncio.gather(*(say(store, world, f"s{n}", mode="supplement") for n in range(5)))
    assert {one.run_id for one in more} == {question.run_id}
    assert sorted(one.input_seq for one in more) == [2, 3, 4, 5, 6]
    assert {one.kind for one in more} == {"supplement"}
    assert await count(store, "runs") == 1
    assert await count(store, "outbox", "kind = 'signal'") == 5
    events = await rows(store, "SELECT run_seq FROM run_events ORDER BY run_seq")
    assert [event["run_seq"] for event in events] == [1, 2, 3, 4, 5, 6]


async def test_auto_supplements_an_active_run_and_asks_once_it_has_ended(store: Store, world: World) -> None:
    """S4: the answer says to which Run it really went."""
    first = await say(store, world, "q")
    assert (await say(store, world, "more")).run_id == first.run_id
    await end_run(store, first.run_id)
    second = await say(store, world, "again")
    assert second.kind == "question"
    assert second.run_id != first.run_id


async def test_a_supplement_without_a_run_is_refused_and_not_stored(store: Store, world: World) -> None:
    """S4."""
    with pytest.raises(RunNotActiveError):
        await say(store, world, "s", mode="supplement")
    assert await count(store, "user_inputs") == 0


async def test_a_run_that_is_being_stopped_still_takes_inputs(store: Store, world: World) -> None:
    """S6, S8: until it has ended; what it does not deliver is carried."""
    question = await say(store, world, "q")
    await execute(store, "UPDATE runs SET stop_requested_at = now()")
    assert (await say(store, world, "s")).run_id == question.run_id


async def test_a_new_run_takes_the_carried_inputs_along_in_received_order(store: Store, world: World) -> None:
    """S6, case 065: with their original ids; the old deliveries stay as they were."""
    first = await say(store, world, "q1")
    late = [await say(store, world, f"s{n}") for n in range(3)]
    await end_run(store, first.run_id)
    second = await say(store, world, "q2", mode="question")
    bound = await rows(
        store,
        "SELECT input_id, previous_delivery_id, state FROM input_deliveries WHERE run_id = :run ORDER BY input_seq",
        run=second.run_id,
    )
    assert [row["input_id"] for row in bound] == [one.input_id for one in late] + [second.input_id]
    assert [row["previous_delivery_id"] for row in bound] == [one.delivery_id for one in late] + [None]
    assert await count(store, "input_deliveries", "run_id = :run AND state = 'carried'", run=first.run_id) == 3


async def test_twenty_requests_with_one_client_key_store_one_input(store: Store, world: World) -> None:
    """S5, case 067: a repeat gets the first answer, or is told that the first is in flight."""
    accepted, refused = await outcomes([say(store, world, "q", client_key="key-1") for _ in range(20)])
    assert len({one.input_id for one in accepted}) == 1
    assert {type(error) for error in refused} <= {ClientKeyInFlightError}
    assert await count(store, "user_inputs") == 1
    again = await asyncio.gather(*(say(store, world, "q", client_key="key-1") for _ in range(10)))
    assert set(again) == {accepted[0]}


async def test_a_client_key_works_for_supplements_too(store: Store, world: World) -> None:
    """S5, case 067."""
    await say(store, world, "q")
    first = await say(store, world, "s", client_key="key-2")
    assert await say(store, world, "s", client_key="key-2") == first
    assert await count(store, "user_inputs") == 2


async def test_a_client_key_with_another_body_is_refused(store: Store, world: World) -> None:
    """S5."""
    await say(store, world, "q", client_key="key-1")
    with pytest.raises(ClientKeyReusedError):
        await say(store, world, "another", client_key="key-1")
    with pytest.raises(ClientKeyReusedError):
        await say(store, world, "q", client_key="key-1", mode="question")


async def test_a_refused_request_does_not_use_up_its_client_key(store: Store, world: World) -> None:
    """S5: nothing was stored, so the same request may be served later."""
    first = await say(store, world, "q1")
    with pytest.raises(RunActiveError):
        await say(store, world, "q2", mode="question", client_key="key")
    await end_run(store, first.run_id)
    assert (await say(store, world, "q2", mode="question", client_key="key")).input_seq == 2


async def test_the_same_key_in_another_session_is_another_key(store: Store, world: World) -> None:
    """S5."""
    other = await create_session(store, CreateSession(world.space_id, world.owner_id, "scout"))
    first = await say(store, world, "q", client_key="key")
    second = await say(store, replace(world, session_id=other.session_id), "q", client_key="key")
    assert first.input_id != second.input_id


async def test_an_answer_lost_after_the_commit_is_found_by_the_repeat(
    store: Store, world: World, database_url: str
) -> None:
    """S5, R1: the client never saw the first answer."""
    dying = Store.open(database_url, KEYS, faults=CrashAt("accept_input.after_commit"))
    with pytest.raises(Crash):
        await say(dying, world, "q", client_key="key")
    await dying.aclose()
    again = await say(store, world, "q", client_key="key")
    assert [row["input_id"] for row in await rows(store, "SELECT input_id FROM user_inputs")] == [again.input_id]


async def test_a_crash_before_the_commit_leaves_nothing(store: Store, world: World, database_url: str) -> None:
    """R1: all or nothing."""
    dying = Store.open(database_url, KEYS, faults=CrashAt("accept_input.before_commit"))
    with pytest.raises(Crash):
        await say(dying, world, "q", client_key="key")
    await dying.aclose()
    tables = ("user_inputs", "runs", "outbox", "run_events", "client_keys")
    assert [await count(store, name) for name in tables] == [0] * 5


async def test_another_persons_session_does_not_exist(store: Store, world: World) -> None:
    """E, Y1: a foreign session and an unknown one answer alike."""
    with pytest.raises(NotFoundError):
        await say(store, world, "q", owner_id=world.stranger_id)
    with pytest.raises(NotFoundError):
        await say(store, world, "q", session_id=uuid4())


async def test_a_foreign_client_key_gives_no_answer_away(store: Store, world: World) -> None:
    """Y1: a key is looked up under its owner."""
    await say(store, world, "q", client_key="key")
    with pytest.raises(NotFoundError):
        await say(store, world, "q", client_key="key", owner_id=world.stranger_id)


async def test_an_archived_session_refuses_inputs(store: Store, world: World) -> None:
    """M3, case 097."""
    await update_session(store, UpdateSession(world.session_id, world.owner_id, archived=True))
    with pytest.raises(SessionArchivedError):
        await say(store, world, "q")
    assert await count(store, "user_inputs") == 0


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("", InputInvalidError),
        (" \n\t ", InputInvalidError),
        ("a\0b", InputInvalidError),
        ("a\ud83d", InputInvalidError),
        ("x" * 1_000_001, TooLargeError),
    ],
    ids=["empty", "blank", "NUL", "lone surrogate", "too long"],
)
async def test_a_text_no_run_may_get_is_refused_without_being_quoted(
    store: Store, world: World, words: str, error: type[Exception]
) -> None:
    """Y5."""
    with pytest.raises(error) as refused:
        await say(store, world, words)
    assert "a" not in str(getattr(refused.value, "numbers", "")).replace("characters", "")
    assert await count(store, "user_inputs") == 0

"""What the API may see: its own user's, in order, by pages; nothing of anybody else's."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import TextClause, text

from context.errors import CorruptPayloadError, InputInvalidError, NotFoundError
from context.messages import ChatMessage, message_bytes
from storage import reads
from storage.commits.create_key import CreateKey, create_key
from storage.commits.create_session import CreateSession, create_session
from storage.commits.create_space_user import CreateSpaceUser, create_space_user
from storage.commits.publish_release import PublishRelease, publish_release
from storage.commits.put_connection import PutConnection, put_connection
from storage.commits.update_session import UpdateSession, update_session
from storage.reads.compactions import PAGE as COMPACTIONS
from storage.reads.manifests import PAGE as MANIFESTS
from storage.reads.operations import PAGE as OPERATIONS
from storage.reads.people import KEYS as API_KEYS
from storage.reads.sessions import ALL as SESSIONS
from storage.store import Store
from storage.weighing import LAST
from tests.integration.storage.played import play
from tests.integration.storage.world import KEYS, World, end_run, execute, release, rows, say


async def _all_pages(read: Callable[..., Awaitable[reads.Page[Any]]], *who: Any, limit: int) -> list[Any]:
    """Every item, page by page."""
    items: list[Any] = []
    cursor: str | None = None
    while True:
        page = await read(*who, limit=limit, cursor=cursor)
        assert len(page.items) <= limit
        items += page.items
        cursor = page.next
        if cursor is None:
            return items


# --- sessions --------------------------------------------------------------------------------------------------------


async def test_sessions_are_listed_newest_first_page_by_page(store: Store, world: World) -> None:
    made = [world.session_id]
    for n in range(5):
        created = await create_session(store, CreateSession(world.space_id, world.owner_id, "scout", f"title {n}"))
        made.append(created.session_id)
    listed = await _all_pages(reads.sessions, store, world.owner_id, limit=4)
    assert [one.session_id for one in listed] == made[::-1]
    assert {one.title for one in listed} == {None, *(f"title {n}" for n in range(5))}


async def test_archived_sessions_are_listed_only_when_asked_for(store: Store, world: World) -> None:
    """M3, case 097."""
    await update_session(store, UpdateSession(world.session_id, world.owner_id, archived=True))
    assert (await reads.sessions(store, world.owner_id)).items == []
    (shown,) = (await reads.sessions(store, world.owner_id, include_archived=True)).items
    assert shown.archived


async def test_a_session_names_its_active_run(store: Store, world: World) -> None:
    question = await say(store, world, "q")
    shown = await reads.session(store, world.session_id, world.owner_id)
    assert (shown.agent, shown.active_run_id, shown.run_head) == ("scout", question.run_id, 1)
    await end_run(store, question.run_id)
    assert (await reads.session(store, world.session_id, world.owner_id)).active_run_id is None


# --- inputs and messages ---------------------------------------------------------------------------------------------


async def test_inputs_show_their_text_and_where_they_are_now(store: Store, world: World) -> None:
    """S6: the Run's list shows the delivery to that Run, the session's list the newest one."""
    first = await say(store, world, "q1")
    late = await say(store, world, "late")
    await end_run(store, first.run_id)
    second = await say(store, world, "q2")
    of_first = (await reads.run_inputs(store, first.run_id, world.owner_id)).items
    assert [(one.text, one.kind, one.state) for one in of_first][1] == ("late", "supplement", "carried")
    of_second = (await reads.run_inputs(store, second.run_id, world.owner_id)).items
    assert [(one.input_id, one.state) for one in of_second] == [
        (late.input_id, "pending"),
        (second.input_id, "pending"),
    ]
    assert of_second[0].previous_delivery_id == late.delivery_id
    everything = await _all_pages(reads.session_inputs, store, world.session_id, world.owner_id, limit=2)
    assert [one.text for one in everything] == ["q1", "late", "q2"]
    assert everything[1].run_id == second.run_id


async def test_messages_come_in_order_with_their_status(store: Store, world: World) -> None:
    """Section 16: pages by session seq, and an empty page keeps the cursor."""
    played = await play(store, world)
    page = await reads.messages(store, world.session_id, world.owner_id)
    assert [(one.kind, one.message.content) for one in page.items] == [
        ("user_ref", "What is the weather?"),
        ("assistant", "loop 1"),
        ("tool_result", "sunny 1"),
        ("assistant", "It is sunny."),
    ]
    assert [one.seq for one in page.items] == [1, 2, 3, 4]
    assert {one.run_id for one in page.items} == {played.run_id}
    assert page.items[2].message.status == "error"
    rest = await reads.messages(store, world.session_id, world.owner_id, after=1, limit=2)
    assert ([one.seq for one in rest.items], rest.next_after) == ([2, 3], 3)
    assert await reads.messages(store, world.session_id, world.owner_id, after=4) == reads.MessagePage((), 4)


async def test_another_instance_has_its_own_messages(store: Store, world: World) -> None:
    """X2: and one that the session does not have is not found."""
    played = await play(store, world)
    task = str(uuid4())
    sql = "UPDATE role_contexts SET instance = :task WHERE run_id = :run_id"
    await execute(store, sql, task=task, run_id=played.run_id)
    assert (await reads.messages(store, world.session_id, world.owner_id)).items == ()
    of_task = await reads.messages(store, world.session_id, world.owner_id, instance=task)
    assert {one.instance for one in of_task.items} == {task}
    assert (await reads.messages(store, world.session_id, world.owner_id, instance=task, after=99)).items == ()
    with pytest.raises(NotFoundError):
        await reads.messages(store, world.session_id, world.owner_id, instance=str(uuid4()))


# --- runs ------------------------------------------------------------------------------------------------------------


async def test_a_run_shows_its_answer_and_what_it_used(store: Store, world: World) -> None:
    """Section 16, L5."""
    played = await play(store, world)
    run = await reads.run(store, played.run_id, world.owner_id)
    assert (run.status, run.end_reason, run.answer) == ("succeeded", "answered", "It is sunny.")
    assert (run.loops, run.input_cutoff, run.workflow_id) == (2, 1, f"run/{played.run_id}")
    assert run.usage == reads.UsageTotals(200, 40, 80, 0, Decimal("0.50"))
    assert not run.is_active
    assert run.error is None


async def test_a_failed_run_shows_no_answer(store: Store, world: World) -> None:
    """S2: no end invents one."""
    played = await play(store, world)
    await execute(store, "UPDATE runs SET status = 'failed'")
    assert (await reads.run(store, played.run_id, world.owner_id)).answer is None


async def test_runs_of_a_session_come_in_order(store: Store, world: World) -> None:
    played = [(await play(store, world, f"q{n}")).run_id for n in range(3)]
    listed = await _all_pages(reads.runs, store, world.session_id, world.owner_id, limit=2)
    assert [one.run_id for one in listed] == played
    assert [one.run_no for one in listed] == [1, 2, 3]


async def test_events_cut_anywhere_and_resumed_give_the_same_sequence(store: Store, world: World) -> None:
    """Section 16, case 103."""
    played = await play(store, world)
    run = await reads.run(store, played.run_id, world.owner_id)
    events = await reads.run_events(store, played.run_id, world.owner_id)
    assert [event.run_seq for event in events] == list(range(1, run.event_head + 1))
    assert (events[0].type, events[-1].type) == ("input_accepted", "run_ended")
    for cut in range(len(events) + 1):
        rest = await reads.run_events(store, played.run_id, world.owner_id, after=cut)
        assert rest == events[cut:]
    assert await reads.run_events(store, played.run_id, world.owner_id, limit=2) == events[:2]


async def test_the_root_context_is_the_instance_main(store: Store, world: World) -> None:
    """X2."""
    played = await play(store, world)
    (main,) = await reads.instances(store, played.run_id, world.owner_id)
    assert (main.instance, main.records) == ("main", 4)


async def test_usage_adds_up_and_an_unknown_price_is_unknown(store: Store, world: World) -> None:
    """L5: unknown, not zero; a Run that called nothing is not unknown."""
    assert await reads.usage(store, world.stranger_id) == reads.Used(0, 0, 0, 0, Decimal(0), {}, {})
    await play(store, world)
    await play(store, world)
    await say(store, world, "waiting")
    used = await reads.usage(store, world.owner_id)
    assert used == await reads.session_usage(store, world.session_id, world.owner_id)
    total = (400, 80, 160, 0, Decimal("1.00"))
    assert (tuple(getattr(used, name) for name in used.FIELDS), used.costs) == (total, {"USD": Decimal("1.00")})
    await execute(store, "UPDATE runs SET cost = NULL WHERE run_no = 1")
    used = await reads.usage(store, world.owner_id)
    assert (used.cost, used.costs) == (None, {"USD": None})


# --- operations and manifests ----------------------------------------------------------------------------------------


async def test_operations_come_in_the_order_they_were_made_with_their_attempts(store: Store, world: World) -> None:
    played = await play(store, world, loops=2)
    listed = await _all_pages(reads.operations, store, played.run_id, world.owner_id, limit=2)
    one, two, three = played.models
    assert [row.operation_id for row in listed] == [one, played.tools[0], two, played.tools[1], three]
    assert [row.purpose for row in listed] == ["business", "tool", "business", "tool", "business"]
    assert {row.state for row in listed} == {"accepted"}
    assert [len(row.attempts) for row in listed] == [1] * 5
    assert listed[0].attempts[0].usage == {
        "input_tokens": 100,
        "output_tokens": 20,
        "cached_tokens": 40,
        "reasoning_tokens": None,
        "estimated": False,
    }
    assert await reads.operation(store, two, world.owner_id) == listed[2]


async def test_a_result_is_shown_raw_or_as_it_went_on(store: Store, world: World) -> None:
    """Section 16."""
    played = await play(store, world)
    raw = await reads.operation_result(store, played.tools[0], world.owner_id, view="raw")
    effective = await reads.operation_result(store, played.tools[0], world.owner_id)
    assert raw.content == b'"sunny 1"'
    assert effective.content is not None
    assert b"sunny 1" in effective.content
    assert b'"role":"tool"' in effective.content


async def test_a_manifest_lists_what_its_request_contained(store: Store, world: World) -> None:
    """A8: by kind, place, size and hash; never content."""
    played = await play(store, world, loops=2)
    first, second, third = (await reads.manifests(store, played.run_id, world.owner_id)).items
    assert [one.operation_id for one in (first, second, third)] == list(played.models)
    assert [(item.kind, item.placement) for item in first.items] == [("system", "system"), ("input", "protected")]
    assert [item.kind for item in second.items] == ["system", "input", "assistant", "tool_result"]
    assert third.items[:4] == second.items
    assert len(third.items) == 6
    question = message_bytes(ChatMessage(role="user", content="What is the weather?"))
    assert first.items[1].content_hash == hashlib.sha256(question).hexdigest()
    assert sum(item.tokens for item in third.items) == third.estimated_input_tokens
    assert (first.model, first.counting_method, first.exact, first.validation) == (
        "demo-1",
        "test-bytes",
        False,
        "passed",
    )
    assert "weather" not in repr((first, second, third))


async def test_manifests_come_page_by_page(store: Store, world: World) -> None:
    played = await play(store, world, loops=4)
    listed = await _all_pages(reads.manifests, store, played.run_id, world.owner_id, limit=2)
    assert [one.operation_id for one in listed] == list(played.models)
    assert [len(one.items) for one in listed] == [2, 4, 6, 8, 10]


async def test_a_tail_stands_behind_the_prefix_in_the_manifest(store: Store, world: World) -> None:
    """A1, A8: state and reference after the history."""
    played = await play(store, world)
    tail = """UPDATE operations o SET tail = jsonb_build_array(jsonb_build_object(
                  'kind', 'state', 'payload_id', encode(i.payload_id, 'hex'), 'tokens', 7))
              FROM user_inputs i WHERE o.operation_id = :operation_id"""
    await execute(store, tail, operation_id=played.models[0])
    first = (await reads.manifests(store, played.run_id, world.owner_id, limit=1)).items[0]
    assert [(item.kind, item.placement) for item in first.items][-1] == ("state", "state")
    assert first.items[-1].content_hash == first.items[1].content_hash


# --- agents, people, connections -------------------------------------------------------------------------------------


async def test_agents_show_their_newest_release(store: Store, world: World) -> None:
    await publish_release(store, PublishRelease(world.space_id, release("zebra")))
    newest = await publish_release(store, PublishRelease(world.space_id, release(instructions="New.")))
    listed = await _all_pages(reads.agents, store, world.space_id, limit=1)
    assert [(one.name, one.release_no) for one in listed] == [("scout", 2), ("zebra", 1)]
    assert await reads.agent(store, world.space_id, "scout") == listed[0]
    assert listed[0].release_id == newest.release_id
    history = await _all_pages(reads.releases, store, world.space_id, "scout", limit=1)
    assert [one.release_no for one in history] == [2, 1]
    shown = await reads.release_row(store, world.space_id, world.release_id)
    assert (shown.agent, shown.release) == ("scout", release())


async def test_users_and_keys_are_listed_within_their_space(store: Store, world: World) -> None:
    foreign = await create_space_user(store, CreateSpaceUser("zoe", "admin", space_id=uuid4(), space_name="other"))
    await create_key(store, CreateKey(foreign.user_id))
    keys = [(await create_key(store, CreateKey(world.owner_id))).key_id for _ in range(3)]
    assert [one.name for one in await _all_pages(reads.users, store, world.space_id, limit=1)] == ["ada", "eve"]
    listed = await _all_pages(reads.keys, store, world.space_id, limit=2)
    assert {one.key_id for one in listed} == set(keys)
    assert {one.user for one in listed} == {"ada"}


async def test_connections_are_listed_by_name(store: Store, world: World) -> None:
    for name in ("b", "a"):
        await put_connection(store, PutConnection(world.space_id, name, "openai", None))
    assert [one.name for one in await reads.connections(store, world.space_id)] == ["a", "b"]


# --- what holds for all ----------------------------------------------------------------------------------------------


async def test_another_persons_and_an_unknown_thing_look_the_same(store: Store, world: World) -> None:
    """Y1, E: NOT_FOUND for both, from every read."""
    played = await play(store, world)
    await say(store, world, "waiting")
    of_run = (reads.run, reads.run_inputs, reads.run_events, reads.instances, reads.operations, reads.manifests)
    of_session = (reads.session, reads.session_inputs, reads.messages, reads.runs, reads.session_usage)
    of_operation = (reads.operation, reads.operation_result)
    cases: list[tuple[Callable[..., Awaitable[Any]], UUID]] = [
        *((read, played.run_id) for read in of_run),
        *((read, world.session_id) for read in of_session),
        *((read, played.models[0]) for read in of_operation),
    ]
    for read, subject in cases:
        await read(store, subject, world.owner_id)
        with pytest.raises(NotFoundError):
            await read(store, subject, world.stranger_id)
        with pytest.raises(NotFoundError):
            await read(store, uuid4(), world.owner_id)
    assert (await reads.sessions(store, world.stranger_id)).items == []


async def test_another_space_sees_no_agent_and_no_release(store: Store, world: World) -> None:
    with pytest.raises(NotFoundError):
        await reads.agent(store, uuid4(), "scout")
    with pytest.raises(NotFoundError):
        await reads.release_row(store, uuid4(), world.release_id)
    with pytest.raises(NotFoundError):
        await reads.release(store, uuid4())


@pytest.mark.parametrize("cursor", ["x", "é", "AAAA", "LTE", "OTk5OTk5OTk5OTk5OTk5OTk5OTk5"])
async def test_a_cursor_that_was_not_given_out_is_refused(store: Store, world: World, cursor: str) -> None:
    """Y5: a clear refusal, never a crash or a silent gap."""
    played = await play(store, world)
    with pytest.raises(InputInvalidError):
        await reads.sessions(store, world.owner_id, cursor=cursor)
    with pytest.raises(InputInvalidError):
        await reads.runs(store, world.session_id, world.owner_id, cursor=cursor)
    with pytest.raises(InputInvalidError):
        await reads.operations(store, played.run_id, world.owner_id, cursor=cursor)


async def test_pages_stay_whole_while_the_list_grows(store: Store, world: World) -> None:
    """Paged by key: what comes later neither hides nor repeats anything."""
    await play(store, world, loops=3)
    (run,) = (await reads.runs(store, world.session_id, world.owner_id)).items
    page = await reads.operations(store, run.run_id, world.owner_id, limit=3)
    await asyncio.gather(*(say(store, world, f"s{n}") for n in range(3)))
    rest = await reads.operations(store, run.run_id, world.owner_id, limit=200, cursor=page.next)
    ids = [one.operation_id for one in (*page.items, *rest.items)]
    assert len(ids) == len(set(ids)) == 7


HOT = {
    "sessions": "SELECT * FROM sessions WHERE owner_id = :id AND made_no < 9 ORDER BY made_no DESC LIMIT 51",
    "active run": "SELECT * FROM runs WHERE session_id = :id AND status IN ('queued', 'running')",
    "carried": """UPDATE input_deliveries SET run_id = :id
                  WHERE session_id = :id AND run_id IS NULL AND state = 'pending'""",
    "key": "SELECT * FROM api_keys WHERE key_hash = '\\x00'",
    "messages": """SELECT * FROM context_records c JOIN role_contexts x USING (context_id)
                   WHERE c.session_id = :id AND c.seq > 5 ORDER BY c.seq LIMIT 100""",
    "events": "SELECT * FROM run_events WHERE run_id = :id AND run_seq > 5 ORDER BY run_seq LIMIT 100",
    "operations": "SELECT * FROM operations WHERE run_id = :id AND made_no > 5 ORDER BY made_no LIMIT 100",
    "attempts": "SELECT * FROM attempts WHERE operation_id = :id",
    "run inputs": "SELECT * FROM input_deliveries WHERE run_id = :id",
    "view": "SELECT * FROM view_items WHERE view_id = :id AND pos < 50",
    "outbox": "SELECT * FROM outbox WHERE sent_at IS NULL AND due_at <= now() ORDER BY due_at LIMIT 32",
    "runs": "SELECT * FROM runs WHERE session_id = :id AND run_no > 3 ORDER BY run_no LIMIT 51",
}


@pytest.mark.parametrize("name", HOT)
async def test_a_hot_query_is_served_by_an_index(store: Store, world: World, name: str) -> None:
    """Growth law of DESIGN 5: no scan where an index is meant."""
    async with store.database.transaction() as connection:
        await connection.execute(text("SET LOCAL enable_seqscan = off"))
        plan = (await connection.execute(text(f"EXPLAIN {HOT[name]}"), {"id": world.session_id})).scalars()
        lines = "\n".join(plan)
    assert "Seq Scan" not in lines, lines
    assert "Index" in lines, lines


ORDERED: dict[str, tuple[TextClause, dict[str, Any]]] = {
    "sessions": (SESSIONS, {"owner_id": uuid4(), "before": 9, "limit": 51}),
    "keys": (API_KEYS, {"space_id": uuid4(), "after": 0, "limit": 101}),
    "operations": (OPERATIONS, {"run_id": uuid4(), "owner_id": uuid4(), "after": 5, "limit": 101}),
    "manifests": (
        MANIFESTS,
        {"run_id": uuid4(), "owner_id": uuid4(), "operation_id": None, "after": 5, "limit": 21},
    ),
    "compactions": (COMPACTIONS, {"run_id": uuid4(), "owner_id": uuid4(), "after": 5, "limit": 51}),
    "the last compaction": (LAST, {"context_id": uuid4()}),
}


@pytest.mark.parametrize("name", ORDERED)
async def test_a_page_is_read_in_the_order_of_its_index(store: Store, name: str) -> None:
    """DESIGN 5, S13: a page costs what it holds, and nothing is sorted, however long the list is."""
    statement, binds = ORDERED[name]
    async with store.database.transaction() as connection:
        await connection.execute(text("SET LOCAL enable_seqscan = off"))
        await connection.execute(text("SET LOCAL enable_sort = off"))
        lines = "\n".join((await connection.execute(text(f"EXPLAIN {statement.text}"), binds)).scalars())
    assert "Sort" not in lines, lines


async def test_a_payload_that_was_swapped_is_noticed(store: Store, world: World, database_url: str) -> None:
    """Y2: the body belongs to its id."""
    await say(store, world, "first words")
    await say(store, world, "other words")
    ids = await rows(store, "SELECT payload_id FROM user_inputs ORDER BY input_seq")
    swap = "UPDATE payloads SET body = (SELECT body FROM payloads WHERE payload_id = :b) WHERE payload_id = :a"
    await execute(store, swap, a=ids[0]["payload_id"], b=ids[1]["payload_id"])
    fresh = Store.open(database_url, KEYS)
    with pytest.raises(CorruptPayloadError):
        await reads.session_inputs(fresh, world.session_id, world.owner_id)
    await fresh.aclose()

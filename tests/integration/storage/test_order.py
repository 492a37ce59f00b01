"""What came first is told by sequences: the database's clock goes back an hour after each commit here (SPEC S13)."""

from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import pytest

from context.explain import NotYetArrived
from storage import reads
from storage.commits import create_key as key_commit
from storage.commits import create_session as session_commit
from storage.commits.create_key import CreateKey, create_key
from storage.commits.create_session import CreateSession, create_session
from storage.store import Store
from tests.integration.storage.played import Played, play
from tests.integration.storage.world import KEYS, ClockGoesBack, World, execute, rows, set_clock_back


@pytest.fixture
async def falling(database_url: str, store: Store) -> AsyncIterator[Store]:
    """A store whose every commit is an hour earlier than the one before, by the database's clock."""
    opened = Store.open(database_url, KEYS, faults=ClockGoesBack(store))
    yield opened
    await opened.aclose()


@pytest.fixture
async def played(falling: Store, world: World) -> Played:
    """A Run of three loops."""
    return await play(falling, world, loops=2)


async def test_operations_and_manifests_are_listed_as_they_were_made(
    store: Store, world: World, played: Played
) -> None:
    """SPEC S13, 16: over pages; each call of a model before the tools it asked for."""
    calls, requests, cursor = [], [], None
    while True:
        page = await reads.operations(store, played.run_id, world.owner_id, limit=2, cursor=cursor)
        calls += [one.operation_id for one in page.items]
        cursor = page.next
        if cursor is None:
            break
    while True:
        manifests = await reads.manifests(store, played.run_id, world.owner_id, limit=1, cursor=cursor)
        requests += [one.operation_id for one in manifests.items]
        cursor = manifests.next
        if cursor is None:
            break
    (first, second, third), (tool, other) = played.models, played.tools
    assert calls == [first, tool, second, other, third]
    assert requests == [first, second, third]


async def test_a_record_that_came_after_a_request_had_not_arrived(store: Store, world: World, played: Played) -> None:
    """SPEC A10, S13: each answer and result beside each request."""
    for place, request in enumerate(played.models):
        later = await rows(
            store,
            "SELECT record_id FROM context_records WHERE context_seq > :last ORDER BY context_seq",
            last=1 + 2 * place,
        )
        assert len(later) == 5 - 2 * place
        for row in later:
            found = await reads.explained(store, request, world.owner_id, record_id=row["record_id"])
            assert found.explanation == NotYetArrived(1 + 2 * place)


async def test_instances_are_listed_as_they_were_delegated(store: Store, world: World, played: Played) -> None:
    """SPEC X2, S13: by the calls that delegated them, `main` first."""
    first, second = uuid4(), uuid4()
    await _delegated(store, played, played.tools[0], first)
    await set_clock_back(store)
    await _delegated(store, played, played.tools[1], second)
    listed = await reads.instances(store, played.run_id, world.owner_id)
    assert [one.instance for one in listed] == ["main", str(first), str(second)]


async def _delegated(store: Store, played: Played, call: UUID, task: UUID) -> None:
    """A context of its own for a call, as an executor will have one."""
    insert = "INSERT INTO agent_tasks (task_id, run_id, role_key, parent_operation_id) VALUES (:task, :run, 'e', :call)"
    await execute(store, insert, task=task, run=played.run_id, call=call)
    context = """
        INSERT INTO role_contexts (context_id, session_id, run_id, task_id, instance, chain)
        SELECT gen_random_uuid(), session_id, run_id, :task, CAST(CAST(:task AS uuid) AS text), chain FROM role_contexts
        WHERE run_id = :run AND instance = 'main'
    """
    await execute(store, context, task=task, run=played.run_id)


class Descending:
    """Ids of a process whose clock goes back: each is smaller than the one before."""

    def __init__(self) -> None:
        self._next = 1 << 120

    def __call__(self) -> UUID:
        self._next -= 1
        return UUID(int=self._next)


async def test_sessions_and_keys_are_listed_as_they_were_made(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC S13, 16: whatever the clocks of the processes that made them; sessions newest first, keys oldest first."""
    monkeypatch.setattr(session_commit, "new_id", Descending())
    monkeypatch.setattr(key_commit, "new_id", Descending())
    made, keys = [world.session_id], []
    for _ in range(3):
        made.append((await create_session(store, CreateSession(world.space_id, world.owner_id, "scout"))).session_id)
        keys.append((await create_key(store, CreateKey(world.owner_id))).key_id)
    newest = await reads.sessions(store, world.owner_id, limit=3)
    older = await reads.sessions(store, world.owner_id, limit=3, cursor=newest.next)
    assert [one.session_id for one in (*newest.items, *older.items)] == made[::-1]
    oldest = await reads.keys(store, world.space_id, limit=2)
    newer = await reads.keys(store, world.space_id, limit=2, cursor=oldest.next)
    assert [one.key_id for one in (*oldest.items, *newer.items)] == keys

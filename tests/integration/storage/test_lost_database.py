"""A database that is away is one error, whatever shape it takes, and it quotes nothing that was sent (SPEC R8, Y6)."""

import asyncio
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from context.errors import AgentLoomError, NotFoundError, UnavailableError
from storage import reads
from storage.commits.accept_input import AcceptInput, accept_input
from storage.commits.create_key import CreateKey, create_key
from storage.database import fetch_all
from storage.store import Store
from tests.integration.storage.world import KEYS, World, count, say


async def _terminate_others(store: Store) -> None:
    async with store.reading() as connection:
        await connection.execute(
            text("""SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                    WHERE datname = current_database() AND pid <> pg_backend_pid()""")
        )


async def test_a_database_that_does_not_listen_is_unavailable() -> None:
    store = Store.open("postgresql://nobody:secret@127.0.0.1:1/none", KEYS)
    with pytest.raises(UnavailableError) as lost:
        await accept_input(store, AcceptInput(uuid4(), uuid4(), "MARK-1"))
    assert lost.value.__cause__ is None
    with pytest.raises(UnavailableError):
        await reads.find_key(store, "al_x")
    await store.aclose()


async def test_a_connection_lost_inside_a_transaction_is_unavailable(
    store: Store, world: World, database_url: str
) -> None:
    """R8: and the next try finds a fresh connection."""
    other = Store.open(database_url, KEYS)

    async def lose() -> None:
        async with store.transaction("probe") as connection:
            await connection.execute(text("SELECT 1"))
            await _terminate_others(other)
            await connection.execute(text("SELECT 1"))

    with pytest.raises(UnavailableError):
        await lose()
    assert (await say(store, world, "q")).input_seq == 1
    await other.aclose()


async def test_idle_connections_that_were_cut_cost_at_most_one_refused_try_each(
    store: Store, world: World, database_url: str
) -> None:
    """R8: whoever repeats after UnavailableError gets through."""
    await asyncio.gather(*(reads.find_key(store, "al_x") for _ in range(8)))
    other = Store.open(database_url, KEYS)
    await _terminate_others(other)
    await other.aclose()
    for _ in range(20):
        try:
            accepted = await say(store, world, "q", client_key="key")
            break
        except UnavailableError:
            continue
    assert accepted.input_seq == 1
    assert await count(store, "user_inputs") == 1


async def test_a_lock_that_is_not_given_up_is_unavailable(store: Store, world: World, database_url: str) -> None:
    """A waiting commit gives up after `lock_timeout` instead of holding its caller."""
    holder = Store.open(database_url, KEYS)
    async with holder.database.transaction() as connection:
        await connection.execute(text("SELECT 1 FROM sessions FOR UPDATE"))
        with pytest.raises(UnavailableError):
            await say(store, world, "q")
    await holder.aclose()
    assert await count(store, "user_inputs") == 0


async def test_two_that_wait_for_each_other_are_told_to_send_again(store: Store, world: World) -> None:
    """Our locks have one order; should one be wrong, a deadlock is no failure of a Run."""
    both_hold = asyncio.Barrier(2)

    async def lock(first: UUID, second: UUID) -> None:
        async with store.transaction("probe") as connection:
            statement = text("UPDATE users SET role = role WHERE user_id = :user")
            await connection.execute(statement, {"user": first})
            await both_hold.wait()
            await connection.execute(statement, {"user": second})

    one, two = world.owner_id, world.stranger_id
    results = await asyncio.gather(lock(one, two), lock(two, one), return_exceptions=True)
    assert [type(result) for result in results if result] == [UnavailableError]


async def test_a_wrong_statement_is_not_taken_for_a_lost_database(store: Store) -> None:
    with pytest.raises(Exception, match="does_not_exist") as wrong:
        async with store.transaction("probe") as connection:
            await connection.execute(text("SELECT does_not_exist"))
    assert not isinstance(wrong.value, UnavailableError)


async def test_a_violated_constraint_speaks_without_values(store: Store, world: World) -> None:
    """Y6: the driver's text quotes the row; ours names the constraint."""
    with pytest.raises(NotFoundError):
        await create_key(store, CreateKey(uuid4()))
    duplicate = text("INSERT INTO spaces (space_id, name) VALUES (:space, 'MARK-2')")
    with pytest.raises(AgentLoomError) as refused:
        async with store.transaction("probe") as connection:
            await connection.execute(duplicate, {"space": world.space_id})
    assert "pk_spaces" in str(refused.value)
    assert "MARK-2" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert str(world.space_id) not in str(refused.value)


@pytest.mark.parametrize("kind", ["transaction", "single"])
async def test_a_cancellation_is_never_taken_for_a_lost_database(store: Store, world: World, kind: str) -> None:
    """W5, W7: whoever goes on while the database is away would go on for ever, whenever it is told to end."""

    async def at_work() -> None:
        while True:
            try:
                if kind == "single":
                    await count(store, "sessions")
                    continue
                async with store.transaction("probe", durable=False) as connection:
                    await connection.execute(text("SELECT 1 FROM sessions FOR UPDATE"))
                    await fetch_all(connection, text("SELECT 1 FROM users FOR UPDATE"))
            except UnavailableError:
                continue

    for n in range(80):
        worker = asyncio.create_task(at_work())
        await asyncio.sleep(n * 0.0002)
        worker.cancel()
        done, _ = await asyncio.wait({worker}, timeout=2)
        assert done, f"it went on after {n * 0.2:.1f} ms"
        assert worker.cancelled()


async def test_what_follows_a_cancelled_transaction_is_committed(store: Store, world: World, database_url: str) -> None:
    """W5: wherever a cancellation strikes, no open transaction is left in the pool: it would swallow commits."""

    async def transact() -> None:
        async with store.transaction("probe", durable=False) as connection:
            await fetch_all(connection, text("SELECT 1 FROM users FOR UPDATE"))

    note = text("INSERT INTO audit_log (audit_id, action, subject) VALUES (gen_random_uuid(), 'probe', '')")
    other = Store.open(database_url, KEYS)
    for n in range(60):
        worker = asyncio.create_task(transact())
        await asyncio.sleep(n * 0.00005)
        worker.cancel()
        await asyncio.wait({worker})
        async with store.single("probe") as connection:
            await fetch_all(connection, note)
        assert await count(other, "audit_log", "action = 'probe'") == n + 1
    await other.aclose()

"""A database that is away is one error, whatever shape it takes, and it quotes nothing that was sent (SPEC R8, Y6)."""

import asyncio
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from context.errors import AgentLoomError, NotFoundError, UnavailableError
from storage import database, migrate, reads
from storage.commits.accept_input import AcceptInput, accept_input
from storage.commits.create_key import CreateKey, create_key
from storage.database import fetch_all
from storage.events import RunEventFeed
from storage.store import Store
from tests.integration.storage.world import KEYS, World, count, say


async def _terminate_others(store: Store) -> None:
    async with store.reading() as connection:
        await connection.execute(
            text("""SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                    WHERE datname = current_database() AND pid <> pg_backend_pid()""")
        )


async def test_a_database_that_does_not_listen_is_unavailable() -> None:
    """SPEC R8."""
    store = Store.open("postgresql://nobody:secret@127.0.0.1:1/none", KEYS)
    with pytest.raises(UnavailableError) as lost:
        await accept_input(store, AcceptInput(uuid4(), uuid4(), "MARK-1"))
    assert lost.value.__cause__ is None
    with pytest.raises(UnavailableError):
        await reads.find_key(store, "al_x")
    await store.aclose()


async def test_an_account_that_may_not_in_any_more_is_waited_for(database_url: str) -> None:
    """SPEC R8: its password was changed, or its database is being restored; whoever restarts the process mends it."""
    for changed in (database_url.replace("agentloom:", "agentloom:old"), f"{database_url}_gone"):
        store = Store.open(changed, KEYS)
        with pytest.raises(UnavailableError) as lost:
            await reads.find_key(store, "al_x")
        assert lost.value.__cause__ is None
        await store.aclose()


async def test_an_address_with_the_parameters_of_other_programs_leads_to_the_database(database_url: str) -> None:
    """SPEC 17: `sslmode` stands in what hosts of databases give out; several servers are tried in order."""
    account, _, place = database_url.partition("@")
    for told in (f"{database_url}?sslmode=prefer", f"{account}@127.0.0.1:1,{place}?target_session_attrs=read-write"):
        assert (await migrate.revision(told))[0] == migrate.head()
        store = Store.open(told, KEYS)
        async with RunEventFeed(store), store.reading() as connection:
            assert await connection.scalar(text("SHOW application_name")) == "agentloom"
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


async def test_a_process_that_freezes_inside_a_transaction_holds_nobody_up_for_ever(
    store: Store, world: World, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC S13, R8: its locks are taken from it, and it finds that out like a lost connection when it goes on."""
    monkeypatch.setattr(database, "LONGEST_PAUSE", "300ms")
    frozen = Store.open(database_url, KEYS)

    async def freeze() -> None:
        async with frozen.transaction("probe") as connection:
            await connection.execute(text("SELECT 1 FROM sessions FOR UPDATE"))
            await say(store, world, "q")
            await connection.execute(text("SELECT 1"))

    with pytest.raises(UnavailableError):
        await freeze()
    assert await count(store, "user_inputs") == 1
    assert (await say(frozen, world, "s")).input_seq == 2
    await frozen.aclose()


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


@pytest.mark.parametrize(
    "state",
    [
        pytest.param("25006", id="not the primary yet"),
        pytest.param("25P03", id="idle for too long"),
        pytest.param("40001", id="not serialisable"),
        pytest.param("53100", id="disk full"),
        pytest.param("53200", id="out of memory"),
        pytest.param("57014", id="cancelled by an operator"),
        pytest.param("58030", id="disk broken"),
    ],
)
async def test_what_an_operator_has_to_mend_is_no_failure_of_a_run(store: Store, state: str) -> None:
    """R8: it clears without us, so whoever holds a result waits with it instead of calling again."""
    raised = text(f"DO $$ BEGIN RAISE EXCEPTION 'MARK-3' USING ERRCODE = '{state}'; END $$")
    for statement in (lambda connection: connection.execute(raised), lambda connection: fetch_all(connection, raised)):
        with pytest.raises(UnavailableError) as lost:
            async with store.transaction("probe") as connection:
                await statement(connection)
        assert lost.value.__cause__ is None


async def test_a_statement_of_an_older_schema_is_sent_again(store: Store, database_url: str) -> None:
    """R8: a migration beside a running process; what it had prepared is forgotten with the first refusal."""
    other = Store.open(database_url, KEYS)
    asked = text("SELECT * FROM changing")

    async def ask() -> int:
        async with store.transaction("probe") as connection:
            return len(await fetch_all(connection, asked))

    async def change(statement: str) -> None:
        async with other.transaction("probe") as connection:
            await connection.execute(text(statement))

    await change("CREATE TABLE changing AS SELECT 1 AS one")
    assert await ask() == 1
    await change("ALTER TABLE changing ADD COLUMN two text")
    with pytest.raises(UnavailableError):
        await ask()
    assert await ask() == 1
    await other.aclose()


async def test_a_connection_to_a_replaced_primary_is_given_up(store: Store, world: World, database_url: str) -> None:
    """R8: it would stay read-only for ever; the next try connects anew, to what is the primary then."""
    other = Store.open(database_url, KEYS)

    async def set_read_only(value: str) -> None:
        async with other.reading() as connection:
            await connection.execute(text("SET default_transaction_read_only = off"))
            name = (await fetch_all(connection, text("SELECT current_database() AS name")))[0]["name"]
            await connection.execute(text(f'ALTER DATABASE "{name}" SET default_transaction_read_only = {value}'))

    await set_read_only("on")
    await _terminate_others(other)
    for _ in range(3):
        with pytest.raises(UnavailableError):
            await say(store, world, "q", client_key="key")
    await set_read_only("off")
    assert (await say(store, world, "q", client_key="key")).input_seq == 1
    await other.aclose()


async def test_a_wrong_statement_is_not_taken_for_a_lost_database(store: Store) -> None:
    """SPEC R8: a fault of ours is not waited out."""
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

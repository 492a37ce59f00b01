"""Users, keys, releases, connections and sessions: sent twice, sent at once, and by strangers."""

import asyncio
from uuid import uuid4

import pytest

from context.errors import NotFoundError, RunActiveError
from storage import reads
from storage.bootstrap import ensure_dev_user
from storage.commits.create_key import CreateKey, create_key
from storage.commits.create_session import CreateSession, create_session
from storage.commits.create_space_user import CreateSpaceUser, create_space_user
from storage.commits.delete_connection import DeleteConnection, delete_connection
from storage.commits.publish_release import PublishRelease, publish_release
from storage.commits.put_connection import PutConnection, put_connection
from storage.commits.revoke_key import RevokeKey, revoke_key
from storage.commits.update_session import UpdateSession, update_session
from storage.payloads import Keys
from storage.store import Store
from tests.integration.storage.world import KEYS, World, count, end_run, release, rows, say


async def test_a_user_is_made_once_however_often_it_is_asked_for(store: Store) -> None:
    """SPEC Y1, W5."""
    made = await asyncio.gather(*(create_space_user(store, CreateSpaceUser("bob", "member")) for _ in range(8)))
    assert len({one.user_id for one in made}) == 1
    assert sum(one.created for one in made) == 1
    again = await create_space_user(store, CreateSpaceUser("bob", "admin"))
    assert (again.created, again.role) == (False, "member")


async def test_the_development_user_is_the_same_after_a_restart(database_url: str, store: Store) -> None:
    """Y1, section 17: idempotent, and its key opens the API."""
    for _ in range(2):
        await ensure_dev_user(database_url, index_key=KEYS.index, api_key="al_dev")
    assert (await count(store, "users"), await count(store, "api_keys")) == (1, 1)
    principal = await reads.find_key(store, "al_dev")
    assert principal is not None
    assert principal.role == "admin"


async def test_a_key_names_its_user_until_it_is_revoked(store: Store, world: World) -> None:
    """Y1."""
    created = await create_key(store, CreateKey(world.owner_id))
    assert await reads.find_key(store, created.key) == reads.Principal(world.owner_id, world.space_id, "admin")
    for _ in range(2):
        await revoke_key(store, RevokeKey(created.key_id, world.space_id))
    assert await reads.find_key(store, created.key) is None


async def test_an_unknown_key_names_nobody(store: Store, world: World) -> None:
    """SPEC Y1."""
    assert await reads.find_key(store, "al_guess") is None
    assert await reads.find_key(store, "") is None
    assert await reads.find_key(store, "\ud800") is None


async def test_a_key_is_not_known_under_another_index_key(store: Store, world: World, database_url: str) -> None:
    """Y1: who has the database alone cannot test a guess."""
    created = await create_key(store, CreateKey(world.owner_id))
    other = Store.open(database_url, Keys(master=KEYS.master, index=b"x" * 32))
    assert await reads.find_key(other, created.key) is None
    await other.aclose()


async def test_a_key_is_shown_once_and_stored_as_a_hash(store: Store, world: World) -> None:
    """Y1, L6."""
    created = await create_key(store, CreateKey(world.owner_id))
    assert created.key not in repr(created)
    assert await count(store, "api_keys k", "k::text LIKE '%' || :key || '%'", key=created.key[7:]) == 0


async def test_another_spaces_key_cannot_be_revoked(store: Store, world: World) -> None:
    """SPEC Y1."""
    created = await create_key(store, CreateKey(world.owner_id))
    with pytest.raises(NotFoundError):
        await revoke_key(store, RevokeKey(created.key_id, uuid4()))
    assert await reads.find_key(store, created.key) is not None


async def test_a_key_for_nobody_is_refused(store: Store) -> None:
    """SPEC Y1."""
    with pytest.raises(NotFoundError):
        await create_key(store, CreateKey(uuid4()))


async def test_publishing_the_same_again_is_the_same_release(store: Store, world: World) -> None:
    """Section 0: a frozen, numbered, hashed configuration."""
    again = await publish_release(store, PublishRelease(world.space_id, release()))
    assert (again.release_id, again.release_no, again.created) == (world.release_id, 1, False)
    changed = await publish_release(store, PublishRelease(world.space_id, release(instructions="Be long.")))
    assert (changed.release_no, changed.created) == (2, True)
    back = await publish_release(store, PublishRelease(world.space_id, release()))
    assert (back.release_no, back.created) == (3, True)
    assert back.release_hash == again.release_hash


async def test_releases_published_at_once_are_numbered_without_gap(store: Store, world: World) -> None:
    """SPEC 0: a release is numbered."""
    wanted = [PublishRelease(world.space_id, release(instructions=f"v{n}")) for n in range(10)]
    published = await asyncio.gather(*(publish_release(store, one) for one in wanted))
    assert sorted(one.release_no for one in published) == list(range(2, 12))


async def test_a_release_reads_back_as_it_was_published(store: Store, world: World, database_url: str) -> None:
    """Y2: encrypted at rest."""
    fresh = Store.open(database_url, KEYS)
    assert await reads.release(fresh, world.release_id) == release()
    assert await reads.release(fresh, world.release_id) is await reads.release(fresh, world.release_id)
    await fresh.aclose()
    assert await count(store, "payloads", "position(convert_to('Be brief', 'UTF8') in body) > 0") == 0


async def test_publishing_in_an_unknown_space_is_refused(store: Store) -> None:
    """SPEC Y1, E."""
    with pytest.raises(NotFoundError):
        await publish_release(store, PublishRelease(uuid4(), release()))


async def test_a_session_needs_an_agent_of_the_space(store: Store, world: World) -> None:
    """SPEC Y1."""
    with pytest.raises(NotFoundError):
        await create_session(store, CreateSession(world.space_id, world.owner_id, "nobody"))
    with pytest.raises(NotFoundError):
        await create_session(store, CreateSession(uuid4(), world.owner_id, "scout"))


async def test_a_title_is_stored_as_content(store: Store, world: World) -> None:
    """Y2: titles are encrypted."""
    created = await create_session(store, CreateSession(world.space_id, world.owner_id, "scout", "MARK-TITLE"))
    assert (await reads.session(store, created.session_id, world.owner_id)).title == "MARK-TITLE"
    await update_session(store, UpdateSession(created.session_id, world.owner_id, title="Other"))
    assert (await reads.session(store, created.session_id, world.owner_id)).title == "Other"
    await update_session(store, UpdateSession(created.session_id, world.owner_id, title=""))
    assert (await reads.session(store, created.session_id, world.owner_id)).title is None
    assert await count(store, "payloads", "position(convert_to('MARK-TITLE', 'UTF8') in body) > 0") == 0


async def test_archiving_can_be_repeated_and_undone(store: Store, world: World) -> None:
    """M3, case 097."""
    for wanted in (True, True, False, False):
        await update_session(store, UpdateSession(world.session_id, world.owner_id, archived=wanted))
        assert (await reads.session(store, world.session_id, world.owner_id)).archived is wanted


async def test_a_session_with_an_active_run_is_not_archived(store: Store, world: World) -> None:
    """M3, case 097: refused, naming the Run; after its end it goes."""
    question = await say(store, world, "q")
    with pytest.raises(RunActiveError) as refused:
        await update_session(store, UpdateSession(world.session_id, world.owner_id, archived=True))
    assert refused.value.numbers["run_id"] == str(question.run_id)
    await end_run(store, question.run_id)
    await update_session(store, UpdateSession(world.session_id, world.owner_id, archived=True))


async def test_archiving_and_asking_at_once_never_do_both(store: Store, world: World) -> None:
    """S1, M3: the session's lock decides."""
    for _ in range(5):
        session = await create_session(store, CreateSession(world.space_id, world.owner_id, "scout"))
        archive = update_session(store, UpdateSession(session.session_id, world.owner_id, archived=True))
        await asyncio.gather(archive, say(store, world, "q", session_id=session.session_id), return_exceptions=True)
        (row,) = await rows(
            store,
            """SELECT (archived_at IS NOT NULL)::int + (run_head > 0)::int AS done
               FROM sessions WHERE session_id = :session_id""",
            session_id=session.session_id,
        )
        assert row["done"] == 1


async def test_another_person_cannot_change_a_session(store: Store, world: World) -> None:
    """Y1."""
    with pytest.raises(NotFoundError):
        await update_session(store, UpdateSession(world.session_id, world.stranger_id, title="mine"))


def _connection(world: World, **more: object) -> PutConnection:
    plain = {"name": "main", "provider": "openai", "base_url": "https://api.example/v1"}
    return PutConnection(**({"space_id": world.space_id} | plain | more))  # type: ignore[arg-type]


async def test_a_connection_keeps_its_key_while_provider_and_address_stay(store: Store, world: World) -> None:
    """L3, L6."""
    await put_connection(store, _connection(world, secret="sk-secret", models=({"id": "m"},)))
    await put_connection(store, _connection(world))
    assert (await reads.stored_key(store, world.space_id, "main")).secret == "sk-secret"
    assert (await reads.connection(store, world.space_id, "main")).models == ({"id": "m"},)
    await put_connection(store, _connection(world, base_url="https://elsewhere.example"))
    assert not (await reads.connection(store, world.space_id, "main")).has_key
    assert await count(store, "connections") == 1


async def test_a_connection_never_shows_its_key(store: Store, world: World) -> None:
    """L6."""
    request = _connection(world, secret="sk-secret")
    await put_connection(store, request)
    shown = await reads.connections(store, world.space_id)
    stored = await reads.stored_key(store, world.space_id, "main")
    assert "sk-secret" not in repr((request, shown, stored))
    assert shown[0].has_key
    assert await count(store, "connections c", "c::text LIKE '%sk-secret%'") == 0
    assert await count(store, "payloads", "position(convert_to('sk-secret', 'UTF8') in body) > 0") == 0


async def test_a_replaced_or_deleted_key_is_gone(store: Store, world: World) -> None:
    """L6."""
    before = await count(store, "payloads")
    await put_connection(store, _connection(world, secret="first"))
    await put_connection(store, _connection(world, secret="second"))
    assert await count(store, "payloads") == before + 1
    await delete_connection(store, DeleteConnection(world.space_id, "main"))
    assert await count(store, "payloads") == before
    with pytest.raises(NotFoundError):
        await delete_connection(store, DeleteConnection(world.space_id, "main"))


async def test_one_connection_put_by_many_at_once_is_one(store: Store, world: World) -> None:
    """SPEC L6, W5."""
    await asyncio.gather(*(put_connection(store, _connection(world, secret=f"key-{n % 3}")) for n in range(12)))
    assert await count(store, "connections") == 1
    assert (await reads.stored_key(store, world.space_id, "main")).secret in {"key-0", "key-1", "key-2"}


async def test_another_spaces_connection_does_not_exist(store: Store, world: World) -> None:
    """SPEC L6, Y1."""
    await put_connection(store, _connection(world))
    with pytest.raises(NotFoundError):
        await reads.connection(store, uuid4(), "main")
    assert await reads.connections(store, uuid4()) == []

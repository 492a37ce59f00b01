"""Whether the configured keys open what a database holds, asked before a process works with it (SPEC Y1, Y2)."""

import pytest

from context.errors import UnavailableError
from storage.commits.create_session import CreateSession, create_session
from storage.fitting_keys import UnfitKeysError, check_keys
from storage.payloads import Keys
from storage.reencrypting import reencrypted
from storage.store import Store
from tests.integration.storage.world import KEYS, World, execute

OLD, NEW, OTHER = KEYS.master["k1"], b"n" * 32, b"o" * 32
INDEX = KEYS.index


@pytest.fixture
async def content(store: Store, world: World) -> None:
    """A release and some titles."""
    for number in range(6):
        await create_session(store, CreateSession(world.space_id, world.owner_id, "scout", f"Title {number}"))


async def unfit(database_url: str, keys: Keys, *, lost: frozenset[str] = frozenset()) -> str:
    """What a process with these keys is told; empty if they fit."""
    store = Store.open(database_url, keys, pool_size=1)
    try:
        await check_keys(store, lost=lost)
    except UnfitKeysError as error:
        return str(error)
    finally:
        await store.aclose()
    return ""


async def test_an_empty_database_takes_any_keys(database_url: str) -> None:
    """Y1."""
    assert await unfit(database_url, Keys({"k9": OTHER}, b"x" * 32)) == ""


async def test_a_database_without_tables_names_the_command_that_makes_them(empty_database_url: str) -> None:
    """17: what, why, next."""
    assert "agentloom migrate" in await unfit(empty_database_url, KEYS)


@pytest.mark.usefixtures("content")
@pytest.mark.parametrize(
    "keys",
    [KEYS, Keys({"k2": NEW, "k1": OLD}, INDEX), Keys({"k1": OLD, "k2": NEW}, INDEX)],
    ids=["the keys it was written with", "a new one before", "a new one behind"],
)
async def test_keys_that_open_what_is_stored_fit(database_url: str, keys: Keys) -> None:
    """Y2: one that nothing is stored under yet opens nothing, and need not."""
    assert await unfit(database_url, keys) == ""


@pytest.mark.usefixtures("content")
@pytest.mark.parametrize(
    ("keys", "told"),
    [
        (Keys({"k1": OTHER}, INDEX), "Key k1 of AGENTLOOM_MASTER_KEYS opens nothing"),
        (Keys({"k2": NEW, "k1": OTHER}, INDEX), "Key k1 of AGENTLOOM_MASTER_KEYS opens nothing"),
        (Keys({"k2": OLD}, INDEX), "keys that are not given: k1"),
        (Keys({"k1": OLD}, b"x" * 32), "AGENTLOOM_INDEX_KEY is another one"),
    ],
    ids=["another key of that id", "also behind a new one", "the same key by another name", "another index key"],
)
async def test_keys_that_do_not_fit_are_named_with_what_to_do(database_url: str, keys: Keys, told: str) -> None:
    """Y1, Y2: by their ids, never by themselves."""
    said = await unfit(database_url, keys)
    assert told in said
    assert "DATABASE_URL" in said


@pytest.mark.usefixtures("content")
async def test_a_key_is_needed_until_nothing_is_left_under_it(store: Store, database_url: str) -> None:
    """Y2: what a key that was taken out too early still encrypts is found however little it is."""
    only_new = Keys({"k2": NEW}, INDEX)
    both = Store.open(database_url, Keys({"k2": NEW, "k1": OLD}, INDEX), pool_size=1)
    assert [batch.count for batch in [one async for one in reencrypted(both)]]
    assert await unfit(database_url, only_new) == ""
    await execute(both, "UPDATE payloads SET key_id = 'k1' WHERE payload_id = (SELECT max(payload_id) FROM payloads)")
    assert "keys that are not given: k1" in await unfit(database_url, only_new)
    await both.aclose()


@pytest.mark.usefixtures("content")
async def test_a_key_that_is_lost_for_good_keeps_nobody_from_starting(database_url: str) -> None:
    """Y2: if it is named as that; what it encrypted stays unreadable."""
    for keys in (Keys({"k2": NEW}, INDEX), Keys({"k2": NEW, "k1": OTHER}, INDEX)):
        assert "AGENTLOOM_LOST_KEYS=k1" in await unfit(database_url, keys)
        assert await unfit(database_url, keys, lost=frozenset({"k1"})) == ""


@pytest.mark.usefixtures("content")
async def test_one_damaged_payload_is_no_other_key(store: Store, database_url: str) -> None:
    """Y2: whoever reads it is told; everybody else goes on."""
    await execute(store, "UPDATE payloads SET body = '' WHERE payload_id = (SELECT max(payload_id) FROM payloads)")
    assert await unfit(database_url, KEYS) == ""


@pytest.mark.usefixtures("content")
async def test_content_of_a_form_that_this_version_does_not_know_is_no_other_key(
    store: Store, database_url: str
) -> None:
    """Y2: an older version that was put back starts, and says so of that content alone."""
    await execute(store, "UPDATE payloads SET codec = 'brotli'")
    assert await unfit(database_url, KEYS) == ""


async def test_a_database_that_is_away_tells_nothing() -> None:
    """R8: the question can be asked again."""
    with pytest.raises(UnavailableError):
        await unfit("postgresql://ann@127.0.0.1:1/loom", KEYS)

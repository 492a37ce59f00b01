"""A new master key: what older ones encrypted is encrypted anew, all of it, whatever happens in between (SPEC Y2)."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from storage import reads
from storage.commits.create_session import CreateSession, create_session
from storage.commits.reencrypt_payloads import ReencryptPayloads, reencrypt_payloads
from storage.payloads import Keys
from storage.reencrypting import keys_in_use, reencrypted
from storage.store import Store
from tests.integration.storage.world import KEYS, World, count, environment, execute, rows
from tests.support.dev_stack import run_agentloom
from tests.support.faults import Fault

OLD, NEW = KEYS.master["k1"], b"n" * 32
BOTH = Keys({"k2": NEW, "k1": OLD}, KEYS.index)
TITLES = [f"Title {n}" for n in range(10)]
FACTS = "SELECT payload_id, digest, size, codec, tokens FROM payloads ORDER BY payload_id"


@pytest.fixture
async def rotated(store: Store, world: World, database_url: str) -> AsyncIterator[Store]:
    """Ten titles and a large one under the old key, and a store that encrypts under the new one."""
    for title in [*TITLES, "x" * 400]:
        await create_session(store, CreateSession(world.space_id, world.owner_id, "scout", title))
    opened = Store.open(database_url, BOTH)
    yield opened
    await opened.aclose()


async def titles(database_url: str, world: World, keys: Keys) -> list[str]:
    """What the sessions are called, for somebody who has these keys."""
    opened = Store.open(database_url, keys)
    try:
        page = await reads.sessions(opened, world.owner_id, limit=100)
    finally:
        await opened.aclose()
    return sorted(one.title for one in page.items if one.title and one.title in TITLES)


async def test_afterwards_everything_reads_with_the_new_key_alone(
    rotated: Store, world: World, database_url: str
) -> None:
    """Y2: and nothing but the encryption has changed, so that ids, chains and counted tokens stay true."""
    facts, before = await rows(rotated, FACTS), await keys_in_use(rotated)
    batches = [one async for one in reencrypted(rotated, ReencryptPayloads(rows=3))]
    assert sum(one.count for one in batches) == before["k1"] == len(facts)
    assert max(one.count for one in batches) == 3
    assert await keys_in_use(rotated) == {"k2": len(facts)}
    assert await rows(rotated, FACTS) == facts
    assert await titles(database_url, world, Keys({"k2": NEW}, KEYS.index)) == TITLES


async def test_a_batch_has_so_many_bytes_at_most_and_a_large_payload_has_its_own(rotated: Store) -> None:
    """Y2: memory does not grow with what is stored."""
    total = (await keys_in_use(rotated))["k1"]
    batches = [one async for one in reencrypted(rotated, ReencryptPayloads(max_bytes=1))]
    assert [one.count for one in batches] == [1] * total


async def test_a_second_pass_finds_nothing(rotated: Store) -> None:
    """Y2: sent twice is done once."""
    assert (await reencrypt_payloads(rotated, ReencryptPayloads())).count > 0
    bodies = await rows(rotated, "SELECT body FROM payloads ORDER BY payload_id")
    again = await reencrypt_payloads(rotated, ReencryptPayloads())
    assert (again.last, again.count) == (None, 0)
    assert await rows(rotated, "SELECT body FROM payloads ORDER BY payload_id") == bodies


@pytest.mark.parametrize(("point", "done"), [("before_commit", 3), ("after_commit", 6)])
async def test_killed_half_way_it_goes_on_where_it_was(
    rotated: Store, world: World, database_url: str, tmp_path: Path, point: str, done: int
) -> None:
    """Y2, R7: each batch is whole or not there, and everything stays readable at every moment."""
    total = (await keys_in_use(rotated))["k1"]
    fault = Fault(f"reencrypt_payloads.{point}", str(tmp_path / "reached"), nth=2)
    child = subprocess.run(
        [sys.executable, "-m", "tests.support.child_reencryption"],
        input=json.dumps([fault.as_json()]) + "\n",
        env=os.environ | environment(rotated.database.url, BOTH),
        text=True,
        capture_output=True,
        timeout=30,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr
    assert await keys_in_use(rotated) == {"k1": total - done, "k2": done}
    assert await titles(database_url, world, BOTH) == TITLES
    finished = run_agentloom(
        "keys", "reencrypt", "--rows", "4", "--json", environment=environment(rotated.database.url, BOTH)
    )
    assert json.loads(finished.stdout) == {"key": "k2", "reencrypted": total - done, "unreadable": 0, "left": {}}
    assert await titles(database_url, world, Keys({"k2": NEW}, KEYS.index)) == TITLES


async def test_the_command_shows_how_far_it_is_and_says_that_the_old_key_can_go(rotated: Store) -> None:
    """17, Y2."""
    total = (await keys_in_use(rotated))["k1"]
    said = run_agentloom("keys", "reencrypt", "--rows", "5", environment=environment(rotated.database.url, BOTH))
    assert (said.returncode, said.stdout.splitlines()) == (
        0,
        [
            f"{total} payloads encrypted anew under k2",
            "nothing is left under another key: the others can be taken out of AGENTLOOM_MASTER_KEYS",
        ],
    )
    assert f"{total} of {total}" in said.stderr


async def test_without_a_key_that_is_in_use_the_command_refuses_and_changes_nothing(rotated: Store) -> None:
    """Y2."""
    before = await keys_in_use(rotated)
    only_new = environment(rotated.database.url, Keys({"k2": NEW}, KEYS.index))
    refused = run_agentloom("keys", "reencrypt", environment=only_new)
    assert refused.returncode == 2
    assert "keys that are not given: k1" in refused.stderr
    assert len(refused.stderr.splitlines()) == 3
    assert await keys_in_use(rotated) == before


@pytest.mark.parametrize("command", ["reencrypt", "bootstrap"])
async def test_with_another_key_of_the_same_id_the_commands_refuse_and_change_nothing(
    rotated: Store, command: str
) -> None:
    """Y1, Y2: what was encrypted or hashed with it would be of no use to anybody."""
    before = await rows(rotated, "SELECT payload_id, body FROM payloads"), await count(rotated, "api_keys")
    refused = run_agentloom(
        "keys", command, environment=environment(rotated.database.url, Keys({"k1": NEW}, b"x" * 32))
    )
    assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 3)
    assert "Key k1 of AGENTLOOM_MASTER_KEYS opens nothing" in refused.stderr
    assert (await rows(rotated, "SELECT payload_id, body FROM payloads"), await count(rotated, "api_keys")) == before


async def test_one_payload_that_does_not_decrypt_keeps_no_other_back(rotated: Store) -> None:
    """Y2: it is told, and stays as it is for whoever mends it."""
    sql = "UPDATE payloads SET body = body || '\\x00' WHERE payload_id = (SELECT min(payload_id) FROM payloads)"
    await execute(rotated, sql)
    total = await count(rotated, "payloads")
    said = run_agentloom("keys", "reencrypt", "--json", environment=environment(rotated.database.url, BOTH))
    assert said.returncode == 1
    assert json.loads(said.stdout) == {"key": "k2", "reencrypted": total - 1, "unreadable": 1, "left": {"k1": 1}}

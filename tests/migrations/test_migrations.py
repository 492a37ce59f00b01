"""The migrations make exactly the schema the code was written for, from nothing, and one at a time."""

import asyncio
import re
from pathlib import Path

import asyncpg
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection

from context.errors import UnavailableError
from storage import migrate
from storage.database import engine_on, plain_url
from storage.snapshot_tables import metadata

VERSIONS = Path(migrate.MIGRATIONS) / "versions"


async def test_an_upgraded_database_is_what_the_tables_say(empty_database_url: str) -> None:
    """No table, column, type, default, index or constraint differs."""
    await migrate.upgrade(empty_database_url)
    engine = engine_on(empty_database_url)
    async with engine.connect() as connection:
        assert await connection.run_sync(_differences) == []
    await engine.dispose()


def _differences(connection: Connection) -> list[object]:
    options = {"compare_type": True, "compare_server_default": True}
    return list(compare_metadata(MigrationContext.configure(connection, opts=options), metadata))


async def test_a_revision_is_none_before_and_the_newest_after(empty_database_url: str) -> None:
    assert await migrate.revision(empty_database_url) == (None, migrate.head())
    await migrate.upgrade(empty_database_url)
    assert await migrate.revision(empty_database_url) == (migrate.head(), migrate.head())


async def test_migrators_at_the_same_time_wait_for_each_other(empty_database_url: str) -> None:
    """Each replica of a deployment may migrate at its start."""
    await asyncio.gather(*(migrate.upgrade(empty_database_url) for _ in range(4)))
    assert (await migrate.revision(empty_database_url))[0] == migrate.head()


async def test_an_unreachable_database_is_unavailable() -> None:
    """R8: in the words of the domain, not of the driver."""
    with pytest.raises(UnavailableError):
        await migrate.upgrade("postgresql://nobody@127.0.0.1:1/none")


def test_every_step_is_named_pre_or_post_in_an_unbroken_order() -> None:
    names = sorted(path.name for path in VERSIONS.glob("*.py"))
    assert all(re.fullmatch(r"\d{4}_(pre|post)_[a-z0-9_]+\.py", name) for name in names)
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1))


OLD_FACTS = """
    SET LOCAL session_replication_role = replica;
    INSERT INTO runs (run_id, session_id, run_no, release_id, status, phase, created_at, ended_at)
    SELECT gen_random_uuid(), gen_random_uuid(), n, gen_random_uuid(), 'failed', 'ended', now(),
           CASE WHEN n < 3 THEN now() + n * interval '10 minutes' END FROM generate_series(1, 3) n;
    INSERT INTO operations (operation_id, session_id, run_id, context_id, purpose, state, loop_no, ordinal, name,
      created_at)
    SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'tool', 'accepted', 1, n % 2,
           'echo', now() + (5 - n / 2) * interval '5 minutes' FROM generate_series(0, 9) n;
    INSERT INTO sessions (session_id, space_id, owner_id, agent_id, created_at)
    SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), now() - n * interval '1 minute'
    FROM generate_series(1, 3) n;
"""


async def test_what_an_older_version_wrote_is_numbered_by_its_times(empty_database_url: str) -> None:
    """S13: over all tables; what comes next comes behind it."""
    await migrate._on_connection(empty_database_url, lambda one: command.upgrade(migrate._config(one), "0003"))
    connection = await asyncpg.connect(plain_url(empty_database_url))
    async with connection.transaction():
        await connection.execute(OLD_FACTS)
    await migrate.upgrade(empty_database_url)
    facts = """
        SELECT made_no, created_at, ordinal FROM operations UNION ALL SELECT made_no, created_at, 0 FROM sessions
        UNION ALL SELECT ended_no, ended_at, 9 FROM runs WHERE ended_at IS NOT NULL
    """
    numbered = await connection.fetch(f"SELECT made_no FROM ({facts}) AS facts ORDER BY created_at, ordinal")
    assert [row["made_no"] for row in numbered] == list(range(1, 16))
    assert await connection.fetchval("SELECT nextval('fact_order')") == 16
    assert await connection.fetchval("SELECT count(*) FROM runs WHERE ended_no IS NULL") == 1
    await connection.close()

"""The migrations make exactly the schema the code was written for, from nothing, and one at a time."""

import asyncio
import re
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import create_async_engine

from context.errors import UnavailableError
from storage import migrate
from storage.database import async_url
from storage.migrations.write_first import FIRST, first_migration
from storage.snapshot_tables import metadata

VERSIONS = Path(migrate.MIGRATIONS) / "versions"


async def test_an_upgraded_database_is_what_the_tables_say(empty_database_url: str) -> None:
    """No table, column, type, default, index or constraint differs."""
    await migrate.upgrade(empty_database_url)
    engine = create_async_engine(async_url(empty_database_url))
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


def test_the_first_step_is_the_one_its_script_writes() -> None:
    """Until a release; afterwards the first step never changes again."""
    assert FIRST.read_text(encoding="utf-8") == first_migration()

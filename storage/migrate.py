"""Brings a database to the schema this code was written for. Two migrators at once wait for each other.

All steps of one upgrade are one transaction: a step that fails leaves the database as it was.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.pool import NullPool

from storage.database import engine_on, translated_errors

T = TypeVar("T")

MIGRATIONS = Path(__file__).parent / "migrations"
MIGRATOR = 4_206_117_305  # the advisory lock only migrators take
WAIT_FOR_OTHERS = "60s"
LOCK_TIMEOUT = "5s"  # a step that cannot get its table lock gives up rather than queue everybody behind it
STATEMENT_TIMEOUT = "300s"


async def upgrade(url: str) -> None:
    """Run every step the database does not have yet. Raises UnavailableError if it can't be reached."""
    await _on_connection(url, _upgrade)


async def revision(url: str) -> tuple[str | None, str]:
    """The step the database is at (None: an empty one) and the newest step there is."""
    return await _on_connection(url, _current), head()


def knows(step: str | None) -> bool:
    """Whether this code has that step; it lacks those that newer code brought a database to."""
    return step is None or step in {one.revision for one in ScriptDirectory.from_config(_config()).walk_revisions()}


def head() -> str:
    """The newest step there is."""
    newest = ScriptDirectory.from_config(_config()).get_current_head()
    if newest is None:
        raise FileNotFoundError(f"no migrations in {MIGRATIONS}")
    return newest


async def _on_connection(url: str, act: Callable[[Connection], T]) -> T:
    engine = engine_on(url, poolclass=NullPool)
    try:
        async with translated_errors(), engine.begin() as connection:
            return await connection.run_sync(act)
    finally:
        await engine.dispose()


def _upgrade(connection: Connection) -> None:
    _set(connection, "lock_timeout", WAIT_FOR_OTHERS)
    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": MIGRATOR})
    _set(connection, "lock_timeout", LOCK_TIMEOUT)
    _set(connection, "statement_timeout", STATEMENT_TIMEOUT)
    command.upgrade(_config(connection), "head")


def _current(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _set(connection: Connection, name: str, value: str) -> None:
    connection.execute(text("SELECT set_config(:name, :value, true)"), {"name": name, "value": value})


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config

"""The pool of connections and the one place where a lost database is recognised.

Every transaction in the system goes through `Database.transaction`; a database that is away becomes
`UnavailableError`, whatever of its five shapes it takes. Parameters never appear in an error (SPEC Y6).
"""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import asyncpg
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from context.errors import UnavailableError

# SQLSTATE classes and codes that mean "not now": connection, operator intervention (starting up, shutting down),
# lock_timeout, deadlock, too many connections.
AWAY = ("08", "57P", "55P03", "40P01", "53300")


def async_url(url: str) -> str:
    """A PostgreSQL URL in the form SQLAlchemy's asyncpg dialect takes."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme.split("+")[0] not in ("postgresql", "postgres"):
        raise ValueError("DATABASE_URL must start with postgresql://")
    return f"postgresql+asyncpg://{rest}"


def plain_url(url: str) -> str:
    """The same URL in the form asyncpg itself takes."""
    return async_url(url).replace("postgresql+asyncpg://", "postgresql://", 1)


class Database:
    """A pool on one PostgreSQL database."""

    def __init__(self, url: str, *, pool_size: int = 20) -> None:
        self.url = url
        self.engine: AsyncEngine = create_async_engine(
            async_url(url),
            pool_size=pool_size,
            max_overflow=pool_size,
            pool_timeout=15,
            pool_use_lifo=True,  # a connection that was just used has its statements prepared
            hide_parameters=True,
            connect_args={
                "timeout": 5,
                "server_settings": {"lock_timeout": "5000", "application_name": "agentloom", "jit": "off"},
            },
        )

    @asynccontextmanager
    async def transaction(self, *, durable: bool = True) -> AsyncIterator[AsyncConnection]:
        """One transaction: committed at the end of the block, rolled back on any error.

        `durable=False` does not wait for the disk: only where losing the row in a power failure could cause nothing
        but a harmless repeat.
        """
        async with translated_errors(), self.engine.begin() as connection:
            if not durable:
                await connection.execute(text("SET LOCAL synchronous_commit TO off"))
            yield connection

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """A connection on which each statement stands alone."""
        async with translated_errors(), self.engine.connect() as connection:
            yield await connection.execution_options(isolation_level="AUTOCOMMIT")

    async def aclose(self) -> None:
        """Close every connection."""
        await self.engine.dispose()


@asynccontextmanager
async def translated_errors() -> AsyncIterator[None]:
    """Turns every shape of a lost database into `UnavailableError`, without its text or cause."""
    try:
        yield
    except (OSError, PoolTimeoutError, asyncpg.InterfaceError, asyncpg.InternalClientError):
        raise UnavailableError from None
    except asyncpg.PostgresError as error:  # of a connection that is not the pool's
        if str(error.sqlstate).startswith(AWAY):
            raise UnavailableError from None
        raise
    except DBAPIError as error:
        if is_away(error):
            raise UnavailableError from None
        raise


def is_away(error: DBAPIError) -> bool:
    """Whether a driver error means that the database can't be reached right now, rather than that we are wrong."""
    if error.connection_invalidated or isinstance(error, (InterfaceError, OperationalError)):
        return True
    state = str(getattr(error.orig, "sqlstate", None) or "")
    return state.startswith(AWAY) or not state


async def fetch_all(connection: AsyncConnection, statement: Any, **parameters: Any) -> list[Mapping[str, Any]]:
    """Rows as mappings."""
    rows = (await connection.execute(statement, parameters)).mappings().all()
    return cast("list[Mapping[str, Any]]", list(rows))


async def fetch_one(connection: AsyncConnection, statement: Any, **parameters: Any) -> Mapping[str, Any] | None:
    """The first row as a mapping, or None."""
    row = (await connection.execute(statement, parameters)).mappings().first()
    return cast("Mapping[str, Any] | None", row)


async def execute_many(connection: AsyncConnection, statement: Any, rows: Iterable[Mapping[str, Any]]) -> None:
    """Send one statement for many rows, or nothing for none."""
    if batch := list(rows):
        await connection.execute(statement, batch)

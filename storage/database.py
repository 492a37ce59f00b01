"""The pool of connections and the one place where a lost database is recognised.

Every transaction in the system goes through `Database.transaction`; a database that is away becomes
`UnavailableError`, whatever of its five shapes it takes. Parameters never appear in an error (SPEC Y6).
"""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import lru_cache
from typing import Any, cast

import asyncpg
from asyncpg.transaction import Transaction
from sqlalchemy import TextClause
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from context.errors import AgentLoomError, UnavailableError

CONNECT_S = 5.0
# Between two statements of a transaction. A process that froze, or that the network cut off, holds its locks no longer;
# no step of ours works that long between two, since a local one may take no longer as a whole.
LONGEST_PAUSE = "30s"
DIALECT = PGDialect_asyncpg()  # type: ignore[no-untyped-call]
AT_ONE_MOMENT: dict[str, Any] = {"isolation": "repeatable_read", "readonly": True}
# SQLSTATE classes and codes that mean "not now", since they clear without a change of ours: connection, an account that
# may not in (its password was changed, and who restarts the process gives it the new one), a database that is not
# there, resources (disk, memory, connections), operator intervention (starting up, shutting down, a cancelled
# statement), system; then a server that is not the primary (yet), time limits of a transaction, serialisation,
# deadlock, lock_timeout.
AWAY = ("08", "28", "3D", "53", "57", "58", "25006", "25P03", "25P04", "40001", "40P01", "55P03")


def engine_on(url: str, *, server_settings: Mapping[str, str] | None = None, **options: Any) -> AsyncEngine:
    """An engine whose connections the driver opens by itself: it reads a URL as libpq does, `sslmode` and all.

    SQLAlchemy would hand the URL's parameters to the driver as arguments, most of which it has under other names.
    """
    settings = None if server_settings is None else dict(server_settings)

    async def connect() -> asyncpg.Connection:
        return await asyncpg.connect(plain_url(url), timeout=CONNECT_S, server_settings=settings)

    return create_async_engine("postgresql+asyncpg://", async_creator=connect, hide_parameters=True, **options)


def plain_url(url: str) -> str:
    """A PostgreSQL URL in the form the driver takes."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme.split("+")[0] not in ("postgresql", "postgres"):
        raise ValueError("DATABASE_URL must start with postgresql://")
    return f"postgresql://{rest}"


class Database:
    """A pool on one PostgreSQL database."""

    def __init__(self, url: str, *, pool_size: int = 20) -> None:
        self.url = url
        self.engine: AsyncEngine = engine_on(
            url,
            pool_size=pool_size,
            max_overflow=pool_size,
            pool_timeout=15,
            pool_use_lifo=True,  # a connection that was just used has its statements prepared
            isolation_level="AUTOCOMMIT",
            server_settings={
                "lock_timeout": "5000",
                "idle_in_transaction_session_timeout": LONGEST_PAUSE,
                "application_name": "agentloom",
                "jit": "off",
                "plan_cache_mode": "force_generic_plan",
            },
        )

    @asynccontextmanager
    async def transaction(self, *, durable: bool = True) -> AsyncIterator[AsyncConnection]:
        """One transaction: committed at the end of the block, rolled back on any error.

        `durable=False` does not wait for the disk: only where losing the row in a power failure could cause nothing
        but a harmless repeat.
        """
        async with self.reading() as connection, _transaction_of(driver_of(connection)):
            if not durable:
                await driver_of(connection).execute("SET LOCAL synchronous_commit TO off")
            yield connection

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[AsyncConnection]:
        """A connection on which every statement sees the database as it was at the first one, and changes nothing."""
        async with self.reading() as connection, driver_of(connection).transaction(**AT_ONE_MOMENT):
            yield connection

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """A connection on which each statement stands alone."""
        async with translated_errors(), AsyncExitStack() as closing:
            connection = await self._living(closing)
            try:
                yield connection
            except asyncpg.ReadOnlySQLTransactionError:
                # It leads to a server that was replaced as the primary, and would for as long as it is in the pool.
                driver_of(connection).terminate()
                raise

    async def _living(self, closing: AsyncExitStack) -> AsyncConnection:
        """A connection from the pool. Statements go past SQLAlchemy, so it does not see which ones were closed."""
        while True:
            connection = await closing.enter_async_context(self.engine.connect())
            if not driver_of(connection).is_closed():
                return connection
            await connection.invalidate()

    async def aclose(self) -> None:
        """Close every connection."""
        await self.engine.dispose()


@asynccontextmanager
async def _transaction_of(driver: asyncpg.Connection) -> AsyncIterator[None]:
    """Committed at the end of the block; whatever ended the block goes on as it is.

    A statement that was cancelled can leave its connection busy, so that rolling back fails with an error of its own,
    and a cancellation would be taken for a lost database. The connection is given up then, which rolls back too: in
    the pool, an open transaction would swallow the commits of whoever is next.
    """
    transaction, is_committed = driver.transaction(), False
    try:
        await transaction.start()
        yield
        await transaction.commit()
        is_committed = True
    finally:
        if not is_committed:
            await _undo(driver, transaction)


async def _undo(driver: asyncpg.Connection, transaction: Transaction) -> None:
    try:
        await transaction.rollback()
    except (OSError, asyncpg.InterfaceError, asyncpg.PostgresError):
        driver.terminate()


@asynccontextmanager
async def translated_errors() -> AsyncIterator[None]:
    """Turns every shape of a lost database into `UnavailableError`, without its text or cause."""
    try:
        yield
    except (OSError, PoolTimeoutError, asyncpg.InterfaceError, asyncpg.InternalClientError):
        raise UnavailableError from None
    except asyncpg.InvalidCachedStatementError:  # the schema was migrated meanwhile; the driver prepares anew
        raise UnavailableError from None
    except asyncpg.IntegrityConstraintViolationError:
        raise  # its name becomes a domain error in `constraints`
    except asyncpg.PostgresError as error:  # its text may quote values
        if str(error.sqlstate).startswith(AWAY):
            raise UnavailableError from None
        raise AgentLoomError(f"The database refused a statement (SQLSTATE {error.sqlstate}).") from None
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


def driver_of(connection: AsyncConnection) -> asyncpg.Connection:
    """The asyncpg connection below: statements of our own go to it directly, which halves what they cost here.

    SQLAlchemy's part is the pool, the schema and what the codecs of a connection are; its engine is in autocommit, so
    that transactions are the driver's.
    """
    proxied = connection.sync_connection
    assert proxied is not None
    return cast("asyncpg.Connection", proxied.connection.driver_connection)


@lru_cache(maxsize=1024)
def _compiled(statement: TextClause) -> tuple[str, tuple[str, ...]]:
    compiled = statement.compile(dialect=DIALECT)
    return str(compiled), tuple(compiled.positiontup or ())


async def fetch_all(connection: AsyncConnection, statement: TextClause, **parameters: Any) -> list[Mapping[str, Any]]:
    """Rows as mappings."""
    sql, names = _compiled(statement)
    rows = await driver_of(connection).fetch(sql, *(parameters[name] for name in names))
    return [dict(row) for row in rows]


async def fetch_one(connection: AsyncConnection, statement: TextClause, **parameters: Any) -> Mapping[str, Any] | None:
    """The first row as a mapping, or None."""
    sql, names = _compiled(statement)
    row = await driver_of(connection).fetchrow(sql, *(parameters[name] for name in names))
    return None if row is None else dict(row)


async def fetch_value(connection: AsyncConnection, statement: TextClause, **parameters: Any) -> Any:
    """The first column of the first row, or None."""
    sql, names = _compiled(statement)
    return await driver_of(connection).fetchval(sql, *(parameters[name] for name in names))


async def execute_many(connection: AsyncConnection, statement: TextClause, rows: Iterable[Mapping[str, Any]]) -> None:
    """Send one statement for many rows, or nothing for none."""
    sql, names = _compiled(statement)
    if batch := [tuple(row[name] for name in names) for row in rows]:
        await driver_of(connection).executemany(sql, batch)

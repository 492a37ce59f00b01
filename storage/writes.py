"""Several inserts and updates sent as one statement: a commit costs one round trip, however many tables it touches.

A `WriteSet` collects rows and SQL fragments and sends them as data-modifying CTEs. All parts see the database as it
was when the statement began, so a part never reads what another part writes.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import asyncpg
from sqlalchemy import Column, Table, TextClause, text
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.database import fetch_value

DIALECT = postgresql.dialect()  # type: ignore[no-untyped-call]
FEW = 2  # rows up to which single values are sent: an array costs the driver and the server more than its elements
NOT_HELD = "AL001"  # what `must_hold` raises


class NotHeldError(Exception):
    """What a commit went by is no longer so; nothing of it was written."""


class WriteSet:
    """The writes of one commit."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._binds: dict[str, Any] = {}
        self._held: str | None = None
        self._ending = "SELECT 1"

    def insert(self, table: Table, rows: Sequence[Mapping[str, Any]], *, skip_existing: bool = False) -> None:
        """Insert rows, all with the same columns. `skip_existing` keeps a fact that is already there."""
        if not rows:
            return
        tag, names, count = f"w{len(self._parts)}", tuple(rows[0]), len(rows)
        if count <= FEW:
            self._parts.append(f"{tag} AS ({_insert_few_sql(table, names, tag, count, skip_existing)})")
            self._binds |= {f"{tag}_{at}_{name}": row[name] for at, row in enumerate(rows) for name in names}
            return
        self._parts.append(f"{tag} AS ({_insert_sql(table, names, tag, skip_existing)})")
        for name in names:
            self._binds[f"{tag}_{name}"] = [row[name] for row in rows]

    def sql(self, fragment: str, *, tag: str = "", **binds: Any) -> None:
        """Any further INSERT or UPDATE, with named binds that are unique in this set; other parts see it as `tag`."""
        self._parts.append(f"{tag or f'w{len(self._parts)}'} AS ({fragment})")
        self._binds |= binds

    def bind(self, **binds: Any) -> None:
        """Binds that fragments of several parts share."""
        self._binds |= binds

    def announce(self, channel: str, message: str) -> None:
        """Wake the listeners of a channel when this commits. In the main query: an unread CTE would not run."""
        self._ending = "SELECT pg_notify(:announce_channel, :announce_message)"
        self._binds |= {"announce_channel": channel, "announce_message": message}

    def expect(self, held: str, **binds: Any) -> None:
        """Write nothing at all unless `held`, a query that locks what it reads, finds a row; for `send_as_expected`.

        The main query asks for it, hence it is run, and its locks are taken, before any part writes.
        """
        self._held = held
        self._binds |= binds

    def answer(self, query: str) -> None:
        """What `send` returns: one value, which may read what parts with a tag return."""
        self._ending = query

    async def send(self, connection: AsyncConnection) -> Any:
        """Send everything at once; returns the value asked for with `answer`."""
        if not self._parts:
            return None
        return await fetch_value(connection, _statement(self._sql()), **self._binds)

    async def send_as_expected(self, connection: AsyncConnection) -> None:
        """Send everything at once, as a commit of its own. Raises NotHeldError, and nothing is written, otherwise.

        A row that is there already says the same: somebody else has gone on.
        """
        try:
            await self.send(connection)
        except asyncpg.UniqueViolationError:
            raise NotHeldError from None
        except asyncpg.PostgresError as error:
            if error.sqlstate != NOT_HELD:
                raise
            raise NotHeldError from None

    def _sql(self) -> str:
        if self._held is None:
            return f"WITH {', '.join(self._parts)} {self._ending}"
        parts = f"held AS MATERIALIZED ({self._held}), {', '.join(self._parts)}"
        return f"WITH {parts} {self._ending}, must_hold(EXISTS (SELECT 1 FROM held))"


@lru_cache(maxsize=512)
def _statement(sql: str) -> TextClause:
    return text(sql)


@lru_cache(maxsize=512)
def _insert_few_sql(table: Table, names: tuple[str, ...], tag: str, count: int, skip_existing: bool) -> str:
    kinds = {name: _kind(table.c[name]) for name in names}
    rows = (", ".join(f"CAST(:{tag}_{at}_{name} AS {kinds[name]})" for name in names) for at in range(count))
    return _insert_into(table, names, f"VALUES {', '.join(f'({row})' for row in rows)}", skip_existing)


@lru_cache(maxsize=256)
def _insert_sql(table: Table, names: tuple[str, ...], tag: str, skip_existing: bool) -> str:
    arrays = ", ".join(f"CAST(:{tag}_{name} AS {_kind(table.c[name])}[])" for name in names)
    return _insert_into(table, names, f"SELECT * FROM unnest({arrays})", skip_existing)


def _insert_into(table: Table, names: tuple[str, ...], source: str, skip_existing: bool) -> str:
    columns = ", ".join(f'"{name}"' for name in names)
    ending = " ON CONFLICT DO NOTHING" if skip_existing else ""
    return f'INSERT INTO "{table.name}" ({columns}) {source}{ending}'


def _kind(column: Column[Any]) -> str:
    return str(column.type.compile(dialect=DIALECT))

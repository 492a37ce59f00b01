"""Several inserts and updates sent as one statement: a commit costs one round trip, however many tables it touches.

A `WriteSet` collects rows and SQL fragments and sends them as data-modifying CTEs. All parts see the database as it
was when the statement began, so a part never reads what another part writes.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Column, Table, TextClause, text
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.database import fetch_value

DIALECT = postgresql.dialect()  # type: ignore[no-untyped-call]


class WriteSet:
    """The writes of one commit."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._binds: dict[str, Any] = {}
        self._ending = "SELECT 1"

    def insert(self, table: Table, rows: Sequence[Mapping[str, Any]], *, skip_existing: bool = False) -> None:
        """Insert rows, all with the same columns. `skip_existing` keeps a fact that is already there."""
        if not rows:
            return
        tag, names = f"w{len(self._parts)}", tuple(rows[0])
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

    def answer(self, query: str) -> None:
        """What `send` returns: one value, which may read what parts with a tag return."""
        self._ending = query

    async def send(self, connection: AsyncConnection) -> Any:
        """Send everything at once; returns the value asked for with `answer`."""
        if not self._parts:
            return None
        statement = _statement(f"WITH {', '.join(self._parts)} {self._ending}")
        return await fetch_value(connection, statement, **self._binds)


@lru_cache(maxsize=512)
def _statement(sql: str) -> TextClause:
    return text(sql)


@lru_cache(maxsize=256)
def _insert_sql(table: Table, names: tuple[str, ...], tag: str, skip_existing: bool) -> str:
    arrays = ", ".join(_array(table.c[name], f"{tag}_{name}") for name in names)
    columns = ", ".join(f'"{name}"' for name in names)
    ending = " ON CONFLICT DO NOTHING" if skip_existing else ""
    return f'INSERT INTO "{table.name}" ({columns}) SELECT * FROM unnest({arrays}){ending}'


def _array(column: Column[Any], bind: str) -> str:
    kind = column.type.compile(dialect=DIALECT)
    return f"CAST(:{bind} AS {kind}[])"

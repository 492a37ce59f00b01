"""Rows changed behind AgentLoom's back, directly in the database, and put back as they were."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import asyncpg


@dataclass(frozen=True)
class KeptRows:
    """Every row of some tables as it was when this was made. No foreign key stops what is done to them meanwhile."""

    admin: asyncpg.Connection
    tables: Sequence[str]

    @classmethod
    @asynccontextmanager
    async def of(cls, database_url: str, tables: Sequence[str]) -> AsyncIterator["KeptRows"]:
        """Keep the rows as they are now."""
        admin = await asyncpg.connect(database_url)
        try:
            for table in tables:
                await admin.execute(f"CREATE TABLE kept_{table} AS SELECT * FROM {table}")
            yield cls(admin, tables)
        finally:
            await admin.close()

    @asynccontextmanager
    async def changed(self, sql: str) -> AsyncIterator[str]:
        """The database with this change in it, and what it answered to the change; as it was afterwards."""
        async with self.admin.transaction():
            await self.admin.execute("SET LOCAL session_replication_role = replica")
            told = await self.admin.execute(sql)
        try:
            yield told
        finally:
            await self.put_back()

    async def put_back(self) -> None:
        """Every row as it was."""
        async with self.admin.transaction():
            await self.admin.execute("SET LOCAL session_replication_role = replica")
            for table in self.tables:
                await self.admin.execute(f"DELETE FROM {table}; INSERT INTO {table} SELECT * FROM kept_{table}")

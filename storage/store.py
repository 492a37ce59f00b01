"""What every commit and read is given: the database, the payloads, and the fault points of the tests.

A commit is one file in `storage/commits/` with one public function. It opens `Store.transaction(<its name>)` once, so
that each commit has a fault point right before and right after it becomes true.
"""

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from context.ids import uuid7
from context.policy import Release
from storage.constraints import translated_constraints
from storage.database import Database
from storage.payloads import Keys, Payloads, Vault
from storage.standing import Standings


class FaultPlan:
    """Named points between doing and recording. Production passes this empty one; tests pass one that strikes."""

    async def reach(self, point: str) -> None:
        """Called when execution reaches `point`, such as `accept_input.before_commit`."""


@dataclass(frozen=True)
class Store:
    """The record of everything."""

    database: Database
    payloads: Payloads
    faults: FaultPlan = field(default_factory=FaultPlan)
    releases: dict[UUID, Release] = field(default_factory=dict, repr=False, compare=False)  # immutable, read once
    standings: Standings = field(default_factory=Standings, repr=False, compare=False)

    @classmethod
    def open(cls, url: str, keys: Keys, *, pool_size: int = 20, faults: FaultPlan | None = None) -> "Store":
        """A store on the database at `url`; connects on first use."""
        return cls(Database(url, pool_size=pool_size), Payloads(Vault(keys)), faults or FaultPlan())

    @asynccontextmanager
    async def transaction(self, name: str, *, durable: bool = True) -> AsyncIterator[AsyncConnection]:
        """The one transaction of the commit called `name`."""
        async with translated_constraints(), self.database.transaction(durable=durable) as connection:
            yield connection
            await self.faults.reach(f"{name}.before_commit")
        await self.faults.reach(f"{name}.after_commit")

    @asynccontextmanager
    async def single(self, name: str) -> AsyncIterator[AsyncConnection]:
        """The one statement that the commit called `name` is: it commits itself, which saves two round trips."""
        await self.faults.reach(f"{name}.before_commit")
        async with translated_constraints(), self.database.reading() as connection:
            yield connection
        await self.faults.reach(f"{name}.after_commit")

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """A connection for reads."""
        async with self.database.reading() as connection:
            yield connection

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[AsyncConnection]:
        """A connection for reads that must fit together; what is committed meanwhile is not seen."""
        async with self.database.snapshot() as connection:
            yield connection

    async def aclose(self) -> None:
        """Close every connection."""
        await self.database.aclose()


def new_id() -> UUID:
    """A new UUIDv7."""
    return uuid7(time.time_ns() // 1_000_000, os.urandom(10))

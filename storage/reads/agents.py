"""Agents and their releases, as far as a space may see them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import text

from context.policy import Release
from storage.database import fetch_all, fetch_one
from storage.reads.pages import Page, clamped, cursor_name, cursor_number, found, page_of
from storage.reads.releases import remember
from storage.store import Store


@dataclass(frozen=True)
class AgentRow:
    """An agent and its newest release."""

    agent_id: UUID
    name: str
    release_id: UUID
    release_no: int
    release_hash: str
    created_at: datetime


@dataclass(frozen=True)
class ReleaseRow:
    """One release; `release` is its content."""

    release_id: UUID
    agent_id: UUID
    agent: str
    release_no: int
    release_hash: str
    created_at: datetime
    release: Release = field(repr=False)


NEWEST = """
    SELECT a.agent_id, a.name, r.release_id, r.release_no, r.release_hash, a.created_at
    FROM agents a JOIN agent_releases r ON r.agent_id = a.agent_id AND r.release_no = a.release_head
    WHERE a.space_id = :space_id
"""
AGENTS = text(f"{NEWEST} AND a.name > :after ORDER BY a.name LIMIT :limit")
AGENT = text(f"{NEWEST} AND a.name = :name")
RELEASE_COLUMNS = """
    SELECT r.release_id, r.agent_id, a.name AS agent, r.release_no, r.release_hash, r.created_at, r.payload_id
    FROM agent_releases r JOIN agents a USING (agent_id)
    WHERE a.space_id = :space_id
"""
RELEASE = text(f"{RELEASE_COLUMNS} AND r.release_id = :release_id")
RELEASES = text(
    f"{RELEASE_COLUMNS} AND a.name = :name AND r.release_no < :before ORDER BY r.release_no DESC LIMIT :limit"
)
NO_LIMIT = 2**31 - 1


async def agents(store: Store, space_id: UUID, *, limit: int = 100, cursor: str | None = None) -> Page[AgentRow]:
    """The agents of a space, by name."""
    limit, after = clamped(limit), cursor_name(cursor)
    async with store.reading() as connection:
        rows = await fetch_all(connection, AGENTS, space_id=space_id, after=after, limit=limit + 1)
    return page_of([AgentRow(**row) for row in rows], limit, lambda one: one.name)


async def agent(store: Store, space_id: UUID, name: str) -> AgentRow:
    """One agent by name. Raises NotFoundError."""
    async with store.reading() as connection:
        return AgentRow(**found(await fetch_one(connection, AGENT, space_id=space_id, name=name), "agent", name))


async def release_row(store: Store, space_id: UUID, release_id: UUID) -> ReleaseRow:
    """One release of the space with its content. Raises NotFoundError."""
    async with store.reading() as connection:
        row = found(
            await fetch_one(connection, RELEASE, space_id=space_id, release_id=release_id), "release", release_id
        )
        body = await store.payloads.read_one(connection, row["payload_id"])
    return _release_row(store, row, body)


async def releases(
    store: Store, space_id: UUID, name: str, *, limit: int = 20, cursor: str | None = None
) -> Page[ReleaseRow]:
    """The releases of an agent, newest first. Raises NotFoundError."""
    limit, before = clamped(limit), cursor_number(cursor) or NO_LIMIT
    async with store.reading() as connection:
        rows = await fetch_all(connection, RELEASES, space_id=space_id, name=name, before=before, limit=limit + 1)
        if not rows:
            found(await fetch_one(connection, AGENT, space_id=space_id, name=name), "agent", name)
        bodies = await store.payloads.read(connection, [row["payload_id"] for row in rows])
    return page_of(
        [_release_row(store, row, bodies[row["payload_id"]]) for row in rows], limit, lambda one: str(one.release_no)
    )


def _release_row(store: Store, row: Mapping[str, Any], body: bytes) -> ReleaseRow:
    plain = {name: value for name, value in row.items() if name != "payload_id"}
    content = store.releases.get(row["release_id"]) or remember(store, row["release_id"], body)
    return ReleaseRow(**plain, release=content)

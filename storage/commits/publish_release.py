"""Publishing: an agent's next release, numbered and hashed, never changed afterwards."""

import hashlib
from dataclasses import dataclass, field
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.errors import ForbiddenError
from context.messages import canonical_json
from context.policy import Release
from storage.database import fetch_one
from storage.store import Store, new_id
from storage.tables import agent_releases, payloads
from storage.writes import WriteSet

# The update changes nothing; it locks the agent that is already there and returns it as of now.
AGENT = text("""
    INSERT INTO agents (agent_id, space_id, name, owner_id) VALUES (:agent_id, :space_id, :name, :owner_id)
    ON CONFLICT (space_id, name) DO UPDATE SET name = excluded.name
    RETURNING agent_id, owner_id, release_head
""")
NEWEST = text("""
    SELECT release_id, release_hash FROM agent_releases WHERE agent_id = :agent_id AND release_no = :release_no
""")
MOVE_HEAD = "UPDATE agents SET release_head = :release_no WHERE agent_id = :agent_id"


@dataclass(frozen=True)
class PublishRelease:
    """A resolved definition; the agent's name is the definition's.

    Whoever publishes the first release owns the agent. `over_others` is an administrator's right to publish for any.
    """

    space_id: UUID
    release: Release = field(repr=False)
    publisher_id: UUID | None = None
    over_others: bool = False


@dataclass(frozen=True)
class PublishedRelease:
    """The release as numbered. `created` is false if the newest one had the same content already."""

    agent_id: UUID
    release_id: UUID
    release_no: int
    release_hash: str
    created: bool


def release_bytes(release: Release) -> bytes:
    """What is stored and hashed: canonical JSON, by the names of the definition."""
    return canonical_json(release.model_dump(mode="json", by_alias=True))


async def publish_release(store: Store, request: PublishRelease) -> PublishedRelease:
    """Number the release; one that equals the newest is that one, whoever sends it.

    Raises NotFoundError for an unknown space, ForbiddenError for an agent of somebody else.
    """
    body = release_bytes(request.release)
    digest = hashlib.sha256(body).hexdigest()
    async with store.transaction("publish_release") as connection:
        row = {"agent_id": new_id(), "space_id": request.space_id, "name": request.release.definition.name}
        row["owner_id"] = request.publisher_id
        agent = (await connection.execute(AGENT, row)).mappings().one()
        agent_id, head = agent["agent_id"], agent["release_head"]
        newest = await fetch_one(connection, NEWEST, agent_id=agent_id, release_no=head)
        if newest and newest["release_hash"] == digest:
            return PublishedRelease(agent_id, newest["release_id"], head, digest, created=False)
        if agent["owner_id"] != request.publisher_id and not request.over_others:
            raise ForbiddenError("This agent was made by somebody else: only they or an administrator may publish it.")
        published = PublishedRelease(agent_id, new_id(), head + 1, digest, created=True)
        await _write(store, connection, published, body)
        return published


async def _write(store: Store, connection: AsyncConnection, published: PublishedRelease, body: bytes) -> None:
    sealed = store.payloads.seal(body)
    writes = WriteSet()
    writes.insert(payloads, [sealed.parameters()], skip_existing=True)
    row = {"release_id": published.release_id, "agent_id": published.agent_id, "release_no": published.release_no}
    writes.insert(agent_releases, [row | {"release_hash": published.release_hash, "payload_id": sealed.payload_id}])
    writes.sql(MOVE_HEAD, release_no=published.release_no, agent_id=published.agent_id)
    await writes.send(connection)

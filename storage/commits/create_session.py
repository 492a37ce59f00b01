"""A new session of one user with one agent."""

from dataclasses import dataclass, field
from uuid import UUID

from sqlalchemy import text

from context.errors import NotFoundError
from storage.database import fetch_one
from storage.store import Store, new_id
from storage.titles import seal_title

AGENT = text("SELECT agent_id FROM agents WHERE space_id = :space_id AND name = :name")
SESSION = text("""
    INSERT INTO sessions (session_id, space_id, owner_id, agent_id, title_id)
    VALUES (:session_id, :space_id, :owner_id, :agent_id, :title_id)
""")


@dataclass(frozen=True)
class CreateSession:
    """`agent` is the agent's name within the space."""

    space_id: UUID
    owner_id: UUID
    agent: str
    title: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class CreatedSession:
    session_id: UUID
    agent_id: UUID


async def create_session(store: Store, request: CreateSession) -> CreatedSession:
    """Open the session. Raises NotFoundError if the space has no such agent."""
    async with store.transaction("create_session") as connection:
        agent = await fetch_one(connection, AGENT, space_id=request.space_id, name=request.agent)
        if agent is None:
            raise NotFoundError.of("agent", request.agent)
        created = CreatedSession(new_id(), agent["agent_id"])
        title_id = await seal_title(store, connection, request.title)
        row = {"session_id": created.session_id, "agent_id": created.agent_id, "title_id": title_id}
        await connection.execute(SESSION, row | {"space_id": request.space_id, "owner_id": request.owner_id})
        return created

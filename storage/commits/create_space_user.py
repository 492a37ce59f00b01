"""A user of a space, both made if they are not there yet."""

from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from sqlalchemy import text

from context.ids import derived
from storage.store import Store, new_id

Role = Literal["admin", "member", "auditor"]

ROOT = UUID("8f3c5d0e-6d0a-5f43-9a52-3b1f3c1b7a10")  # parent of the ids of spaces that have nothing but a name
DEFAULT_SPACE = derived(ROOT, "space", "default")

SPACE = text("""
    INSERT INTO spaces (space_id, name) VALUES (:space_id, :name) ON CONFLICT (space_id) DO NOTHING
""")
# The update changes nothing; it makes the statement return the row that is already there.
USER = text("""
    INSERT INTO users (user_id, space_id, name, role) VALUES (:user_id, :space_id, :name, :role)
    ON CONFLICT (space_id, name) DO UPDATE SET name = excluded.name
    RETURNING user_id, role
""")


@dataclass(frozen=True)
class CreateSpaceUser:
    """A user by name. `space_name` is used only if the space is not there yet."""

    name: str
    role: Role
    space_id: UUID = DEFAULT_SPACE
    space_name: str = "default"


@dataclass(frozen=True)
class SpaceUser:
    """The user as stored; `created` is false for one that was there before, whose role stays as it was."""

    space_id: UUID
    user_id: UUID
    name: str
    role: Role
    created: bool


async def create_space_user(store: Store, request: CreateSpaceUser) -> SpaceUser:
    """Find or make the user; a repeat finds it."""
    new = new_id()
    async with store.transaction("create_space_user") as connection:
        await connection.execute(SPACE, {"space_id": request.space_id, "name": request.space_name})
        row = {"user_id": new, "space_id": request.space_id, "name": request.name, "role": request.role}
        found = (await connection.execute(USER, row)).mappings().one()
    return SpaceUser(request.space_id, found["user_id"], request.name, found["role"], found["user_id"] == new)

"""Who holds a key, and the keys and users of a space."""

import hmac
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from sqlalchemy import text

from storage.database import fetch_all, fetch_one
from storage.keys import key_hash
from storage.reads.pages import Page, clamped, cursor_made_no, cursor_name, found, page_of
from storage.store import Store

Role = Literal["admin", "member", "auditor"]


@dataclass(frozen=True)
class Principal:
    """Who is asking."""

    user_id: UUID
    space_id: UUID
    role: Role


@dataclass(frozen=True)
class UserRow:
    user_id: UUID
    name: str
    role: Role
    created_at: datetime


@dataclass(frozen=True)
class KeyRow:
    """A key as it may be listed: never itself, only its first characters."""

    key_id: UUID
    user_id: UUID
    user: str
    hint: str
    created_at: datetime
    revoked_at: datetime | None


KEY = text("""
    SELECT k.key_hash, u.user_id, u.space_id, u.role FROM api_keys k JOIN users u USING (user_id)
    WHERE k.key_hash = :key_hash AND k.revoked_at IS NULL
""")
USERS = text("""
    SELECT user_id, name, role, created_at FROM users
    WHERE space_id = :space_id AND name > :after ORDER BY name LIMIT :limit
""")
USER = text("SELECT user_id, name, role, created_at FROM users WHERE space_id = :space_id AND name = :name")
KEYS = text("""
    SELECT k.key_id, k.user_id, u.name AS user, k.hint, k.created_at, k.revoked_at, k.made_no
    FROM api_keys k JOIN users u USING (user_id)
    WHERE u.space_id = :space_id AND k.made_no > :after ORDER BY k.made_no LIMIT :limit
""")


async def find_key(store: Store, key: str) -> Principal | None:
    """Who holds this key; None if it is unknown or revoked. The comparison takes the same time for any key."""
    wanted = key_hash(store.payloads.vault, key)
    async with store.reading() as connection:
        row = await fetch_one(connection, KEY, key_hash=wanted)
    if row is None or not hmac.compare_digest(row["key_hash"], wanted):
        return None
    return Principal(row["user_id"], row["space_id"], row["role"])


async def user(store: Store, space_id: UUID, name: str) -> UserRow:
    """One user by name. Raises NotFoundError."""
    async with store.reading() as connection:
        return UserRow(**found(await fetch_one(connection, USER, space_id=space_id, name=name), "user", name))


async def users(store: Store, space_id: UUID, *, limit: int = 100, cursor: str | None = None) -> Page[UserRow]:
    """The users of a space, by name."""
    limit, after = clamped(limit), cursor_name(cursor)
    async with store.reading() as connection:
        rows = await fetch_all(connection, USERS, space_id=space_id, after=after, limit=limit + 1)
    return page_of([UserRow(**row) for row in rows], limit, lambda one: one.name)


async def keys(store: Store, space_id: UUID, *, limit: int = 100, cursor: str | None = None) -> Page[KeyRow]:
    """The keys of a space, revoked ones too, oldest first."""
    limit, after = clamped(limit), cursor_made_no(cursor)
    async with store.reading() as connection:
        rows = await fetch_all(connection, KEYS, space_id=space_id, after=after, limit=limit + 1)
    page = page_of(rows, limit, lambda row: str(row["made_no"]))
    return Page([KeyRow(**{name: row[name] for name in row if name != "made_no"}) for row in page.items], page.next)

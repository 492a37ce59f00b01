"""What it costs to check a session: work that grows with its steps, not with their square (SPEC A9, M7).

Counted are messages that are put into wire form, and rows that statements look at.
"""

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import pytest
from sqlalchemy import text

from api.rebuilding import Rebuilding
from context.messages import ChatMessage
from context.policy import Release
from context.stored_keys import StoredKey
from providers.chat import ChatClient
from providers.profiles import Profile
from providers.release_model import ReleaseModel
from providers.wire_list import WireList
from storage import reads
from storage.database import _compiled, fetch_value
from storage.reads.verifying_facts import STATEMENTS
from tests.support.compactions import SMALL
from tests.support.one_long_run import run_of
from tests.support.run_world import Json, RunWorld

STEPS = 24
LARGE: Json = {"model": {"context_window": 1_000_000}}
OF_ALL_LISTS = text("""
    SELECT sum(length)
    FROM (SELECT max(view_length) AS length FROM operations WHERE view_id IS NOT NULL GROUP BY view_id) AS lists
""")


@dataclass
class Counted:
    """Models of releases, and how many messages they were given to put into wire form."""

    chat: ChatClient
    messages: int = 0

    def build(self, release: Release) -> ReleaseModel:
        return ReleaseModel(
            release,
            chat_for=lambda provider: self.chat,
            resolve_key=_no_key,
            demo_base_url=None,
            format_with=self._list,
        )

    def _list(self, profile: Profile, merge_user_messages: bool | None) -> "CountedList":
        return CountedList(profile, merge_user_messages, self)


class CountedList(WireList):
    """A list that tells how many messages it was given."""

    def __init__(self, profile: Profile, merge_user_messages: bool | None, counted: Counted) -> None:
        super().__init__(profile, merge_user_messages)
        self._counted = counted

    def extend(self, messages: Sequence[ChatMessage]) -> None:
        self._counted.messages += len(messages)
        super().extend(messages)


async def _no_key(name: str) -> StoredKey | None:
    return None


@pytest.fixture
async def counted() -> AsyncIterator[Counted]:
    async with httpx.AsyncClient() as http:
        yield Counted(ChatClient(http))


@pytest.mark.parametrize("window", [LARGE, SMALL], ids=["one list", "a list after each compaction"])
async def test_a_check_puts_each_message_of_a_list_into_wire_form_once(
    world: RunWorld, counted: Counted, window: Json
) -> None:
    """SPEC A9, M7: twice as long a Run takes twice as long to check, not four times."""
    run = await run_of(world, STEPS, longest=300, **window)
    session = await world.get(f"/sessions/{run['session_id']}")
    async with world.store.reading() as connection:
        owner = await fetch_value(connection, text("SELECT owner_id FROM sessions"))
        shown = await fetch_value(connection, OF_ALL_LISTS)
    checked = await reads.verified(world.store, UUID(session["session_id"]), owner)
    assert len(checked.requests) > STEPS
    rebuilding = Rebuilding(world.store, build_model=counted.build)
    assert await rebuilding.not_as_sent(checked.requests) == []
    assert counted.messages == shown


async def test_no_statement_of_a_check_looks_at_each_row_once_for_every_other(world: RunWorld) -> None:
    """SPEC M7: four times as many steps are at most eight times as many rows, also before anybody has counted them."""
    sessions = []
    for steps in (16, 64):
        sessions.append((await run_of(world, steps, longest=60, **LARGE))["session_id"])
        world.model.forget_replies()
    admin = await asyncpg.connect(world.servers.database_url)
    grown = {}
    for number, (_, statement) in enumerate(STATEMENTS):
        few, many = [await rows_looked_at(admin, _compiled(statement)[0], UUID(session)) for session in sessions]
        grown[number] = many / max(few, 16)
    await admin.close()
    assert {number: times for number, times in grown.items() if times > 8} == {}


async def rows_looked_at(admin: asyncpg.Connection, sql: str, session: UUID) -> int:
    """Rows that all parts of a statement gave or left out."""
    plan = json.loads(await admin.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON, TIMING OFF) {sql}", session))
    return sum(_rows(node) for node in _nodes(plan[0]["Plan"]))


def _rows(node: dict[str, Any]) -> int:
    removed = sum(count for name, count in node.items() if name.startswith("Rows Removed"))
    return int((node["Actual Rows"] + removed) * node["Actual Loops"])


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _nodes(child)

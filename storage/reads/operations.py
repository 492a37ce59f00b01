"""Operations of a Run with their Attempts, and what came out of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from itertools import groupby
from typing import Any, Literal
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.database import fetch_all, fetch_one
from storage.reads.owned import check_run
from storage.reads.pages import Page, clamped, decode_cursor, found, invalid_cursor, page_of
from storage.store import Store


@dataclass(frozen=True)
class AttemptRow:
    """One try. `usage` as the provider reported it, `error` is `{code, reason, status}`."""

    attempt_no: int
    state: str
    started_at: datetime
    first_output_at: datetime | None
    ended_at: datetime | None
    usage: Mapping[str, Any] | None
    cost: Decimal | None
    error: Mapping[str, Any] | None


@dataclass(frozen=True)
class OperationRow:
    """One logical call. `call_id` and `effect` belong to a tool call, `input_cutoff` to a model call.

    `transforms` names what was changed between the raw result and the effective one.
    """

    operation_id: UUID
    run_id: UUID
    session_id: UUID
    purpose: str
    state: str
    loop: int
    ordinal: int
    name: str
    call_id: str | None
    effect: str | None
    input_cutoff: int | None
    attempts: tuple[AttemptRow, ...]
    created_at: datetime
    transforms: tuple[str, ...]
    hooks: tuple[Mapping[str, Any], ...] = ()  # none run in this version


@dataclass(frozen=True)
class OperationResult:
    """`content` is None while there is no such result; `media_type` is known of a tool's raw result."""

    operation_id: UUID
    state: str
    media_type: str | None
    content: bytes | None = field(repr=False)


@dataclass(frozen=True)
class Place:
    """Where a page of Operations begins: after this one."""

    at: datetime
    ordinal: int
    operation_id: UUID

    @classmethod
    def of(cls, cursor: str | None) -> "Place":
        """The place of a cursor; without one, before everything. Raises InputInvalidError."""
        if cursor is None:
            return cls(datetime.fromisoformat("0001-01-01T00:00:00+00:00"), 0, UUID(int=0))
        try:
            at, ordinal, operation_id = decode_cursor(cursor).split(" ")
            return cls(datetime.fromisoformat(at), int(ordinal), UUID(operation_id))
        except ValueError:
            raise invalid_cursor() from None

    def binds(self) -> dict[str, Any]:
        return {"at": self.at, "ordinal": self.ordinal, "after_id": self.operation_id}


def place_key(created_at: datetime, ordinal: int, operation_id: UUID) -> str:
    """The key that `Place.of` reads back."""
    return f"{created_at.isoformat()} {ordinal} {operation_id}"


COLUMNS = """
    SELECT o.operation_id, o.run_id, o.session_id, o.purpose, o.state, o.loop_no AS loop, o.ordinal, o.name, o.call_id,
           o.effect, o.input_cutoff, o.created_at, coalesce(o.transforms, '[]') AS transforms
    FROM operations o JOIN sessions s USING (session_id)
    WHERE s.owner_id = :owner_id
"""
ONE = text(f"{COLUMNS} AND o.operation_id = :operation_id")
PAGE = text(f"""
    {COLUMNS} AND o.run_id = :run_id AND (o.created_at, o.ordinal, o.operation_id) > (:at, :ordinal, :after_id)
    ORDER BY o.created_at, o.ordinal, o.operation_id LIMIT :limit
""")
ATTEMPTS = text("""
    SELECT operation_id, attempt_no, state, started_at, first_output_at, ended_at, usage, cost, error
    FROM attempts WHERE operation_id = ANY(:ids) ORDER BY operation_id, attempt_no
""")
RESULT = text("""
    SELECT o.operation_id, o.state, o.raw_media_type, o.raw_id AS raw, o.result_id AS effective
    FROM operations o JOIN sessions s USING (session_id)
    WHERE s.owner_id = :owner_id AND o.operation_id = :operation_id
""")


async def operations(
    store: Store, run_id: UUID, owner_id: UUID, *, limit: int = 100, cursor: str | None = None
) -> Page[OperationRow]:
    """The Operations of a Run in the order they were made. Raises NotFoundError."""
    limit, place = clamped(limit), Place.of(cursor)
    binds = {"run_id": run_id, "owner_id": owner_id}
    async with store.reading() as connection:
        rows = await fetch_all(connection, PAGE, **binds, **place.binds(), limit=limit + 1)
        if not rows:
            await check_run(connection, run_id, owner_id)
        items = await _rows(connection, rows)
    return page_of(items, limit, lambda one: place_key(one.created_at, one.ordinal, one.operation_id))


async def operation(store: Store, operation_id: UUID, owner_id: UUID) -> OperationRow:
    """One Operation. Raises NotFoundError."""
    async with store.reading() as connection:
        row = found(
            await fetch_one(connection, ONE, operation_id=operation_id, owner_id=owner_id), "operation", operation_id
        )
        return (await _rows(connection, [row]))[0]


async def operation_result(
    store: Store, operation_id: UUID, owner_id: UUID, *, view: Literal["raw", "effective"] = "effective"
) -> OperationResult:
    """What came from the model or tool (`raw`), or the message that went on (`effective`). Raises NotFoundError."""
    async with store.reading() as connection:
        row = found(
            await fetch_one(connection, RESULT, operation_id=operation_id, owner_id=owner_id), "operation", operation_id
        )
        content = await store.payloads.read_one(connection, row[view]) if row[view] else None
    media_type = row["raw_media_type"] if view == "raw" else None
    return OperationResult(operation_id, row["state"], media_type, content)


async def _rows(connection: AsyncConnection, rows: Sequence[Mapping[str, Any]]) -> list[OperationRow]:
    if not rows:
        return []
    tries = await fetch_all(connection, ATTEMPTS, ids=[row["operation_id"] for row in rows])
    of = {owner: tuple(map(_attempt, group)) for owner, group in groupby(tries, lambda one: one["operation_id"])}
    return [
        OperationRow(**{**row, "transforms": tuple(row["transforms"])}, attempts=of.get(row["operation_id"], ()))
        for row in rows
    ]


def _attempt(row: Mapping[str, Any]) -> AttemptRow:
    return AttemptRow(**{name: value for name, value in row.items() if name != "operation_id"})

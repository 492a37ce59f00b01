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
from storage.reads.pages import Page, clamped, cursor_made_no, found, page_of
from storage.store import Store


@dataclass(frozen=True)
class AttemptRow:
    """One try. `usage` as the provider reported it, or as estimated here; of a try under way, what it has used so far.

    `error` is `{code, reason, status}`.
    """

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


COLUMNS = """
    SELECT o.operation_id, o.run_id, o.session_id, o.purpose, o.state, o.loop_no AS loop, o.ordinal, o.name, o.call_id,
           o.effect, o.input_cutoff, o.created_at, o.made_no, coalesce(o.transforms, '[]') AS transforms
    FROM operations o JOIN sessions s USING (session_id)
    WHERE s.owner_id = :owner_id
"""
ONE = text(f"{COLUMNS} AND o.operation_id = :operation_id")
PAGE = text(f"""
    {COLUMNS} AND o.run_id = :run_id AND o.made_no > :after ORDER BY o.made_no LIMIT :limit
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
ARTIFACT = text("""
    SELECT o.state, a.media_type, a.payload_id
    FROM operations o JOIN sessions s USING (session_id) JOIN artifacts a USING (operation_id)
    WHERE s.owner_id = :owner_id AND o.operation_id = :operation_id AND a.ordinal = :ordinal
""")


async def operations(
    store: Store, run_id: UUID, owner_id: UUID, *, limit: int = 100, cursor: str | None = None
) -> Page[OperationRow]:
    """The Operations of a Run in the order they were made. Raises NotFoundError."""
    limit, after = clamped(limit), cursor_made_no(cursor)
    binds = {"run_id": run_id, "owner_id": owner_id}
    async with store.reading() as connection:
        rows = await fetch_all(connection, PAGE, **binds, after=after, limit=limit + 1)
        if not rows:
            await check_run(connection, run_id, owner_id)
        page = page_of(rows, limit, lambda row: str(row["made_no"]))
        return Page(await _rows(connection, page.items), page.next)


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


async def operation_artifact(store: Store, operation_id: UUID, owner_id: UUID, ordinal: int) -> OperationResult:
    """Binary content of a tool's result, by the number in its reference. Raises NotFoundError."""
    async with store.reading() as connection:
        query = {"operation_id": operation_id, "owner_id": owner_id, "ordinal": ordinal}
        row = found(await fetch_one(connection, ARTIFACT, **query), "artifact", str(ordinal))
        content = await store.payloads.read_one(connection, row["payload_id"])
    return OperationResult(operation_id, row["state"], row["media_type"], content)


async def _rows(connection: AsyncConnection, rows: Sequence[Mapping[str, Any]]) -> list[OperationRow]:
    if not rows:
        return []
    tries = await fetch_all(connection, ATTEMPTS, ids=[row["operation_id"] for row in rows])
    of = {owner: tuple(map(_attempt, group)) for owner, group in groupby(tries, lambda one: one["operation_id"])}
    return [_row(row, of.get(row["operation_id"], ())) for row in rows]


def _row(row: Mapping[str, Any], attempts: tuple[AttemptRow, ...]) -> OperationRow:
    shown = {name: value for name, value in row.items() if name != "made_no"}
    return OperationRow(**{**shown, "transforms": tuple(row["transforms"])}, attempts=attempts)


def _attempt(row: Mapping[str, Any]) -> AttemptRow:
    return AttemptRow(**{name: value for name, value in row.items() if name != "operation_id"})

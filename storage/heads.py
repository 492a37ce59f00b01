"""The row locks and fences that every commit of a running Run begins with (DESIGN 4)."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.errors import SupersededError
from storage.database import fetch_one

HEADS = """
    s.session_id, s.record_head AS session_head, s.input_head, r.run_id, r.run_no, r.release_id, r.status,
    r.execution_no, r.loops, r.input_cutoff, r.event_head, r.stop_requested_at IS NOT NULL AS stopping,
    r.input_tokens + r.output_tokens AS used_tokens, r.cost, c.context_id, c.record_head AS context_head, c.revision,
    c.chain, c.view_id, c.view_length, c.view_tokens
"""
LOCK = text(f"""
    SELECT {HEADS}
    FROM role_contexts c JOIN runs r ON r.run_id = c.run_id JOIN sessions s ON s.session_id = r.session_id
    WHERE c.context_id = :context_id
    FOR UPDATE OF s, r, c
""")


@dataclass(frozen=True)
class Heads:
    """Session, Run and RoleContext as they stand under this transaction's locks. `used_tokens` is input plus output."""

    session_id: UUID
    session_head: int
    input_head: int
    run_id: UUID
    run_no: int
    release_id: UUID
    status: str
    execution_no: int
    loops: int
    input_cutoff: int
    event_head: int
    stopping: bool
    used_tokens: int
    cost: Decimal | None
    context_id: UUID
    context_head: int
    revision: int
    chain: bytes
    view_id: UUID | None
    view_length: int
    view_tokens: int


LOCK_OPERATION = text(f"""
    SELECT {HEADS}, o.attempts, o.verdict, o.view_id AS request_view,
           (SELECT array_agg(k.call_id) FROM call_ids k
            WHERE k.session_id = s.session_id AND k.call_id = ANY(CAST(:call_ids AS text[]))) AS taken
    FROM operations o JOIN role_contexts c USING (context_id) JOIN runs r ON r.run_id = c.run_id
         JOIN sessions s ON s.session_id = r.session_id
    WHERE o.operation_id = :operation_id
    FOR UPDATE OF s, r, c, o
""")
_OWN_COLUMNS = ("attempts", "verdict", "request_view", "taken")


@dataclass(frozen=True)
class OperationHeads:
    """The heads, with the Operation as it stands: locked too, hence never older than the lock."""

    heads: Heads
    attempts: int
    verdict: dict[str, Any] | None
    request_view: UUID | None
    taken: frozenset[str]


async def lock_operation(
    connection: AsyncConnection, operation_id: UUID, *, execution_no: int, call_ids: list[str]
) -> OperationHeads:
    """Lock session, run, context and operation, in this order; `taken` are those call ids that the Session has had.

    Raises SupersededError if this execution no longer owns the Run.
    """
    found: Any = await fetch_one(connection, LOCK_OPERATION, operation_id=operation_id, call_ids=call_ids)
    if found is None:
        raise SupersededError
    heads = Heads(**{name: found[name] for name in found if name not in _OWN_COLUMNS})
    _check_owner(heads, execution_no)
    taken = frozenset(found["taken"] or ())
    return OperationHeads(heads, found["attempts"], found["verdict"], found["request_view"], taken)


def _check_owner(heads: Heads, execution_no: int) -> None:
    if heads.status != "running" or heads.execution_no != execution_no:
        raise SupersededError


async def lock_heads(connection: AsyncConnection, context_id: UUID, *, execution_no: int) -> Heads:
    """Lock session, run and context, in this order. Raises SupersededError if this execution no longer owns the Run."""
    heads = await lock_context(connection, context_id)
    _check_owner(heads, execution_no)
    return heads


async def lock_context(connection: AsyncConnection, context_id: UUID) -> Heads:
    """The same whoever owns the Run. Raises SupersededError if there is no such context."""
    row: Any = await fetch_one(connection, LOCK, context_id=context_id)
    if row is None:
        raise SupersededError
    return Heads(**row)

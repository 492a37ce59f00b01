"""A frozen request read back: the references of its view, with their content (SPEC A9).

The list of a view only grows, so a process that has the beginning of it asks only for the rest.
"""

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.errors import NotFoundError
from context.messages import ChatMessage, message_from_bytes
from storage.database import fetch_one, fetch_value
from storage.store import Store

OWNED = """
    CASE WHEN e.episode_id IS NULL THEN r.status = 'running' AND r.execution_no = :execution_no
         ELSE e.status = 'running' END
"""
STOPPING = "(CASE WHEN e.episode_id IS NULL THEN r.stop_requested_at ELSE e.stop_requested_at END IS NOT NULL)"
OPERATION = f"""
    SELECT o.operation_id, o.session_id, o.run_id, o.context_id, o.state, o.loop_no, o.view_id, o.view_length,
           o.attempts, o.request_hash, o.verdict, o.purpose, o.max_output_tokens,
           coalesce(e.release_id, r.release_id) AS release_id,
           {OWNED} AS owned, {STOPPING} AS stopping,
           o.purpose = 'business' AND EXISTS (SELECT 1 FROM input_deliveries d
             WHERE d.run_id = o.run_id AND d.state = 'claimed') AS claims,
           s.start, ARRAY(SELECT v.payload_id FROM view_items v
                          WHERE v.view_id = o.view_id AND v.pos >= s.start AND v.pos < o.view_length
                          ORDER BY v.pos) AS new
    FROM operations o JOIN runs r USING (run_id) LEFT JOIN idle_blocks b USING (operation_id)
         LEFT JOIN compaction_episodes e ON e.episode_id = b.episode_id
         CROSS JOIN LATERAL (SELECT CASE WHEN o.view_id = :held_view AND o.view_length >= :held_length
                                         THEN :held_length ELSE 0 END AS start) s
    WHERE o.operation_id = :operation_id
"""
READ = text(OPERATION)
EXISTS = text("SELECT EXISTS (SELECT 1 FROM operations WHERE operation_id = :operation_id)")


@dataclass(frozen=True)
class FrozenRequest:
    """A model Operation with its place in its view, and its fences as they stood when it was read.

    `claims`: it carries inputs not yet delivered. `new` are the messages from `start` on.
    """

    operation_id: UUID
    session_id: UUID
    run_id: UUID
    context_id: UUID
    release_id: UUID
    state: str
    loop_no: int
    view_id: UUID
    view_length: int
    attempts: int
    request_hash: bytes | None
    verdict: dict[str, Any] | None
    purpose: str
    max_output_tokens: int
    owned: bool
    stopping: bool
    claims: bool
    start: int
    new: tuple[ChatMessage, ...] = field(repr=False)


class Requests:
    """Reads frozen requests."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @staticmethod
    async def exists(connection: AsyncConnection, operation_id: UUID) -> bool:
        """Whether there is such an Operation."""
        return bool(await fetch_value(connection, EXISTS, operation_id=operation_id))

    async def load(
        self, operation_id: UUID, *, execution_no: int = 0, held: tuple[UUID, int] | None = None
    ) -> FrozenRequest:
        """The request of a model Operation. Raises NotFoundError if there is none.

        `held` is a view, and how many of its messages the caller has: if the request begins with them, `new` are the
        rest, else all.
        """
        async with self._store.reading() as connection:
            return await self.read(connection, READ, operation_id, execution_no=execution_no, held=held)

    async def read(
        self,
        connection: AsyncConnection,
        statement: TextClause,
        operation_id: UUID,
        *,
        execution_no: int,
        held: tuple[UUID, int] | None,
    ) -> FrozenRequest:
        """The same, by a statement that asks for what `OPERATION` does."""
        held_view, held_length = held or (None, 0)
        key = {"operation_id": operation_id, "execution_no": execution_no}
        row: Any = await fetch_one(connection, statement, **key, held_view=held_view, held_length=held_length)
        if row is None or row["view_id"] is None:
            raise NotFoundError.of("model call", operation_id)
        contents = await self._store.payloads.read(connection, row["new"])
        new = tuple(message_from_bytes(contents[payload_id]) for payload_id in row["new"])
        return FrozenRequest(**(row | {"new": new}))

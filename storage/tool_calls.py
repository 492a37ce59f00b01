"""Reads what a tool call needs to be made: the call as the model wrote it, and where it belongs."""

from typing import Any
from uuid import UUID

from sqlalchemy import text

from context.errors import NotFoundError
from context.messages import message_from_bytes
from context.steps import ToolCallFacts
from storage.database import fetch_one
from storage.store import Store

FACTS = text("""
    SELECT t.operation_id, t.session_id, t.run_id, t.name, t.call_id, t.ordinal, t.state, r.release_id, m.result_id
    FROM operations t JOIN operations m ON m.operation_id = t.batch_id JOIN runs r ON r.run_id = t.run_id
    WHERE t.operation_id = :operation_id
""")


async def tool_call_facts(store: Store, operation_id: UUID) -> ToolCallFacts:
    """The call of a tool Operation. Raises NotFoundError if there is none."""
    async with store.reading() as connection:
        row: Any = await fetch_one(connection, FACTS, operation_id=operation_id)
        if row is None:
            raise NotFoundError
        message = message_from_bytes(await store.payloads.read_one(connection, row["result_id"]))
    same = ("operation_id", "session_id", "run_id", "release_id", "name", "call_id", "state")
    arguments = message.tool_calls[row["ordinal"]].arguments
    return ToolCallFacts(**{name: row[name] for name in same}, arguments=arguments)

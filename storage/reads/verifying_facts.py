"""Whether the facts of a session agree with each other: what decides a later request is told by more than one row.

A column that no chain holds is derived here from others that were written with it (SPEC M7). Each statement finds the
rows that disagree; `subject` names one, `place` is its number among its like.
"""

from collections.abc import AsyncIterator
from uuid import UUID

from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.database import fetch_all
from storage.reads.breaks import Break, BreakKind

# A record is taken for what it came from: an input, the answer of a model call, the result of a tool call.
RECORDS = text("""
    SELECT 'record/' || c.record_id AS subject, c.context_seq AS place
    FROM context_records c LEFT JOIN role_contexts x USING (context_id)
      LEFT JOIN user_inputs i ON i.input_id = c.input_id LEFT JOIN operations o ON o.operation_id = c.operation_id
    WHERE c.session_id = :session_id AND NOT coalesce(
      x.session_id = c.session_id AND x.run_id = c.run_id AND c.result_key IS NOT DISTINCT FROM c.call_id
      AND (c.kind = 'user_ref') = (c.input_id IS NOT NULL) AND (c.kind = 'user_ref') = (c.operation_id IS NULL)
      AND (c.kind = 'tool_result') = (c.call_id IS NOT NULL) AND (c.kind = 'tool_result' OR c.status IS NULL)
      AND CASE WHEN c.kind = 'user_ref' THEN i.session_id = c.session_id
               WHEN o.context_id <> c.context_id THEN false
               WHEN c.kind = 'tool_result' THEN
                 o.purpose = 'tool' AND o.call_id = c.call_id AND o.result_id = c.payload_id
                 AND (o.verdict ->> 'status') IS NOT DISTINCT FROM c.status
               WHEN c.kind IN ('assistant', 'fragment') THEN
                 o.purpose = 'business' AND o.result_id = c.payload_id
                 AND (o.verdict ->> 'kind' = 'unusable') = (c.kind = 'fragment')
               ELSE c.kind = 'feedback' AND o.purpose = 'business' AND o.result_id <> c.payload_id END, false)
    ORDER BY c.seq
""")

STATEMENTS: tuple[tuple[BreakKind, TextClause], ...] = (("record", RECORDS),)


async def fact_breaks(connection: AsyncConnection, session_id: UUID) -> AsyncIterator[Break]:
    """Each row of a session that disagrees with the others."""
    for kind, statement in STATEMENTS:
        for row in await fetch_all(connection, statement, session_id=session_id):
            yield Break(kind, row["subject"], row["place"])

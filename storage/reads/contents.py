"""The content that a session refers to, wherever it does, and what of it is no longer what it was (SPEC M7).

Names places, never content. Reads by page, past every cache.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.database import fetch_all
from storage.store import Store

PAGE = 100

# Each place that can hold content of a session: the payload, who refers to it, and the number of that among its like.
_REFERENCES = """
    SELECT payload_id, 'record/' || record_id AS subject, context_seq AS place FROM context_records
    WHERE session_id = :session_id
    UNION ALL SELECT payload_id, 'input/' || input_id, input_seq FROM user_inputs WHERE session_id = :session_id
    UNION ALL SELECT m.payload_id, 'mutation/' || m.mutation_id, m.revision FROM role_contexts x
      JOIN context_mutations m USING (context_id) WHERE x.session_id = :session_id
    UNION ALL SELECT v.payload_id, 'view/' || v.view_id, v.pos FROM role_contexts x
      JOIN request_views w USING (context_id) JOIN view_items v ON v.view_id = w.view_id
      WHERE x.session_id = :session_id
    UNION ALL SELECT c.payload_id, 'operation/' || o.operation_id || '/' || c.name, NULL FROM operations o
      CROSS JOIN LATERAL (VALUES ('arguments', arguments_id), ('raw', raw_id), ('result', result_id),
        ('whole', whole_id)) AS c(name, payload_id) WHERE o.session_id = :session_id
    UNION ALL SELECT a.fragment_id, 'operation/' || a.operation_id || '/fragment', a.attempt_no FROM operations o
      JOIN attempts a USING (operation_id) WHERE o.session_id = :session_id
    UNION ALL SELECT a.payload_id, 'operation/' || a.operation_id || '/artifact', a.ordinal FROM operations o
      JOIN artifacts a USING (operation_id) WHERE o.session_id = :session_id
    UNION ALL SELECT c.payload_id, 'episode/' || e.episode_id || '/' || c.name, NULL FROM compaction_episodes e
      CROSS JOIN LATERAL (VALUES ('plan', plan_id), ('summary', summary_id)) AS c(name, payload_id)
      WHERE e.session_id = :session_id
    UNION ALL SELECT c.payload_id, 'snapshot/' || s.snapshot_id || '/' || c.name, NULL FROM snapshots s
      CROSS JOIN LATERAL (VALUES ('text', text_id), ('message', message_id)) AS c(name, payload_id)
      WHERE s.session_id = :session_id
    UNION ALL SELECT title_id, 'session/' || session_id || '/title', NULL FROM sessions WHERE session_id = :session_id
"""
DISTINCT = text(f"SELECT DISTINCT payload_id FROM ({_REFERENCES}) r WHERE payload_id IS NOT NULL")
REFERRING = text(f"""
    SELECT DISTINCT subject, place FROM ({_REFERENCES}) r WHERE payload_id = ANY(CAST(:broken AS bytea[]))
    ORDER BY subject, place
""")


@dataclass(frozen=True)
class Referring:
    """A place that refers to broken content."""

    subject: str
    place: int | None


@dataclass(frozen=True)
class Contents:
    """How many distinct contents the session refers to, which of them are broken, and who refers to those."""

    count: int
    broken: frozenset[bytes]
    referring: Sequence[Referring]


async def contents_of(store: Store, connection: AsyncConnection, session_id: UUID) -> Contents:
    """Open everything that the session refers to, each content once."""
    ids = [row["payload_id"] for row in await fetch_all(connection, DISTINCT, session_id=session_id)]
    broken: frozenset[bytes] = frozenset()
    for start in range(0, len(ids), PAGE):
        broken |= await store.payloads.broken(connection, ids[start : start + PAGE])
    rows = await fetch_all(connection, REFERRING, session_id=session_id, broken=list(broken)) if broken else []
    return Contents(len(ids), broken, [Referring(**row) for row in rows])

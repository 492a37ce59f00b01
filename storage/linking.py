"""What the tool protocol sees of a list, from references alone: which calls it makes, which it answers (SPEC A4).

Costs as much as the list is long, so it is asked of lists that are new as a whole: the first one of a Run, and one that
a summary was put into. What is added to a list in between is a whole batch behind its call.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.messages import Role
from context.pairing import RESULTS, CallsAnswered, Link
from context.views import ViewItem
from storage.database import fetch_all

# A result that no request has carried yet is known by its Operation, as a placeholder is.
PLACES = text("""
    SELECT i.source_id, coalesce(c.call_id, o.call_id) AS answers, c.operation_id AS batch_id
    FROM unnest(CAST(:sources AS uuid[])) AS i(source_id)
         LEFT JOIN context_records c ON c.record_id = i.source_id
         LEFT JOIN operations o ON o.operation_id = i.source_id
""")
CALLS = text("""
    SELECT batch_id, call_id FROM operations
    WHERE batch_id = ANY(CAST(:batches AS uuid[])) AND purpose = 'tool' ORDER BY batch_id, ordinal
""")


async def breaks_pairs(
    connection: AsyncConnection, items: Sequence[ViewItem], *, then: Sequence[str | None] = ()
) -> bool:
    """Whether a call stands without its results, or a result without its call. `then` are calls answered next."""
    asked = [item for item in items if item.kind == "assistant" or item.kind in RESULTS]
    if not asked:
        return bool(then)
    sources = list({item.source_id for item in asked if item.source_id is not None})
    places = {row["source_id"]: row for row in await fetch_all(connection, PLACES, sources=sources)}
    said = {item.source_id for item in asked if item.kind == "assistant"}
    batches = [row["batch_id"] for row in places.values() if row["source_id"] in said and row["batch_id"]]
    calls: dict[UUID, list[str]] = defaultdict(list)
    for row in await fetch_all(connection, CALLS, batches=batches):
        calls[row["batch_id"]].append(row["call_id"])
    links = [_link(item, places, calls) for item in items] + [Link("tool", answers=call_id) for call_id in then]
    return bool(CallsAnswered(links).breaches())


def _link(item: ViewItem, places: Mapping[UUID, Mapping[str, Any]], calls: Mapping[UUID, Sequence[str]]) -> Link:
    place = places.get(item.source_id, {}) if item.source_id is not None else {}
    if item.kind in RESULTS:
        return Link("tool", answers=place.get("answers"))
    if item.kind == "assistant" and place.get("batch_id") in calls:
        return Link("assistant", tuple(calls[place["batch_id"]]))
    role: Role = "assistant" if item.kind == "assistant" else "user"
    return Link(role)

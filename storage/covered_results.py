"""The tool results that summaries cover, by reference: for a new summary's message, and for `result_read` (SPEC T5).

A new summary goes on from the list of the one folded into it, so that folding reads no more the longer a Session is
(SPEC P6). Only who asks for all of them reads all.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.covered_results import READER, CoveredResult, folded_results
from context.episodes import ListedResults
from context.errors import NotFoundError
from context.ids import snapshot_id
from context.messages import message_from_bytes
from context.summaries import listed_results
from context.views import total_tokens
from storage.covering import CHAIN
from storage.database import fetch_all, fetch_one
from storage.snapshot_tables import SOURCE_ID
from storage.store import Store
from storage.view_lists import listed

EPISODE = text("""
    SELECT view_id, view_length, covered, folds, target FROM compaction_episodes WHERE episode_id = :episode_id
""")
# A result that no request has carried is known by its call, any other by its record. A page of a result is left out: it
# is no result to go back to.
_CALLS = """
    LEFT JOIN context_records c ON c.record_id = r.source_id
    JOIN operations o ON o.operation_id = coalesce(c.operation_id, r.source_id)
      AND o.purpose = 'tool' AND o.name <> :reader
"""
NAMED = text(f"""
    SELECT o.operation_id AS result_ref, o.name AS tool
    FROM unnest(CAST(:ids AS uuid[])) WITH ORDINALITY AS r(source_id, place) {_CALLS} ORDER BY r.place
""")
ALL = text(f"""{CHAIN}
    SELECT o.operation_id AS result_ref, o.name AS tool
    FROM (SELECT {SOURCE_ID} AS source_id, chain.depth, p.ordinal
          FROM chain JOIN snapshot_pieces p USING (snapshot_id) WHERE p.piece LIKE 'record/%') r {_CALLS}
    WHERE EXISTS (SELECT 1 FROM snapshots s WHERE s.snapshot_id = :snapshot_id AND s.session_id = :session_id)
    ORDER BY r.depth DESC, r.ordinal
""")
ADDED = text(f"""
    SELECT r.snapshot_id, o.operation_id AS result_ref, o.name AS tool
    FROM (SELECT p.snapshot_id, {SOURCE_ID} AS source_id, p.ordinal
          FROM snapshots s JOIN snapshot_pieces p USING (snapshot_id)
          WHERE s.session_id = :session_id AND p.piece LIKE 'record/%') r {_CALLS}
    ORDER BY r.snapshot_id, r.ordinal
""")


async def results_to_list(store: Store, episode_id: UUID, *, beside: int, trigger: int) -> ListedResults:
    """What the message of an episode's summary may list, and how long it may be; the same however often it is read.

    `beside` are the tokens of the request that are no items of its list, `trigger` those that it must not reach. Raises
    NotFoundError.
    """
    async with store.reading() as connection:
        row: Any = await fetch_one(connection, EPISODE, episode_id=episode_id)
        if row is None:
            raise NotFoundError.of("compaction", episode_id)
        items = await listed(connection, row["view_id"], row["view_length"])
        covered = frozenset(row["covered"])
        ids = [items[at].source_id for at in sorted(covered) if items[at].kind == "tool_result"]
        added = _results(await fetch_all(connection, NAMED, ids=ids, reader=READER))
        earlier = None
        if row["folds"] is not None:
            body = await store.payloads.read_one(connection, items[row["folds"]].payload_id)
            earlier = listed_results(message_from_bytes(body))
    own = snapshot_id(episode_id)
    results = folded_results(earlier, added, folds=row["folds"] is not None, summary_id=own)
    kept = total_tokens(tuple(item for at, item in enumerate(items) if at not in covered)) + beside
    whole = total_tokens(tuple(items)) + beside
    return ListedResults(own, results, _longest_request(row["target"], whole=whole, trigger=trigger) - kept)


async def covered_results(
    connection: AsyncConnection, snapshot_id: UUID, session_id: UUID
) -> tuple[CoveredResult, ...]:
    """All results that a summary of this Session stands for, with what was folded into it, in order."""
    binds = {"snapshot_id": snapshot_id, "session_id": session_id}
    return _results(await fetch_all(connection, ALL, **binds, reader=READER))


async def added_results(connection: AsyncConnection, session_id: UUID) -> dict[UUID, tuple[CoveredResult, ...]]:
    """The results that each summary of a Session adds to those of the one folded into it, in order."""
    rows: Any = await fetch_all(connection, ADDED, session_id=session_id, reader=READER)
    by_summary = groupby(rows, key=lambda row: row["snapshot_id"])
    return {one: tuple(CoveredResult(row["result_ref"], row["tool"]) for row in of) for one, of in by_summary}


def _longest_request(target: Mapping[str, int], *, whole: int, trigger: int) -> int:
    """Tokens within F + T (SPEC K4), less than it had (SPEC K8), and under the trigger, which no list may reach."""
    return min(target["fixed"] + target["summary"], whole - 1, trigger - 1)


def _results(rows: Sequence[Mapping[str, Any]]) -> tuple[CoveredResult, ...]:
    return tuple(CoveredResult(**row) for row in rows)

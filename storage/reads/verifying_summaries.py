"""Whether each summary of a session covers what it says, and was shown as it was written (SPEC K10, M7).

What a summary stands for is derived again from the list that its episode froze, piece by piece, as when it was
published; the rest of its row from the episode, the summary folded into it, and the changes that came later.
"""

import json
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence, Set
from dataclasses import asdict, fields, replace
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.covered_results import CoveredResult, CoveredResults
from context.errors import UnknownContentError
from context.ids import block_operation_id, snapshot_id
from context.material import Material, piece_of
from context.messages import message_from_bytes
from context.snapshots import Covered, SummaryChains, Version
from context.summaries import listed_results, summary_message
from storage.covered_results import added_results
from storage.covering import CoveredSources, covered_piece, materials_of, sources_of
from storage.database import fetch_all, fetch_value
from storage.effective import EFFECTIVE
from storage.episodes import FrozenSources
from storage.store import Store
from storage.view_lists import listed

SNAPSHOTS = text("""
    SELECT s.snapshot_id, s.previous_id, s.pieces, s.ranges, s.revisions, s.runs, r.run_no, e.session_id, e.episode_id,
           e.context_id, e.view_id, e.view_length, e.covered, e.folds, e.context_revision
    FROM snapshots s JOIN compaction_episodes e USING (episode_id) JOIN runs r ON r.run_id = e.run_id
    WHERE s.session_id = :session_id ORDER BY s.made_no
""")
OWN_PIECES = text("""
    SELECT ordinal, piece, digest, run_no, context_id, context_seq FROM snapshot_pieces
    WHERE snapshot_id = :snapshot_id ORDER BY ordinal
""")
# What else a snapshot tells, where it does not agree with its episode, with the order of that and the others of its
# context, with the count of its message, or with what took it back: a change, or the end of a call that it covers as
# open, itself or in what was folded into it. One that was not used may have been outdated from the beginning.
MISTOLD = text("""
    WITH RECURSIVE chain AS (
      SELECT snapshot_id AS of_id, snapshot_id, previous_id, made_no, episode_id FROM snapshots
      WHERE session_id = :session_id AND outdated_at IS NOT NULL
      UNION ALL
      SELECT c.of_id, p.snapshot_id, p.previous_id, p.made_no, c.episode_id FROM chain c
        JOIN snapshots p ON p.snapshot_id = c.previous_id AND p.made_no < c.made_no
    ), taken_up AS (
      SELECT c.of_id FROM chain c JOIN compaction_episodes e USING (episode_id)
        JOIN snapshot_pieces q ON q.snapshot_id = c.snapshot_id
        JOIN operations o ON o.session_id = :session_id AND CAST(o.operation_id AS text) = split_part(q.piece, '/', 2)
        JOIN tool_batches b ON b.batch_id = o.batch_id JOIN runs r ON r.run_id = o.run_id
      WHERE split_part(q.piece, '/', 1) IN ('call', 'record') AND (
        b.consumed OR r.execution_no > 1 OR coalesce(r.ended_no > e.made_no, true)
        OR (o.result_id IS NOT NULL AND q.piece LIKE 'call/%'))
      UNION
      SELECT c.of_id FROM chain c JOIN snapshots p ON p.snapshot_id = c.snapshot_id AND p.snapshot_id <> c.of_id
      WHERE p.outdated_at IS NOT NULL
    )
    SELECT s.snapshot_id FROM compaction_episodes e JOIN snapshots s USING (episode_id)
      LEFT JOIN payloads p ON p.payload_id = s.message_id
    WHERE e.session_id = :session_id AND (
      s.session_id <> e.session_id OR s.context_id <> e.context_id OR s.text_id IS DISTINCT FROM e.summary_id
      OR s.activated IS DISTINCT FROM (e.outcome = 'activated')
      OR s.generation <> (SELECT count(*) FROM snapshots o
                          WHERE o.context_id = s.context_id AND o.made_no <= s.made_no)
      OR s.made_no < e.made_no
      OR CAST(s.tokens AS text) <> (p.tokens ->> e.estimator_id)
      OR CASE WHEN EXISTS (
           SELECT 1 FROM role_contexts x JOIN context_mutations m USING (context_id)
           WHERE x.session_id = :session_id AND s.snapshot_id = ANY(m.outdated))
         THEN s.outdated_at IS NULL
         ELSE s.outdated_at IS NOT NULL AND e.outcome NOT IN ('sources_changed', 'another_snapshot')
           AND s.snapshot_id NOT IN (SELECT of_id FROM taken_up) END)
    ORDER BY 1
""")
# What a summary says in its two forms, and the answer to its last block, which it is the reading of.
SAID = text("""
    SELECT s.snapshot_id, s.text_id, s.message_id, e.episode_id, e.blocks FROM snapshots s
      JOIN compaction_episodes e USING (episode_id) WHERE s.session_id = :session_id ORDER BY s.made_no
""")
LAST_RESULT = text("SELECT result_id FROM operations WHERE operation_id = :operation_id")
# A piece that is a record or an input names the one at its place; its version is that of the record, unless mutated.
PIECES = text(f"""
    SELECT p.snapshot_id, p.ordinal FROM snapshots s JOIN snapshot_pieces p USING (snapshot_id)
      LEFT JOIN context_records c ON c.context_id = p.context_id AND c.context_seq = p.context_seq
      {EFFECTIVE}
      LEFT JOIN payloads w ON w.payload_id = coalesce(e.payload_id, c.payload_id)
    WHERE s.session_id = :session_id AND p.context_id IS NOT NULL
      AND (NOT coalesce(p.piece IN ('record/' || c.record_id, 'input/' || c.input_id), false)
           OR s.outdated_at IS NULL AND w.digest IS DISTINCT FROM p.digest)
    ORDER BY p.snapshot_id, p.ordinal
""")
# What a call of an episode was to summarise goes by its plan.
PLANS = text("""
    SELECT episode_id, plan_id, blocks, view_id, view_length, covered FROM compaction_episodes
    WHERE session_id = :session_id AND (blocks IS NOT NULL OR plan_id IS NOT NULL) ORDER BY made_no
""")
# Finished episodes without their snapshot (one that found nothing to compact has none), and summaries in a request that
# are no snapshot's, or not in its words.
LOST = text("""
    SELECT e.episode_id FROM compaction_episodes e LEFT JOIN snapshots s USING (episode_id)
    WHERE e.session_id = :session_id AND e.status = 'succeeded' AND e.outcome <> 'nothing_to_compact'
      AND s.snapshot_id IS NULL ORDER BY 1
""")
MISQUOTED = text("""
    SELECT DISTINCT v.source_id FROM role_contexts x JOIN request_views w USING (context_id)
      JOIN view_items v ON v.view_id = w.view_id LEFT JOIN snapshots s ON s.snapshot_id = v.source_id
    WHERE x.session_id = :session_id AND v.kind = 'summary' AND s.message_id IS DISTINCT FROM v.payload_id ORDER BY 1
""")


# What all summaries add, in one look: a chain of them is not read again for each that was folded from it.
ADDED_PIECES = text("""
    SELECT p.snapshot_id, p.piece FROM snapshots s JOIN snapshot_pieces p USING (snapshot_id)
    WHERE s.session_id = :session_id
""")
FOLDED = text("SELECT snapshot_id, previous_id FROM snapshots WHERE session_id = :session_id")


class Summaries:
    """The summaries of a session, and what each of them stands for."""

    def __init__(self, store: Store, connection: AsyncConnection, session_id: UUID) -> None:
        self._store = store
        self._connection = connection
        self._session_id = session_id
        self.count = 0

    async def chains(self) -> SummaryChains:
        """Which pieces each summary adds to those of the one folded into it."""
        adding: defaultdict[str, set[str]] = defaultdict(set)
        for row in await self._rows(ADDED_PIECES):
            adding[row["piece"]].add(_name(row["snapshot_id"]))
        return SummaryChains(adding, await self._folded())

    async def breaks(self, broken: Set[bytes]) -> AsyncIterator[tuple[str, int | None]]:
        """Each summary that is not as it should be, and the covered piece it is about, if about one; each once.

        `broken` content is told of already, and not read here.
        """
        found = [one async for one in self._coverage_breaks()]
        found += [(f"snapshot/{one}", None) async for one in self._misworded(broken)]
        found += [(f"episode/{one}", None) async for one in self._misplanned(broken)]
        found += [(f"snapshot/{row['snapshot_id']}", None) for row in await self._rows(MISTOLD)]
        found += [(f"snapshot/{row['snapshot_id']}", row["ordinal"]) for row in await self._rows(PIECES)]
        found += [(f"episode/{row['episode_id']}", None) for row in await self._rows(LOST)]
        found += [(f"snapshot/{row['source_id']}", None) for row in await self._rows(MISQUOTED)]
        for one in dict.fromkeys(found):
            yield one

    async def _coverage_breaks(self) -> AsyncIterator[tuple[str, int | None]]:
        for row in await self._rows(SNAPSHOTS):
            self.count += 1
            subject = f"snapshot/{row['snapshot_id']}"
            episode = FrozenSources(**{one.name: row[one.name] for one in fields(FrozenSources)})
            stored = await self._stored(row["snapshot_id"])
            materials = await materials_of(self._connection, episode)
            for place in _apart(stored, materials):
                yield subject, place
            if not await self._tells(row, episode, _as_stored(stored, materials)):
                yield subject, None

    async def _misworded(self, broken: Set[bytes]) -> AsyncIterator[UUID]:
        """The summaries that are not what was answered, or whose message is not in the words of their text."""
        chains = SummaryChains({}, await self._folded())
        added = {
            _name(one): results for one, results in (await added_results(self._connection, self._session_id)).items()
        }
        for row in await self._rows(SAID):
            last = block_operation_id(row["episode_id"], (row["blocks"] or 0) - 1)
            answered = await fetch_value(self._connection, LAST_RESULT, operation_id=last)
            is_readable = broken.isdisjoint((row["text_id"], row["message_id"]))
            covered = (added.get(one, ()) for one in chains.behind(_name(row["snapshot_id"])))
            if answered != row["text_id"] or (is_readable and not await self._words_agree(row, covered)):
                yield row["snapshot_id"]

    async def _misplanned(self, broken: Set[bytes]) -> AsyncIterator[UUID]:
        """The episodes whose plan has not as many blocks as they say, or is of another list."""
        for row in await self._rows(PLANS):
            if row["plan_id"] is None:
                yield row["episode_id"]
            elif row["plan_id"] not in broken:
                plan = await self._store.payloads.read_one(self._connection, row["plan_id"])
                items = await listed(self._connection, row["view_id"], row["view_length"])
                places = {piece_of(items[at]): at for at in row["covered"] if at < len(items)}
                if _planned(plan) != (row["blocks"], places):
                    yield row["episode_id"]

    async def _words_agree(self, row: Mapping[str, Any], covered: Iterable[Sequence[CoveredResult]]) -> bool:
        """Whether the message shows the text, and beside it an end of the list of results that it covers.

        `covered` are those that it adds, those that the one folded into it adds, and so on.
        """
        contents = await self._store.payloads.read(self._connection, [row["text_id"], row["message_id"]])
        try:
            written = contents[row["text_id"]].decode()
            message = message_from_bytes(contents[row["message_id"]])
        except (ValueError, UnknownContentError):  # one of them is no text, or no message
            return False
        shown = listed_results(message)
        if shown is not None and not _lists(row["snapshot_id"], covered, shown):
            return False
        return message == summary_message(written, shown)

    async def _folded(self) -> dict[str, str | None]:
        rows = await self._rows(FOLDED)
        return {_name(row["snapshot_id"]): row["previous_id"] and _name(row["previous_id"]) for row in rows}

    async def _stored(self, snapshot_id: UUID) -> dict[int, Covered]:
        rows = await fetch_all(self._connection, OWN_PIECES, snapshot_id=snapshot_id)
        return {row["ordinal"]: covered_piece(row) for row in rows}

    async def _tells(self, row: Mapping[str, Any], episode: FrozenSources, materials: Sequence[Material]) -> bool:
        """Whether what is told of a summary follows from what it covers and from the one before it."""
        items = await listed(self._connection, episode.view_id, episode.view_length)
        try:
            sources = await sources_of(self._connection, episode, items, materials)
        except (ValueError, LookupError, TypeError, AttributeError):  # the rows have a shape that no commit wrote
            return False
        told = (row["previous_id"], row["pieces"], row["ranges"], row["revisions"], row["runs"])
        return snapshot_id(episode.episode_id) == row["snapshot_id"] and told == _told(sources)

    async def _rows(self, statement: Any) -> list[Mapping[str, Any]]:
        return await fetch_all(self._connection, statement, session_id=self._session_id)


def _name(snapshot: UUID) -> str:
    return f"summary/{snapshot}"


def _lists(snapshot: UUID, covered: Iterable[Sequence[CoveredResult]], shown: CoveredResults) -> bool:
    """Whether a list is the end of what is covered, newest first; no more is looked at than it takes to tell."""
    results: tuple[CoveredResult, ...] = ()
    for added in covered:
        results = (*added, *results)
        if len(results) > len(shown.results):
            break
    newest = CoveredResults(results).newest(len(shown.results), snapshot)
    return shown.lines in (newest.lines, replace(newest, older=snapshot).lines)


def _planned(plan: bytes) -> tuple[int, dict[str, int]] | None:
    """How many blocks a plan has, and where the pieces are that they are made from; None if it is no plan."""
    try:
        found = json.loads(plan)
        return len(found["blocks"]), found["positions"]
    except (ValueError, LookupError, TypeError):  # another content
        return None


def _told(sources: CoveredSources) -> tuple[UUID | None, int, list[Any], dict[str, int], list[int]]:
    extent = sources.extent
    ranges = [asdict(one) | {"context_id": str(one.context_id)} for one in extent.ranges]
    revisions = {str(context): revision for context, revision in extent.revisions.items()}
    return sources.previous_id, extent.pieces, ranges, revisions, sorted(extent.runs)


def _as_stored(stored: Mapping[int, Covered], materials: Sequence[Material]) -> list[Material]:
    """The materials without the places that they got only later: an input of a Run that was resumed has one by now.

    A piece without a place is in no range, so that one which lost its place is told by the ranges.
    """
    placeless = {at for at, covered in stored.items() if covered.context_id is None and covered.context_seq is None}
    return [
        replace(one, context_id=None, context_seq=None) if at in placeless else one for at, one in enumerate(materials)
    ]


def _apart(stored: Mapping[int, Covered], materials: Sequence[Material]) -> list[int]:
    """The ordinals at which a summary does not cover what it was made of."""
    derived = [
        Covered(one.piece, Version(one.digest, one.mutations), one.run_no, one.context_id, one.context_seq)
        for one in _as_stored(stored, materials)
    ]
    places = sorted({*range(len(derived)), *stored})
    return [at for at in places if at >= len(derived) or stored.get(at) != derived[at]]

"""What an episode's summary covers, read with the version of each fact, and what has changed since (SPEC K9, K10)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.material import Material
from context.snapshots import Coverage, Covered, Extent, SourceRange, Version, cover, extended, extent_of
from context.views import ViewItem
from storage.database import fetch_all
from storage.effective import EFFECTIVE_THEN
from storage.episodes import FrozenSources

# An input has its place in the Run that shows it; a stored result that no request carried has none.
# What is shown shorter was summarised whole, in its effective version.
MATERIALS = text(f"""
    SELECT v.kind, v.source_id, v.run_no, v.revision, v.tokens, v.transform, v.payload_id,
           CASE WHEN v.transform IS NULL THEN p.digest ELSE coalesce(w.digest, p.digest) END AS digest,
           c.context_id, c.context_seq
    FROM view_items v JOIN payloads p USING (payload_id)
         JOIN compaction_episodes o ON o.episode_id = :episode_id
         LEFT JOIN context_records c ON c.record_id = CASE WHEN v.kind = 'input' THEN
           (SELECT k.record_id FROM runs q JOIN role_contexts x ON x.run_id = q.run_id AND x.instance = 'main'
              JOIN context_records k ON k.context_id = x.context_id AND k.input_id = v.source_id
            WHERE q.session_id = :session_id AND q.run_no = v.run_no) ELSE v.source_id END
         {EFFECTIVE_THEN}
         LEFT JOIN payloads w ON w.payload_id = coalesce(e.payload_id, c.payload_id)
    WHERE v.view_id = :view_id AND v.pos = ANY(CAST(:covered AS integer[])) AND v.kind <> 'summary' ORDER BY v.pos
""")
REVISIONS = text("""
    SELECT context_id, max(revision) AS revision FROM context_revisions
    WHERE context_id = ANY(CAST(:contexts AS uuid[]))
      AND made_no < (SELECT made_no FROM compaction_episodes WHERE episode_id = :episode_id)
    GROUP BY context_id
""")
# From later to earlier: a chain that somebody bent into a ring still ends.
CHAIN = """
    WITH RECURSIVE chain AS (
      SELECT snapshot_id, previous_id, 0 AS depth, made_no FROM snapshots WHERE snapshot_id = :snapshot_id
      UNION ALL
      SELECT s.snapshot_id, s.previous_id, c.depth + 1, s.made_no
      FROM snapshots s JOIN chain c ON s.snapshot_id = c.previous_id AND s.made_no < c.made_no
    )
"""
AMONG = text(f"""{CHAIN}
    SELECT p.piece FROM chain JOIN snapshot_pieces p USING (snapshot_id) WHERE p.piece = ANY(CAST(:pieces AS text[]))
""")
EXTENT = text("SELECT ranges, revisions, runs, pieces FROM snapshots WHERE snapshot_id = :snapshot_id")
CHANGED = text("""
    SELECT DISTINCT m.record_id FROM context_mutations m
      JOIN unnest(CAST(:contexts AS uuid[]), CAST(:revisions AS bigint[])) AS seen(context_id, revision)
        ON seen.context_id = m.context_id
    WHERE m.revision > seen.revision
""")
# A call of an earlier Run is covered as that Run left it. One that was resumed since settles it, and shows the result
# under another name; so it is with a summary folded in that was taken back.
TAKEN_UP = text("""
    SELECT p.piece FROM unnest(CAST(:pieces AS text[]), CAST(:operations AS uuid[])) AS p(piece, operation_id)
      JOIN operations o USING (operation_id) JOIN tool_batches b ON b.batch_id = o.batch_id
      JOIN runs r ON r.run_id = o.run_id JOIN compaction_episodes e ON e.episode_id = :episode_id
    WHERE b.consumed OR coalesce(r.ended_no > e.made_no, true)
       OR (o.result_id IS NOT NULL AND p.piece LIKE 'call/%')
    UNION ALL
    SELECT 'summary/' || snapshot_id FROM snapshots WHERE snapshot_id = :previous_id AND outdated_at IS NOT NULL
""")


@dataclass(frozen=True)
class CoveredSources:
    """The coverage of the new summary: what it adds, and how far it reaches with the snapshot that was folded in.

    The pieces of that one are not read: they only grow with the session (SPEC P6).
    """

    added: Coverage
    extent: Extent
    previous_id: UUID | None


async def covered_sources(
    connection: AsyncConnection, episode: FrozenSources, items: Sequence[ViewItem]
) -> CoveredSources:
    """What the episode's summary stands for; `items` is its source list. Raises ValueError for a piece in it twice."""
    return await sources_of(connection, episode, items, await materials_of(connection, episode))


async def materials_of(connection: AsyncConnection, episode: FrozenSources) -> list[Material]:
    """What an episode adds to the summary before it, in order, each in the version that it was to read."""
    binds = {"session_id": episode.session_id, "view_id": episode.view_id, "covered": episode.covered}
    rows = await fetch_all(connection, MATERIALS, **binds, episode_id=episode.episode_id)
    return [_material(row, episode.run_no) for row in rows]


async def sources_of(
    connection: AsyncConnection, episode: FrozenSources, items: Sequence[ViewItem], materials: Sequence[Material]
) -> CoveredSources:
    """The coverage that follows from these materials. Raises ValueError as `covered_sources`."""
    added = cover(materials, await _revisions(connection, episode, {one.context_id for one in materials}))
    previous = items[episode.folds].source_id if episode.folds is not None else None
    if previous is None:
        return CoveredSources(added, extent_of(added), None)
    if twice := await covered_among(connection, previous, sorted(added.names)):
        raise ValueError(f"a summary can't stand for the same piece twice: {len(twice)}")
    return CoveredSources(added, extended(await _extent(connection, previous), added), previous)


async def _extent(connection: AsyncConnection, snapshot_id: UUID) -> Extent:
    """How far a published snapshot reaches, with what was folded into it: told in its own row."""
    (row,) = await fetch_all(connection, EXTENT, snapshot_id=snapshot_id)
    ranges = tuple(SourceRange(UUID(one["context_id"]), one["from_seq"], one["through_seq"]) for one in row["ranges"])
    revisions = {UUID(context): revision for context, revision in row["revisions"].items()}
    return Extent(ranges, revisions, frozenset(row["runs"]), row["pieces"])


async def covered_among(connection: AsyncConnection, snapshot_id: UUID, pieces: Sequence[str]) -> set[str]:
    """Those of these pieces that a snapshot stands for, with what was folded into it."""
    rows = await fetch_all(connection, AMONG, snapshot_id=snapshot_id, pieces=list(pieces)) if pieces else []
    return {row["piece"] for row in rows}


async def changed_pieces(connection: AsyncConnection, seen: Mapping[UUID, int]) -> frozenset[str]:
    """What mutations have changed since these revisions of contexts."""
    binds = {"contexts": list(seen), "revisions": list(seen.values())}
    rows = await fetch_all(connection, CHANGED, **binds) if seen else []
    return frozenset(f"record/{row['record_id']}" for row in rows)


async def touched(connection: AsyncConnection, sources: CoveredSources) -> frozenset[str]:
    """The covered pieces that mutations since the covered revisions have changed."""
    changed = await changed_pieces(connection, sources.extent.revisions)
    if sources.previous_id is None or not changed:
        return changed & sources.added.names
    older = await covered_among(connection, sources.previous_id, sorted(changed))
    return (changed & sources.added.names) | older


async def taken_up(connection: AsyncConnection, episode_id: UUID, sources: CoveredSources) -> frozenset[str]:
    """The covered calls that their Run, resumed, has settled or is about to settle (SPEC K9)."""
    ids = {one: UUID(one.partition("/")[2]) for one in sources.added.names if one.startswith(("call/", "record/"))}
    binds = {"pieces": list(ids), "operations": list(ids.values()), "previous_id": sources.previous_id}
    rows = await fetch_all(connection, TAKEN_UP, episode_id=episode_id, **binds)
    return frozenset(row["piece"] for row in rows)


async def _revisions(
    connection: AsyncConnection, episode: FrozenSources, contexts: Iterable[UUID | None]
) -> dict[UUID, int]:
    known = [one for one in contexts if one is not None]
    rows = await fetch_all(connection, REVISIONS, contexts=known, episode_id=episode.episode_id) if known else []
    return {row["context_id"]: row["revision"] for row in rows} | {episode.context_id: episode.context_revision}


def _material(row: Mapping[str, Any], run_no: int) -> Material:
    beside = ("digest", "context_id", "context_seq")
    item = ViewItem(**{name: row[name] for name in row if name not in beside})
    own = run_no if item.run_no is None else item.run_no
    return Material(item, row["digest"], own, row["context_id"], row["context_seq"])


def covered_piece(row: Mapping[str, Any]) -> Covered:
    """A row of `snapshot_pieces`."""
    return Covered(row["piece"], Version(row["digest"]), row["run_no"], row["context_id"], row["context_seq"])

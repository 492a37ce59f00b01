"""Records change: mutations, their revision, and every list and summary that stood for the old version (SPEC H4, K10).

One transaction, and the only way a record's effective version changes. A frozen request keeps what it was frozen with
(SPEC H5); the next one goes on from the new list. Whoever repeats it finds the revision that it made.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.errors import NotFoundError, RevisionConflictError
from context.ids import derived
from context.messages import message_from_bytes
from context.mutations import Mutated, MutateRecords, Mutation, check_change
from storage.database import fetch_all, fetch_one
from storage.effective import EFFECTIVE
from storage.payloads import Sealed, distinct
from storage.store import Store
from storage.tables import payloads
from storage.unfolding import OUTDATED, ListHead, Newest, NewList, new_list
from storage.writes import WriteSet

LOCK = text("""
    SELECT s.session_id, r.release_id, c.record_head, c.revision
    FROM role_contexts c JOIN runs r ON r.run_id = c.run_id JOIN sessions s ON s.session_id = r.session_id
    WHERE c.context_id = :context_id FOR UPDATE OF s, r, c
""")
STANDING = text("SELECT revision, outdated FROM context_mutations WHERE mutation_id = :mutation_id")
RECORDS = text(f"""
    SELECT c.record_id, c.kind, c.context_seq, coalesce(e.payload_id, c.payload_id) AS payload_id,
           coalesce(e.revision, 0) AS revision
    FROM context_records c {EFFECTIVE}
    WHERE c.context_id = :context_id AND c.record_id = ANY(CAST(:ids AS uuid[]))
""")
CONTEXTS = text("""
    SELECT c.context_id, c.view_id, c.view_length, c.record_head, c.revision, r.release_id,
           ARRAY(SELECT s.snapshot_id FROM snapshots s WHERE s.context_id = c.context_id) AS own
    FROM role_contexts c JOIN runs r USING (run_id)
    WHERE c.context_id = ANY(CAST(:contexts AS uuid[])) ORDER BY c.context_id FOR UPDATE OF c
""")
KEEP = """
    INSERT INTO context_mutations (mutation_id, record_id, source, payload_id, context_id, revision, cause, outdated)
    SELECT n.*, :own, :own_revision, :cause, CAST(:outdated AS uuid[])
    FROM unnest(CAST(:ids AS uuid[]), CAST(:records AS uuid[]), CAST(:sources AS text[]),
                CAST(:contents AS bytea[])) AS n
"""
TAKE_BACK = """
    UPDATE snapshots SET outdated_at = now() WHERE snapshot_id = ANY(CAST(:outdated AS uuid[])) AND outdated_at IS NULL
"""
OUTDATE_VIEWS = """
    UPDATE session_views v SET outdated_at = now() FROM context_records c
    WHERE c.record_id = ANY(CAST(:records AS uuid[])) AND v.session_id = c.session_id AND v.through_seq >= c.seq
      AND v.outdated_at IS NULL
"""
ADD_REVISIONS = """
    INSERT INTO context_revisions (context_id, revision, record_watermark, mutation_ids, cause)
    SELECT n.context_id, n.revision, n.head, CASE WHEN n.context_id = :own THEN CAST(:ids AS uuid[]) ELSE '{}' END,
           CASE WHEN n.context_id = :own THEN 'mutate_records' ELSE 'unfolding' END
    FROM unnest(CAST(:n_contexts AS uuid[]), CAST(:n_revisions AS bigint[]), CAST(:n_heads AS bigint[]))
      AS n(context_id, revision, head)
"""
MOVE_CONTEXT = """
    UPDATE role_contexts c SET revision = n.revision,
      view_id = coalesce(n.view_id, c.view_id), view_length = coalesce(n.view_length, c.view_length),
      view_tokens = coalesce(n.view_tokens, c.view_tokens),
      active_snapshot_id = CASE WHEN n.unfolds THEN n.active_id ELSE c.active_snapshot_id END,
      material_mark = CASE WHEN n.unfolds THEN 0 ELSE c.material_mark END
    FROM unnest(CAST(:n_contexts AS uuid[]), CAST(:n_revisions AS bigint[]), CAST(:n_views AS uuid[]),
                CAST(:n_lengths AS integer[]), CAST(:n_tokens AS bigint[]), CAST(:n_unfolds AS boolean[]),
                CAST(:n_active AS uuid[]))
      AS n(context_id, revision, view_id, view_length, view_tokens, unfolds, active_id)
    WHERE c.context_id = n.context_id
"""  # what a summary stood for is new material again


async def mutate_records(store: Store, request: MutateRecords) -> Mutated:
    """Make the changes true.

    Raises NotFoundError for a record that the context does not have, RevisionConflictError if one of them has changed
    since, and what `check_change` raises.
    """
    sealed = [store.payloads.seal(one.message.body, _counts(request, one)) for one in request.mutations]
    async with store.transaction("mutate_records") as connection:
        locked: Any = await fetch_one(connection, LOCK, context_id=request.context_id)
        if locked is None:
            raise NotFoundError
        first = request.mutations[0].mutation_id
        standing = await fetch_one(connection, STANDING, mutation_id=first)
        if standing is not None:
            return Mutated(standing["revision"], tuple(standing["outdated"]))
        await _check(store, connection, request)
        return await _Change(request, locked, sealed).commit(connection)


def _counts(request: MutateRecords, mutation: Mutation) -> dict[str, int]:
    return {} if mutation.message.tokens is None else {request.estimator_id: mutation.message.tokens}


async def _check(store: Store, connection: AsyncConnection, request: MutateRecords) -> None:
    ids = [one.record_id for one in request.mutations]
    rows: Any = await fetch_all(connection, RECORDS, context_id=request.context_id, ids=ids)
    known = {row["record_id"]: row for row in rows}
    if known.keys() != set(ids):
        raise NotFoundError
    if any(row["revision"] > request.base_revision for row in rows):
        raise RevisionConflictError
    contents = await store.payloads.read(connection, [row["payload_id"] for row in rows])
    for one in request.mutations:
        row = known[one.record_id]
        check_change(row["kind"], message_from_bytes(contents[row["payload_id"]]), message_from_bytes(one.message.body))


@dataclass(frozen=True)
class _Moved:
    """A context and where it goes; `new` is its list, if that changes."""

    row: Any
    new: NewList | None
    view_id: UUID | None

    @property
    def binds(self) -> dict[str, Any]:
        new = self.new
        return {
            "n_contexts": self.row["context_id"],
            "n_revisions": self.row["revision"] + 1,
            "n_heads": self.row["record_head"],
            "n_views": self.view_id,
            "n_lengths": len(new.items) if new else None,
            "n_tokens": new.tokens if new else None,
            "n_unfolds": new is not None and new.cause == "unfolding",
            "n_active": new.active_snapshot(frozenset(self.row["own"])) if new else None,
        }


class _Change:
    """The writes of one change."""

    def __init__(self, request: MutateRecords, locked: Any, sealed: Sequence[Sealed]) -> None:
        self._request = request
        self._locked = locked
        self._sealed = sealed
        self._writes = WriteSet()
        self._revision: int = locked["revision"] + 1

    async def commit(self, connection: AsyncConnection) -> Mutated:
        pieces = [f"record/{one.record_id}" for one in self._request.mutations]
        hit: Any = await fetch_all(connection, OUTDATED, session_id=self._locked["session_id"], pieces=pieces)
        outdated = sorted({row["snapshot_id"] for row in hit})
        contexts = {self._request.context_id, *(row["context_id"] for row in hit)}
        rows: Any = await fetch_all(connection, CONTEXTS, contexts=sorted(contexts))
        moved = [one for row in rows if (one := await self._moved(connection, row, outdated))]
        self._store(outdated)
        self._move(moved)
        await self._writes.send(connection)
        return Mutated(self._revision, tuple(outdated))

    async def _moved(self, connection: AsyncConnection, row: Any, outdated: Sequence[UUID]) -> _Moved | None:
        """Where a context goes; None for another one whose list does not change."""
        new = None
        if row["view_id"] is not None:
            head = ListHead(row["context_id"], row["view_id"], row["view_length"])
            new = await new_list(connection, head, outdated, self._newest(row["release_id"]))
        if new is None:
            return _Moved(row, None, None) if row["context_id"] == self._request.context_id else None
        return _Moved(row, new, derived(self._request.mutations[0].mutation_id, "view", str(row["context_id"])))

    def _newest(self, release_id: UUID) -> Mapping[str, Newest]:
        """The changed pieces as they are from now on, counted for a list of this release.

        Another release may count otherwise: then a byte is a token, which no estimator exceeds (SPEC B4).
        """
        known = self._request.estimator_id if release_id == self._locked["release_id"] else ""
        return {
            f"record/{one.record_id}": Newest(
                sealed.payload_id, sealed.tokens.get(known, len(one.message.body)), self._revision
            )
            for one, sealed in zip(self._request.mutations, self._sealed, strict=True)
        }

    def _store(self, outdated: Sequence[UUID]) -> None:
        request = self._request
        self._writes.insert(payloads, distinct(self._sealed), skip_existing=True)
        self._writes.sql(KEEP, cause=request.cause, own_revision=self._revision, own=request.context_id)
        self._writes.sql(TAKE_BACK)
        self._writes.sql(OUTDATE_VIEWS)
        self._writes.bind(
            ids=[one.mutation_id for one in request.mutations],
            records=[one.record_id for one in request.mutations],
            sources=[one.source for one in request.mutations],
            contents=[one.payload_id for one in self._sealed],
            outdated=list(outdated),
        )

    def _move(self, moved: Sequence[_Moved]) -> None:
        for one in moved:
            if one.new is not None and one.view_id is not None:
                one.new.write(self._writes, one.view_id)
        rows = [one.binds for one in moved]
        self._writes.sql(ADD_REVISIONS)
        self._writes.sql(MOVE_CONTEXT)
        self._writes.bind(**{name: [row[name] for row in rows] for name in rows[0]})

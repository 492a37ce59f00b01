"""Appending records to a context whose row the commit holds: places, hash chain, revision, heads (SPEC M7)."""

from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from context.chain import RecordFact, next_chain
from context.ids import derived
from storage.heads import Heads
from storage.tables import context_records, context_revisions
from storage.writes import WriteSet

MOVE_SESSION = "UPDATE sessions SET record_head = :session_head WHERE session_id = :session_id"
MOVE_CONTEXT = """
    UPDATE role_contexts SET record_head = :context_head, revision = :revision, chain = :chain,
           view_id = :view_id, view_length = :view_length, view_tokens = :view_tokens
    WHERE context_id = :context_id
"""


@dataclass(frozen=True)
class ViewHead:
    """Where a view stands after a commit."""

    view_id: UUID | None
    length: int
    tokens: int


class Appender:
    """The records that one commit appends. Each gets the next place in its context and in its Session."""

    def __init__(self, heads: Heads) -> None:
        self._heads = heads
        self._rows: list[dict[str, Any]] = []
        self._chain = heads.chain

    def add(
        self,
        kind: str,
        *,
        role: str,
        payload_id: bytes,
        digest: bytes,
        operation_id: UUID | None = None,
        input_id: UUID | None = None,
        call_id: str | None = None,
        status: str | None = None,
    ) -> tuple[UUID, int]:
        """Add a record; `digest` is the SHA-256 of its content. Returns its id and `context_seq`."""
        heads, place = self._heads, self.context_head + 1
        fact = RecordFact(place, self.session_head + 1, kind, role, call_id, status, digest)
        self._chain = next_chain(self._chain, fact)
        record_id = derived(heads.context_id, "record", place)
        links = {"operation_id": operation_id, "result_key": call_id, "input_id": input_id, "call_id": call_id}
        order = {"context_id": heads.context_id, "context_seq": place, "seq": fact.seq}
        owner = {"record_id": record_id, "session_id": heads.session_id, "run_id": heads.run_id}
        what = {"role": role, "kind": kind, "payload_id": payload_id, "status": status, "chain": self._chain}
        self._rows.append(owner | order | links | what)
        return record_id, place

    @property
    def context_head(self) -> int:
        return self._heads.context_head + len(self._rows)

    @property
    def session_head(self) -> int:
        return self._heads.session_head + len(self._rows)

    @property
    def revision(self) -> int:
        """The effective revision after this commit; unchanged if nothing is appended."""
        return self._heads.revision + bool(self._rows)

    def moved(self, view: ViewHead) -> Heads:
        """The heads as this commit leaves them, what is the Run's own aside."""
        return replace(
            self._heads,
            session_head=self.session_head,
            context_head=self.context_head,
            revision=self.revision,
            chain=self._chain,
            view_id=view.view_id,
            view_length=view.length,
            view_tokens=view.tokens,
        )

    def write(self, writes: WriteSet, view: ViewHead, *, cause: str) -> None:
        """Put records, revision and heads into the commit's writes; one row is updated once in a statement."""
        if self._rows:
            writes.insert(context_records, self._rows)
            revision = {"context_id": self._heads.context_id, "revision": self.revision, "cause": cause}
            writes.insert(context_revisions, [revision | {"record_watermark": self.context_head}])
            writes.sql(MOVE_SESSION, session_head=self.session_head, session_id=self._heads.session_id)
        writes.sql(
            MOVE_CONTEXT,
            view_id=view.view_id,
            view_length=view.length,
            view_tokens=view.tokens,
            context_head=self.context_head,
            revision=self.revision,
            chain=self._chain,
            context_id=self._heads.context_id,
        )

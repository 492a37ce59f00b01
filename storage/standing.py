"""Where a Run stood after the last commit of this process: what its next commit may go by (decision 0089).

A commit that finds everything as it is remembered here is one statement, which looks, locks and writes. That it is so
is checked under the locks, by every column that a decision was made from; otherwise nothing is written, and the commit
reads before it writes. So what is remembered may be old, lost or of another process without harm.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from storage.heads import Heads
from storage.writes import WriteSet

KEPT = 2_000  # Runs; about a kilobyte each
_COMPARED = (
    "session_head",
    "input_head",
    "execution_no",
    "loops",
    "input_cutoff",
    "event_head",
    "used_tokens",
    "cost",
    "context_head",
    "revision",
    "chain",
    "view_id",
    "view_length",
    "view_tokens",
)
HELD = """
    SELECT 1
    FROM operations o JOIN role_contexts c ON c.context_id = o.context_id JOIN runs r ON r.run_id = c.run_id
         JOIN sessions s ON s.session_id = r.session_id
    WHERE o.operation_id = :expected_open AND o.verdict IS NULL AND {and_also}
      AND r.status = 'running' AND r.stop_requested_at IS NULL AND r.answer_record_id IS NULL
      AND r.cost IS NOT DISTINCT FROM CAST(:expected_cost AS numeric)
      AND r.input_tokens + r.output_tokens = :expected_used_tokens
      AND (s.record_head, s.input_head, r.execution_no, r.loops, r.input_cutoff, r.event_head)
        = (:expected_session_head, :expected_input_head, :expected_execution_no, :expected_loops,
           :expected_input_cutoff, :expected_event_head)
      AND (c.record_head, c.revision, c.chain, c.view_id, c.view_length, c.view_tokens)
        = (:expected_context_head, :expected_revision, :expected_chain, :expected_view_id, :expected_view_length,
           :expected_view_tokens)
    FOR UPDATE OF s, r, c, o
"""


@dataclass(frozen=True)
class Standing:
    """The heads of a running Run, its newest model Operation, the view it was called with, the calls of its answer."""

    heads: Heads
    operation_id: UUID
    request_view: UUID
    batch_size: int = 0

    def expect(self, writes: WriteSet, open_operation: UUID, and_also: str) -> None:
        """Let `writes` become true only if the Run stands so, nobody wants it to stop, and this Operation is open."""
        binds: dict[str, Any] = {f"expected_{name}": getattr(self.heads, name) for name in _COMPARED}
        writes.expect(HELD.format(and_also=and_also), expected_open=open_operation, **binds)


class Standings:
    """The Runs that this process has last worked at, by context."""

    def __init__(self) -> None:
        self._known: OrderedDict[UUID, Standing] = OrderedDict()

    def note(self, standing: Standing) -> None:
        """Remember what a commit has left."""
        context_id = standing.heads.context_id
        self._known[context_id] = standing
        self._known.move_to_end(context_id)
        if len(self._known) > KEPT:
            self._known.popitem(last=False)

    def forget(self, context_id: UUID) -> None:
        """A commit that does not say where it leaves the Run has moved it."""
        self._known.pop(context_id, None)

    def of(self, context_id: UUID, operation_id: UUID | None, execution_no: int) -> Standing | None:
        """Where the Run stood, if it was at this model Operation and in this execution."""
        known = self._known.get(context_id)
        if known is None or known.operation_id != operation_id or known.heads.execution_no != execution_no:
            return None
        return known

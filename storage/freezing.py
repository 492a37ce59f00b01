"""What freezing a request writes: the permit for the first try, the manifest, the event, the Run's place (SPEC A8)."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from context.budget import Fits, TooLarge
from context.errors import (
    BudgetExhaustedError,
    ModelContextLengthError,
    ProtectedInputTooLargeError,
    WindowExceededError,
)
from context.steps import PreparedRequest, RequestTerms
from storage.event_log import EventLog
from storage.tables import attempts, manifests
from storage.writes import WriteSet

# The provider's word for it, and what leaves no room for a summary.
TOO_LARGE = (ModelContextLengthError.code, ProtectedInputTooLargeError.code)
NOT_MEASURED = -1
"""The size of a request that could not be built, by no method of counting (SPEC A8)."""
UNAVAILABLE = "unavailable"
MOVE_RUN = """
    UPDATE runs SET phase = :phase, loops = :loop, input_cutoff = :cutoff, event_head = :event_head,
           answer_record_id = CASE WHEN :calls_again THEN NULL ELSE answer_record_id END,
           asked_to_compact = asked_to_compact AND NOT :was_asked
    WHERE run_id = :run_id
"""  # what was said before one more call is no longer the answer

KEEP_MANIFEST = """
    INSERT INTO manifests (operation_id, estimated_input_tokens, input_limit, counting_method, exact, transforms,
      validation, notes)
    SELECT e.operation_id, e.estimated, n.input_limit, e.estimator_id, false,
      (SELECT coalesce(jsonb_agg(DISTINCT v.transform ORDER BY v.transform), '[]') FROM view_items v
       WHERE v.view_id = e.view_id AND v.pos < e.view_length AND v.transform IS NOT NULL),
      CASE WHEN e.estimated > n.input_limit THEN 'budget_exceeded' ELSE 'build_failed' END,
      jsonb_build_array(CAST(:waited_note AS text))
    FROM compaction_episodes e JOIN operations o USING (operation_id)
      CROSS JOIN LATERAL (SELECT CAST(o.prepared ->> 'input_limit' AS bigint) AS input_limit) n
    WHERE e.episode_id = :waited_for ON CONFLICT DO NOTHING
"""


@dataclass(frozen=True)
class Frozen:
    """A request that is frozen, or refused: its Operation, its numbers, and what its manifest says beside them.

    `has_tools`: schemas or results are in it, whose wire form no provider says how it counts (SPEC B4).
    """

    run_id: UUID
    operation_id: UUID
    loop: int
    prepared: PreparedRequest
    transforms: Sequence[str]
    notes: Sequence[str] = ()
    has_tools: bool = False
    broken: str | None = None  # the validation that failed, if it is another one than the size
    was_asked: bool = False  # to be compacted first

    @property
    def state(self) -> dict[str, Any]:
        """State and tries of the Operation."""
        return {"state": "failed", "attempts": 0} if self.prepared.refused else {"state": "calling", "attempts": 1}

    @property
    def validation(self) -> str:
        """The check that failed. One that is not sent for another reason was not built as it should have been.

        One that only its Run's budget keeps back is as good as any (SPEC L5).
        """
        if self.broken or self.prepared.refused in (None, BudgetExhaustedError.code):
            return self.broken or "passed"
        too_large = self.prepared.estimated > self.prepared.input_limit or self.prepared.refused in TOO_LARGE
        return "budget_exceeded" if too_large else "build_failed"


def refusal(verdict: Fits | TooLarge) -> str | None:
    """The code of a request that does not fit."""
    if isinstance(verdict, Fits):
        return None
    return ProtectedInputTooLargeError.code if verdict.protected else WindowExceededError.code


def write_frozen(writes: WriteSet, events: EventLog, frozen: Frozen, terms: RequestTerms) -> None:
    """Put it all into the commit's writes; the Operation's own row is up to the caller."""
    prepared = frozen.prepared
    if not prepared.refused:  # the permit for the first try; each further one is a commit of its own
        writes.insert(attempts, [{"operation_id": frozen.operation_id, "attempt_no": 1, "state": "calling"}])
    writes.insert(manifests, [_manifest(frozen, terms)])
    tell_built(events, frozen.operation_id, frozen.loop, prepared, frozen.notes)
    place: dict[str, Any] = {"phase": "calling_model", "loop": frozen.loop, "cutoff": prepared.cutoff}
    move_run(writes, frozen.run_id, **place, calls_again=not prepared.refused, was_asked=frozen.was_asked)


def tell_built(
    events: EventLog, operation_id: UUID | None, loop: int, prepared: PreparedRequest, notes: Sequence[str]
) -> None:
    """The event of a business request: what its manifest says in numbers."""
    numbers = prepared.model_dump(include={"cutoff", "estimated", "input_limit", "supplements"})
    noted = {"notes": list(notes)} if notes else {}
    events.add("context_build", loop=loop, operation_id=operation_id, **numbers, **noted)


def keep_manifest(writes: WriteSet, episode_id: UUID, note: str) -> None:
    """The manifest of a request that waited for this episode, was measured, and is never sent (SPEC A8)."""
    writes.sql(KEEP_MANIFEST, waited_for=episode_id, waited_note=note)


def move_run(writes: WriteSet, run_id: UUID, *, calls_again: bool, was_asked: bool, **place: Any) -> None:
    """The Run's place (`phase`, `loop`, `cutoff`), with the head of its events.

    An answer stands until the model is called again, and a wish to compact until a request was prepared with it.
    """
    writes.sql(MOVE_RUN, run_id=run_id, calls_again=calls_again, was_asked=was_asked, **place)


def _manifest(frozen: Frozen, terms: RequestTerms) -> dict[str, Any]:
    estimated = frozen.prepared.estimated
    is_measured = estimated != NOT_MEASURED
    return {
        "operation_id": frozen.operation_id,
        "estimated_input_tokens": estimated,
        "estimated_cost": terms.cost_of_input(estimated) if is_measured else None,
        "input_limit": frozen.prepared.input_limit,
        "counting_method": terms.counter.estimator_id if is_measured else UNAVAILABLE,
        "exact": is_measured and terms.counter.exact and not frozen.has_tools,
        "transforms": json.dumps(frozen.transforms),
        "validation": frozen.validation,
        "notes": json.dumps(frozen.notes),
    }

"""Whether a request is compacted before it is frozen, from what its list holds and what came before (SPEC K2-K4, K14).

Read only when a trigger may have fired: a step below it costs nothing more. References and numbers, no content.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.compaction import (
    BudgetPolicy,
    Cause,
    Compact,
    CompactionPolicy,
    CompactionTerms,
    Due,
    HeldBack,
    LastEpisode,
    Outcome,
    Refused,
    Since,
    Target,
)
from context.errors import CompactionFailedError, ModelContextLengthError, WindowExceededError
from context.steps import PrepareRequest, RequestTerms
from context.summary_view import Partition, new_material, partition
from context.views import ItemKind, ViewItem
from storage.database import fetch_one
from storage.heads import Heads

POLICY: CompactionPolicy = BudgetPolicy()
NOTHING = "no_compressible_material"
RECORDED: frozenset[ItemKind] = frozenset({"input", "assistant", "tool_result", "feedback"})

BEFORE = text("""
    SELECT c.material_mark, c.active_snapshot_id, s.run_head - s.base_run_no AS user_turns,
      CASE WHEN :counting THEN
        (SELECT count(*) FROM context_records a JOIN role_contexts x USING (context_id)
         WHERE a.session_id = s.session_id AND a.seq > s.base_seq AND a.kind = 'assistant' AND x.instance = 'main')
      ELSE 0 END AS model_steps,
      CASE WHEN :counting THEN
        (SELECT count(*) FROM unnest(CAST(:shown AS uuid[])) AS v(source_id) WHERE v.source_id IN (
           SELECT unnest(ARRAY[k.record_id, k.input_id]) FROM context_records k
           WHERE k.session_id = s.session_id AND k.seq > s.base_seq))
      ELSE 0 END AS messages,
      EXISTS (SELECT 1 FROM compaction_episodes e JOIN operations o USING (operation_id)
              WHERE o.run_id = c.run_id AND o.loop_no = :loop) AS had_episode
    FROM role_contexts c JOIN sessions s USING (session_id) WHERE c.context_id = :context_id
""")
# A cancelled one counts like a failed one if its request went on without it, and was tried or refused; what a stop
# cancelled along with its Run is begun again by the resume.
# An end later than now, by more than commits overlap, is from a clock that was ahead; waiting for it would not end.
LAST = text("""
    SELECT e.status, e.outcome, (e.target ->> 'summary')::int AS summary_tokens,
           coalesce(e.under_trigger, false) AS under_trigger,
           CASE WHEN e.ended_at > now() + interval '1 minute' THEN 'infinity'
                ELSE extract(epoch FROM now() - e.ended_at)::float END AS seconds_since,
           (SELECT count(*)::int FROM compaction_episodes f JOIN operations p ON p.operation_id = f.operation_id
            WHERE f.run_id = e.run_id
              AND (f.status = 'failed' OR (f.status = 'cancelled' AND (p.attempts > 0 OR p.state = 'failed')))
              AND f.made_no > coalesce((SELECT max(g.made_no) FROM compaction_episodes g
                                        WHERE g.run_id = e.run_id AND g.status = 'succeeded'
                                          AND g.operation_id IS NOT NULL), 0)
           ) AS failures
    FROM compaction_episodes e JOIN operations o ON o.operation_id = e.operation_id
    WHERE e.context_id = :context_id
      AND (e.status IN ('succeeded', 'failed') OR (e.status = 'cancelled' AND (o.attempts > 0 OR o.state = 'failed')))
    ORDER BY e.made_no DESC LIMIT 1
""")


@dataclass(frozen=True)
class Opening:
    """A compaction that is to be opened: why, what goes, and how long the summary may be."""

    causes: tuple[Cause, ...]
    source: Literal["auto", "manual", "overflow"]
    parts: Partition
    target: Target
    expected_snapshot_id: UUID | None


@dataclass(frozen=True)
class Weighed:
    """What was decided: an opening, or a request that goes on with `note`, or one that is `refused` with that code.

    `protected` are the tokens that may not be left out of a refused one.
    """

    opening: Opening | None = None
    note: str | None = None
    refused: str | None = None
    protected: int | None = None


def may_be_due(estimated: int, terms: CompactionTerms, asked: str | None) -> bool:
    """Whether it is worth looking: nothing is read for a request that no trigger can concern."""
    return estimated >= terms.budget.trigger or asked is not None or counts(terms)


def counts(terms: CompactionTerms) -> bool:
    """Whether one of the counting triggers is set (SPEC B2)."""
    return any(limit is not None for limit in (terms.user_turns, terms.model_steps, terms.messages))


async def weigh(
    connection: AsyncConnection,
    request: PrepareRequest,
    terms: RequestTerms,
    heads: Heads,
    items: Sequence[ViewItem],
    *,
    estimated: int,
    beside: int,
) -> Weighed:
    """Decide for the request that `items` would make; `beside` are its tokens that are no items."""
    rules = terms.compaction
    old, new = _recorded(items, heads)
    binds = {"context_id": heads.context_id, "loop": request.loop, "counting": counts(rules), "shown": old}
    before: Any = await fetch_one(connection, BEFORE, **binds)
    since = Since(before["user_turns"], before["model_steps"], before["messages"] + new)
    last = await _last(connection, heads, items[before["material_mark"] :])
    had_episode = request.asked == "overflow" and before["had_episode"]
    considered = POLICY.consider(estimated, since, last, rules, had_episode=had_episode, asked=request.asked)
    if isinstance(considered, HeldBack):
        return _held_back(considered, request, estimated=estimated, rules=rules)
    if not isinstance(considered, Due):
        return Weighed()
    parts = partition(items, rules, beside=beside, frame=terms.frame)
    decided = POLICY.decide(estimated, fixed=parts.fixed, material=parts.material, terms=rules)
    if isinstance(decided, Compact):
        source = request.asked or "auto"
        return Weighed(Opening(considered.causes, source, parts, decided.target, before["active_snapshot_id"]))
    if request.asked == "overflow":
        return Weighed(refused=ModelContextLengthError.code)
    if isinstance(decided, Refused):
        protected = min(parts.fixed, estimated)  # nothing of a summary's frame is sent
        return Weighed(refused=decided.code, protected=protected)
    return Weighed(note=NOTHING)


def _recorded(items: Sequence[ViewItem], heads: Heads) -> tuple[list[UUID], int]:
    """What the list shows of records, by name, and how many more become records with this very request."""
    shown = [(at, item) for at, item in enumerate(items) if item.kind in RECORDED and item.source_id is not None]
    new = {at for at, item in shown if at >= heads.view_length and item.run_no is None}
    return [item.source_id for at, item in shown if at not in new and item.source_id], len(new)


async def _last(connection: AsyncConnection, heads: Heads, newer: Sequence[ViewItem]) -> LastEpisode | None:
    row: Any = await fetch_one(connection, LAST, context_id=heads.context_id)
    if row is None:
        return None
    return LastEpisode(
        outcome=_outcome(row["status"], row["outcome"]),
        under_trigger=row["under_trigger"],
        summary_tokens=row["summary_tokens"],
        new_material=new_material(newer),
        failures=row["failures"],
        seconds_since=row["seconds_since"] or 0,
    )


def _outcome(status: str, outcome: str | None) -> Outcome:
    if status != "succeeded":
        return "failed"
    return "activated" if outcome == "activated" else "not_activated"


def _held_back(held: HeldBack, request: PrepareRequest, *, estimated: int, rules: CompactionTerms) -> Weighed:
    if request.asked == "overflow":
        return Weighed(refused=ModelContextLengthError.code)
    if estimated <= rules.budget.input_limit:
        return Weighed(note=f"compaction_held_back:{held.reason}")
    failed = held.reason == "failed_before"
    return Weighed(refused=CompactionFailedError.code if failed else WindowExceededError.code)

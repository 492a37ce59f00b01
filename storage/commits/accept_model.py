"""A model's complete answer becomes fact: raw result, record, and what follows from it, in one transaction.

Where no response hook stands between them, storing the raw result and accepting it are the same commit; the decision is
pure (`context.operations.decide`) and is stored with it, so that a repeat finds it.
"""

import json
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any
from uuid import UUID

from context.errors import AttemptSupersededError, CallIdsTakenError
from context.ids import tool_operation_id
from context.messages import safe_name
from context.operations import Answer, CallTools, CutInsideCall, EmptyAnswer, UnreadableCall, Unusable
from context.replies import Usage
from context.spending import spent
from context.steps import Acceptance, AcceptModel, Content, ModelVerdict, PlannedCall
from storage.appending import Appender, ViewHead
from storage.counting import ADD_USAGE, cost_after, usage_numbers
from storage.event_log import EventLog
from storage.heads import Heads, lock_operation
from storage.payloads import Sealed, distinct
from storage.standing import Standing
from storage.store import Store
from storage.tables import call_ids, operations, payloads, tool_batches, view_items
from storage.writes import NotHeldError, WriteSet

SETTLE_OPERATION = """
    UPDATE operations SET state = :state, raw_id = :raw_id, result_id = :result_id, verdict = CAST(:verdict AS jsonb),
           request_hash = coalesce(request_hash, :request_hash), attempts = greatest(attempts, :attempt_no),
           transforms = CAST(:transforms AS jsonb), updated_at = now()
    WHERE operation_id = :operation_id
"""
SETTLE_ATTEMPT = """
    INSERT INTO attempts (operation_id, attempt_no, state, first_output_at, ended_at, usage, cost)
    VALUES (:operation_id, :attempt_no, 'succeeded', CASE WHEN :has_output THEN now() END, now(),
            CAST(:usage AS jsonb), :cost)
    ON CONFLICT (operation_id, attempt_no) DO UPDATE
    SET state = 'succeeded', first_output_at = coalesce(attempts.first_output_at, EXCLUDED.first_output_at),
        ended_at = now(), usage = EXCLUDED.usage, cost = EXCLUDED.cost
"""
# An answer without text, reasoning and calls is no evidence that the model has begun on them (SPEC S6).
DELIVER = """
    UPDATE input_deliveries SET state = 'delivered', delivered_at = now()
    WHERE run_id = :run_id AND state = 'claimed' AND :has_output
"""
MOVE_RUN = f"""
    UPDATE runs SET phase = :phase, event_head = :event_head, answer_record_id = coalesce(:answer_id, answer_record_id),
           {ADD_USAGE}
    WHERE run_id = :run_id
"""
AS_EXPECTED = """
    o.attempts <= :attempt_no AND NOT EXISTS (
      SELECT 1 FROM call_ids k WHERE k.session_id = s.session_id AND k.call_id = ANY(CAST(:call_ids AS text[])))
"""


@dataclass(frozen=True)
class _SealedAnswer:
    """The content of an answer, encrypted before the locks are taken."""

    raw: Sealed
    record: Sealed
    feedback: Sealed | None
    refusals: tuple[Sealed | None, ...]

    @property
    def all(self) -> list[Sealed]:
        return [one for one in (self.raw, self.record, self.feedback, *self.refusals) if one is not None]


def _seal(store: Store, request: AcceptModel) -> _SealedAnswer:
    def message(content: Content | None) -> Sealed | None:
        if content is None:
            return None
        return store.payloads.seal(content.body, {request.estimator_id: content.tokens or 0})

    return _SealedAnswer(
        raw=store.payloads.seal(request.raw.body),
        record=store.payloads.seal(request.record.body, {request.estimator_id: request.record.tokens or 0}),
        feedback=message(request.feedback),
        refusals=tuple(message(planned.refusal) for planned in request.calls),
    )


async def accept_model(store: Store, request: AcceptModel) -> Acceptance:
    """Commit the answer; a repeat finds its verdict.

    Raises SupersededError for a late owner and AttemptSupersededError for a late attempt (SPEC R5), CallIdsTakenError
    if ids must be given anew (SPEC A4).
    """
    sealed, ids = _seal(store, request), [one.call.call_id for one in request.calls]
    if verdict := await _accepted_at_once(store, request, sealed, ids):
        return Acceptance(verdict, may_go_on=True)
    async with store.transaction("accept_model") as connection:
        standing = await lock_operation(
            connection, request.operation_id, execution_no=request.execution_no, call_ids=ids
        )
        if standing.verdict:
            return Acceptance(ModelVerdict.model_validate(standing.verdict), may_go_on=False)
        if standing.attempts > request.attempt_no:  # fewer: the row of the try was lost with a crash of the database
            raise AttemptSupersededError
        if standing.taken:
            raise CallIdsTakenError(standing.taken)
        answer = _Writes(request, sealed, standing.heads)
        await answer.writes.send(connection)
    if standing.request_view is not None:
        store.standings.note(answer.leaves(standing.request_view))
    return Acceptance(answer.verdict, may_go_on=not standing.heads.stopping)


async def _accepted_at_once(
    store: Store, request: AcceptModel, sealed: _SealedAnswer, ids: list[str]
) -> ModelVerdict | None:
    """The same in one statement, if nobody has touched the Run since its request was frozen here."""
    known = store.standings.of(request.context_id, request.operation_id, request.execution_no)
    if known is None:
        return None
    answer = _Writes(request, sealed, known.heads)
    known.expect(answer.writes, request.operation_id, AS_EXPECTED)
    answer.writes.bind(call_ids=ids)
    try:
        async with store.single("accept_model") as connection:
            await answer.writes.send_as_expected(connection)
    except NotHeldError:
        return None
    store.standings.note(answer.leaves(known.request_view))
    return answer.verdict


class _Writes:
    """The writes of one acceptance."""

    def __init__(self, request: AcceptModel, sealed: _SealedAnswer, heads: Heads) -> None:
        self._request = request
        self._sealed = sealed
        self._heads = heads
        self.writes = WriteSet()
        self._records = Appender(heads)
        self._events = EventLog(heads.run_id, heads.event_head)
        self._shown: list[dict[str, Any]] = []
        self.verdict = _verdict(request, over_budget=self._is_over_budget())
        self._collect(self.verdict)

    def _collect(self, verdict: ModelVerdict) -> None:
        self.writes.insert(payloads, distinct(self._sealed.all), skip_existing=True)
        is_fragment = verdict.kind == "unusable"
        record_id = self._record("fragment" if is_fragment else "assistant", "assistant", self._sealed.record)
        if self._request.calls:
            self._batch()
        if self._sealed.feedback:
            self._record("feedback", "user", self._sealed.feedback)
        self._settle(verdict)
        self._move_heads(verdict, record_id)
        self._records.write(self.writes, self._view(), cause="accept_model")
        self._events.write(self.writes)

    def leaves(self, request_view: UUID) -> Standing:
        """Where the Run stands once this is true; `request_view` is what the model was called with."""
        heads, usage, cost = self._heads, self._request.reply.usage, self._request.cost
        moved = replace(
            self._records.moved(self._view()),
            event_head=self._events.head,
            used_tokens=heads.used_tokens + _total(usage),
            cost=cost_after(heads.used_tokens, heads.cost, cost),
        )
        return Standing(moved, self._request.operation_id, request_view, len(self._request.calls))

    def _view(self) -> ViewHead:
        tokens = sum(row["tokens"] for row in self._shown)
        return ViewHead(
            self._heads.view_id, self._heads.view_length + len(self._shown), self._heads.view_tokens + tokens
        )

    def _is_over_budget(self) -> bool:
        """Whether this answer takes the Run over its token or cost limit (SPEC L5). Unknown cost is not over."""
        request = self._request
        tokens = self._heads.used_tokens + _total(request.reply.usage)
        cost = (self._heads.cost or Decimal(0)) + (request.cost or 0)
        used = spent(tokens=tokens, cost=cost, max_total_tokens=request.max_total_tokens, max_cost=request.max_cost)
        return used is not None

    def _record(self, kind: str, role: str, content: Sealed) -> UUID:
        record_id, _ = self._records.add(
            kind,
            role=role,
            payload_id=content.payload_id,
            digest=content.digest,
            operation_id=self._request.operation_id,
        )
        if kind != "fragment":
            place = self._heads.view_length + len(self._shown)
            row = {"view_id": self._heads.view_id, "pos": place, "kind": kind, "source_id": record_id}
            tokens = content.tokens[self._request.estimator_id]
            self._shown.append(row | {"payload_id": content.payload_id, "tokens": tokens})
        return record_id

    def _batch(self) -> None:
        request, heads = self._request, self._heads
        batch = {"batch_id": request.operation_id, "run_id": heads.run_id, "context_id": heads.context_id}
        self.writes.insert(tool_batches, [batch | {"size": len(request.calls)}])
        refusals = zip(request.calls, self._sealed.refusals, strict=True)
        rows = [self._call_row(ordinal, *one) for ordinal, one in enumerate(refusals)]
        self.writes.insert(operations, rows)
        ids = [{name: row[name] for name in ("session_id", "call_id", "operation_id")} for row in rows]
        self.writes.insert(call_ids, ids)
        self._events.add("tools_started", loop=request.loop, batch_id=request.operation_id, count=len(rows))

    def _call_row(self, ordinal: int, planned: PlannedCall, refusal: Sealed | None) -> dict[str, Any]:
        request, heads = self._request, self._heads
        owner = {"session_id": heads.session_id, "run_id": heads.run_id, "context_id": heads.context_id}
        call = {"name": safe_name(planned.call.name), "call_id": planned.call.call_id, "effect": planned.effect}
        state = {"state": "failed" if refusal else "prepared", "result_id": refusal.payload_id if refusal else None}
        settled = refusal and {"status": planned.refusal_status, "content_id": refusal.payload_id.hex()}
        verdict = json.dumps(settled) if settled else None
        place = {"purpose": "tool", "loop_no": request.loop, "ordinal": ordinal, "batch_id": request.operation_id}
        operation = {"operation_id": tool_operation_id(request.operation_id, ordinal), "verdict": verdict}
        return operation | owner | place | call | state

    def _settle(self, verdict: ModelVerdict) -> None:
        self.writes.sql(
            SETTLE_OPERATION,
            state="failed" if verdict.kind == "unusable" else "accepted",
            raw_id=self._sealed.raw.payload_id,
            result_id=self._sealed.record.payload_id,
            verdict=verdict.model_dump_json(),
            request_hash=self._request.request_hash,
            transforms=json.dumps(self._request.transforms) if self._request.transforms else None,
        )
        usage = self._request.reply.usage.model_dump_json()
        self.writes.sql(SETTLE_ATTEMPT, usage=usage, attempt_no=self._request.attempt_no)
        self.writes.bind(has_output=self._request.reply.has_output)
        self.writes.bind(operation_id=self._request.operation_id)

    def _move_heads(self, verdict: ModelVerdict, record_id: UUID) -> None:
        self.writes.insert(view_items, self._shown)
        self.writes.sql(DELIVER)
        self.writes.sql(
            MOVE_RUN,
            phase="running_tools" if verdict.kind == "tools" else "accepting",
            answer_id=record_id if verdict.kind == "answer" else None,
        )
        self.writes.bind(run_id=self._heads.run_id, **usage_numbers(self._request.reply.usage, self._request.cost))


def _total(usage: Usage) -> int:
    return (usage.input_tokens or 0) + (usage.output_tokens or 0)


def _verdict(request: AcceptModel, *, over_budget: bool) -> ModelVerdict:
    over = {"over_budget": True} if over_budget else {}  # what is unset is not written into histories
    match request.decision:
        case CallTools():
            plans = tuple(one.plan for one in request.calls if one.plan)
            return ModelVerdict(kind="tools", tools=plans, batch=len(request.calls), **over)
        case Answer():
            return ModelVerdict(kind="answer", **over)
        case CutInsideCall() | UnreadableCall() if request.calls:
            return ModelVerdict(kind="tools", batch=len(request.calls), **over)
        case EmptyAnswer() | CutInsideCall() | UnreadableCall():
            return ModelVerdict(kind="again", **over)
        case Unusable(end_reason=reason):
            return ModelVerdict(kind="unusable", end_reason=reason)

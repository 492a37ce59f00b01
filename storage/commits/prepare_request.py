"""Preparing: the settled batch is delivered, the cutoff fixed, the request listed, measured and frozen (DESIGN 3).

One transaction, which also gives the permit for the first try at the call. No message content is read but what has
never been counted; the list that freezes a request only grows by what is new, so that this costs the same at step
10 000 as at step 10.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.budget import Fits, TooLarge, judge
from context.errors import AgentLoomError
from context.ids import derived
from context.steps import PreparedRequest, PrepareRequest, RequestTerms
from context.views import ViewItem, total_tokens
from storage.appending import Appender, ViewHead
from storage.database import fetch_one
from storage.event_log import EventLog
from storage.first_view import build_first_view
from storage.heads import Heads, lock_heads
from storage.measuring import Measuring
from storage.store import Store
from storage.tables import attempts, manifests, operations, request_views, view_items
from storage.writes import WriteSet


@dataclass(frozen=True)
class Waiting:
    """A stored message that this request is the first to carry."""

    source_id: UUID  # the tool Operation, or the input
    payload_id: bytes
    digest: bytes
    tokens: int | None
    call_id: str | None = None
    status: str | None = None
    input_seq: int = 0
    kind: str = ""
    recorded: bool = False
    delivery_id: UUID | None = None


GATHER = text("""
    SELECT
      (SELECT prepared FROM operations WHERE operation_id = :operation_id) AS prepared,
      (SELECT answer_record_id IS NOT NULL FROM runs WHERE run_id = :run_id) AS answered,
      (SELECT json_agg(json_build_object('source_id', o.operation_id, 'payload_id', encode(o.result_id, 'hex'),
                'digest', encode(p.digest, 'hex'), 'tokens', p.tokens -> :estimator, 'call_id', o.call_id,
                'status', o.verdict ->> 'status') ORDER BY o.ordinal)
         FROM operations o JOIN payloads p ON p.payload_id = o.result_id
         WHERE o.batch_id = :batch_id) AS results,
      (SELECT size FROM tool_batches WHERE batch_id = :batch_id) AS size,
      (SELECT json_agg(json_build_object('source_id', i.input_id, 'payload_id', encode(i.payload_id, 'hex'),
                'digest', encode(p.digest, 'hex'), 'tokens', p.tokens -> :estimator, 'kind', i.kind,
                'input_seq', i.input_seq, 'delivery_id', d.delivery_id,
                'recorded', EXISTS (SELECT 1 FROM context_records c
                                    WHERE c.context_id = :context_id AND c.input_id = i.input_id))
                ORDER BY i.input_seq)
         FROM input_deliveries d JOIN user_inputs i USING (input_id) JOIN payloads p ON p.payload_id = i.payload_id
         WHERE d.run_id = :run_id AND d.state = 'pending') AS inputs
""")

CONSUME = "UPDATE tool_batches SET consumed = true WHERE batch_id = :batch_id AND NOT consumed"
CLAIM = """
    UPDATE input_deliveries SET state = 'claimed', operation_id = :operation_id
    WHERE delivery_id = ANY(CAST(:claimed AS uuid[]))
"""
MOVE_RUN = """
    UPDATE runs SET phase = 'calling_model', loops = :loop, input_cutoff = :cutoff, event_head = :event_head,
           answer_record_id = NULL
    WHERE run_id = :run_id
"""  # what was said before one more loop is no longer the answer


NOTHING_NEW = PreparedRequest(cutoff=0, estimated=0, input_limit=0, supplements=0, nothing_new=True)


async def prepare_request(store: Store, request: PrepareRequest, terms: RequestTerms) -> PreparedRequest:
    """Freeze the request of one loop; a repeat finds it frozen. Raises SupersededError if the Run has moved on."""
    async with store.transaction("prepare_request") as connection:
        heads = await lock_heads(connection, request.context_id, execution_no=request.execution_no)
        found = await _gather(connection, request, heads, terms)
        if found["prepared"]:
            return PreparedRequest.model_validate(found["prepared"])
        if len(found["results"] or ()) != (found["size"] or 0):
            raise AgentLoomError("A batch is to be delivered before all its calls are settled.")
        if found["answered"] and not found["inputs"]:
            return NOTHING_NEW
        preparation = _Preparation(request, terms, heads, Measuring(store.payloads, connection, terms.counter))
        return await preparation.commit(_waiting(found["results"]), _waiting(found["inputs"]))


async def _gather(connection: AsyncConnection, request: PrepareRequest, heads: Heads, terms: RequestTerms) -> Any:
    """What waits to be carried, read after the locks were taken."""
    return await fetch_one(
        connection,
        GATHER,
        operation_id=request.operation_id,
        batch_id=request.batch_id,
        context_id=request.context_id,
        run_id=heads.run_id,
        estimator=terms.counter.estimator_id,
    )


def _waiting(rows: Sequence[dict[str, Any]] | None) -> tuple[Waiting, ...]:
    return tuple(_one_waiting(row) for row in rows or ())


def _one_waiting(row: dict[str, Any]) -> Waiting:
    ids = {name: UUID(row[name]) for name in ("source_id", "delivery_id") if row.get(name)}
    hashes = {name: bytes.fromhex(row[name]) for name in ("payload_id", "digest")}
    return Waiting(**(row | ids | hashes))


class _Preparation:
    """The writes of one preparation, collected in the order of the conversation."""

    def __init__(self, request: PrepareRequest, terms: RequestTerms, heads: Heads, measuring: Measuring) -> None:
        self._request = request
        self._terms = terms
        self._heads = heads
        self._measuring = measuring
        self._records = Appender(heads)
        self._items: list[ViewItem] = []
        self._writes = WriteSet()
        self._events = EventLog(heads.run_id, heads.event_head)

    async def commit(self, results: tuple[Waiting, ...], inputs: tuple[Waiting, ...]) -> PreparedRequest:
        if self._heads.view_id is None:
            own = frozenset(one.source_id for one in inputs)
            self._items += await build_first_view(
                self._measuring, self._heads, self._terms.system, self._terms.recent_runs, own
            )
        for result in results:
            await self._deliver(result)
        for one in inputs:
            await self._claim(one)
        prepared = await self._judge(inputs)
        view = self._list()
        self._freeze(prepared, inputs)
        self._measuring.write(self._writes)
        self._records.write(self._writes, view, cause="prepare_request")
        self._events.write(self._writes)
        await self._writes.send(self._measuring.connection)
        return prepared

    async def _deliver(self, result: Waiting) -> None:
        record_id, _ = self._records.add(
            "tool_result",
            role="tool",
            payload_id=result.payload_id,
            digest=result.digest,
            operation_id=result.source_id,
            call_id=result.call_id,
            status=result.status,
        )
        await self._show(ViewItem("tool_result", result.payload_id, result.tokens or 0, record_id), result.tokens)

    async def _claim(self, one: Waiting) -> None:
        if one.recorded:
            return
        self._records.add("user_ref", role="user", payload_id=one.payload_id, digest=one.digest, input_id=one.source_id)
        await self._show(ViewItem("input", one.payload_id, one.tokens or 0, one.source_id), one.tokens)

    async def _show(self, item: ViewItem, known: int | None) -> None:
        self._items.append(item if known is not None else await self._measuring.measure(item))

    async def _judge(self, inputs: tuple[Waiting, ...]) -> PreparedRequest:
        terms = self._terms
        estimated = self._heads.view_tokens + total_tokens(tuple(self._items)) + self._fixed
        verdict = judge(estimated, terms.budget, protected=0)
        if isinstance(verdict, TooLarge):
            protected = await self._measuring.protected_tokens(self._heads.view_id, tuple(self._items))
            verdict = judge(estimated, terms.budget, protected=protected + self._fixed)
        supplements = sum(one.kind == "supplement" for one in inputs)
        return PreparedRequest(
            cutoff=max([self._heads.input_cutoff, *(one.input_seq for one in inputs)]),
            estimated=estimated,
            input_limit=terms.budget.input_limit,
            **({"supplements": supplements} if supplements else {}),
            **({"refused": refusal} if (refusal := _refusal(verdict)) else {}),
        )

    @property
    def _fixed(self) -> int:
        return self._terms.tools_tokens + self._terms.counter.request_overhead

    @property
    def _has_tools(self) -> bool:
        """Whether schemas or calls are in the request, whose wire form no provider says how it counts (SPEC B4)."""
        return self._terms.tools_tokens > 0 or any(item.kind == "tool_result" for item in self._items)

    @property
    def _view_id(self) -> UUID:
        return self._heads.view_id or derived(self._heads.context_id, "view", 1)

    def _list(self) -> ViewHead:
        """Extend the view by what is new."""
        length = self._heads.view_length
        if self._heads.view_id is None:
            first = {"view_id": self._view_id, "context_id": self._heads.context_id, "cause": "first_request"}
            self._writes.insert(request_views, [first])
        rows = [_item_row(self._view_id, length + at, item) for at, item in enumerate(self._items)]
        self._writes.insert(view_items, rows)
        return ViewHead(self._view_id, length + len(rows), self._heads.view_tokens + total_tokens(tuple(self._items)))

    def _freeze(self, prepared: PreparedRequest, inputs: tuple[Waiting, ...]) -> None:
        request, heads = self._request, self._heads
        self._writes.insert(operations, [self._operation_row(prepared)])
        if not prepared.refused:  # the permit for the first try; each further one is a commit of its own
            permit = {"operation_id": request.operation_id, "attempt_no": 1, "state": "calling"}
            self._writes.insert(attempts, [permit])
        self._writes.insert(manifests, [self._manifest_row(prepared)])
        if inputs and not prepared.refused:
            self._writes.sql(CLAIM, operation_id=request.operation_id, claimed=[one.delivery_id for one in inputs])
        if request.batch_id:
            self._writes.sql(CONSUME, batch_id=request.batch_id)
            self._events.add("tools_finished", loop=request.loop - 1, batch_id=request.batch_id)
        numbers = prepared.model_dump(include={"cutoff", "estimated", "input_limit", "supplements"})
        self._events.add("context_build", loop=request.loop, operation_id=request.operation_id, **numbers)
        self._writes.sql(MOVE_RUN, loop=request.loop, cutoff=prepared.cutoff, run_id=heads.run_id)

    def _operation_row(self, prepared: PreparedRequest) -> dict[str, Any]:
        request, heads = self._request, self._heads
        owner = {"session_id": heads.session_id, "run_id": heads.run_id, "context_id": heads.context_id}
        state = {"state": "failed", "attempts": 0} if prepared.refused else {"state": "calling", "attempts": 1}
        what = {"purpose": "business", "name": self._terms.model} | state
        frozen = {
            "input_cutoff": prepared.cutoff,
            "view_id": self._view_id,
            "view_length": heads.view_length + len(self._items),
            "max_output_tokens": self._terms.max_output_tokens,
            "prepared": prepared.model_dump_json(),
        }
        return {"operation_id": request.operation_id, "loop_no": request.loop} | owner | what | frozen

    def _manifest_row(self, prepared: PreparedRequest) -> dict[str, Any]:
        counter = self._terms.counter
        transforms = sorted({item.transform for item in self._items if item.transform})
        return {
            "operation_id": self._request.operation_id,
            "estimated_input_tokens": prepared.estimated,
            "input_limit": prepared.input_limit,
            "counting_method": counter.estimator_id,
            "exact": counter.exact and not self._has_tools,
            "transforms": json.dumps(transforms),
            "validation": "budget_exceeded" if prepared.refused else "passed",
        }


def _refusal(verdict: Fits | TooLarge) -> str | None:
    if isinstance(verdict, Fits):
        return None
    return "CONTEXT_PROTECTED_INPUT_TOO_LARGE" if verdict.protected else "CONTEXT_WINDOW_EXCEEDED"


def _item_row(view_id: UUID, place: int, item: ViewItem) -> dict[str, Any]:
    shown = {"kind": item.kind, "source_id": item.source_id, "run_no": item.run_no, "revision": item.revision}
    content = {"payload_id": item.payload_id, "tokens": item.tokens, "transform": item.transform}
    return {"view_id": view_id, "pos": place} | shown | content

"""Preparing: the settled batch is delivered, the cutoff fixed, the request listed, measured and frozen (DESIGN 3).

One transaction, which also gives the permit for the first try at the call. No message content is read but what has
never been counted; the list that freezes a request only grows by what is new, so that this costs the same at step
10 000 as at step 10.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.budget import Fits, TooLarge, judge
from context.errors import AgentLoomError, CorruptPayloadError, ProtectedInputTooLargeError
from context.ids import derived, episode_id
from context.steps import PreparedRequest, PrepareRequest, RecordToolResult, RequestTerms
from context.views import OFFLOADED, ViewItem, total_tokens
from storage.appending import Appender, ViewHead
from storage.database import fetch_one, fetch_value
from storage.event_log import EventLog
from storage.first_view import build_first_view
from storage.freezing import NOT_MEASURED, Frozen, move_run, refusal, write_frozen
from storage.heads import Heads, lock_heads
from storage.linking import breaks_pairs
from storage.measuring import Measuring
from storage.opening import EpisodePlace, write_episode
from storage.pruning_views import pruned
from storage.session_views import note_observed
from storage.standing import Standing
from storage.store import Store
from storage.tables import operations
from storage.tool_results import SealedResult, sealed_result, write_result
from storage.view_lists import Switch, listed, write_items, write_switch
from storage.weighing import Opening, Weighed, may_be_due, weigh
from storage.writes import NotHeldError, WriteSet


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
    offloaded: bool = False
    delivery_id: UUID | None = None


GATHER = text("""
    SELECT
      (SELECT prepared FROM operations WHERE operation_id = :operation_id) AS prepared,
      (SELECT answer_record_id IS NOT NULL FROM runs WHERE run_id = :run_id) AS answered,
      (SELECT json_agg(json_build_object('source_id', o.operation_id, 'payload_id', encode(o.result_id, 'hex'),
                'digest', encode(p.digest, 'hex'), 'tokens', p.tokens -> :estimator, 'call_id', o.call_id,
                'status', o.verdict ->> 'status', 'offloaded', o.whole_id IS NOT NULL) ORDER BY o.ordinal)
         FROM operations o JOIN payloads p ON p.payload_id = o.result_id
         WHERE o.batch_id = :batch_id) AS results,
      (SELECT size FROM tool_batches WHERE batch_id = :batch_id) AS size,
      (SELECT view_id FROM operations WHERE run_id = :run_id AND context_id = :context_id AND purpose = 'business'
       ORDER BY made_no DESC LIMIT 1) AS last_view_id,
      (SELECT json_agg(json_build_object('source_id', i.input_id, 'payload_id', encode(i.payload_id, 'hex'),
                'digest', encode(p.digest, 'hex'), 'tokens', p.tokens -> :estimator, 'kind', i.kind,
                'input_seq', i.input_seq, 'delivery_id', d.delivery_id,
                'recorded', EXISTS (SELECT 1 FROM context_records c
                                    WHERE c.context_id = :context_id AND c.input_id = i.input_id))
                ORDER BY i.input_seq)
         FROM input_deliveries d JOIN user_inputs i USING (input_id) JOIN payloads p ON p.payload_id = i.payload_id
         WHERE d.run_id = :run_id AND d.state = 'pending'
           AND (CAST(:cutoff AS bigint) IS NULL OR i.input_seq <= :cutoff)) AS inputs
""")

PREPARED = text("SELECT prepared FROM operations WHERE operation_id = :operation_id")
CONSUME = "UPDATE tool_batches SET consumed = true WHERE batch_id = :batch_id AND NOT consumed"
CLAIM = """
    UPDATE input_deliveries SET state = 'claimed', operation_id = :operation_id
    WHERE delivery_id = ANY(CAST(:claimed AS uuid[]))
"""

AS_EXPECTED = """
    NOT EXISTS (SELECT 1 FROM input_deliveries d WHERE d.run_id = r.run_id AND d.state = 'pending')
"""

NOTHING_NEW = PreparedRequest(cutoff=0, estimated=0, input_limit=0, supplements=0, nothing_new=True)


async def prepare_request(
    store: Store, request: PrepareRequest, terms: RequestTerms, settled: RecordToolResult | None = None
) -> PreparedRequest:
    """Freeze the request of one loop; a repeat finds it frozen. Raises SupersededError if the Run has moved on.

    `settled` is the result of a batch of one call, which becomes fact together with its delivery. A request that needs
    content which is damaged, or of an unknown form, is refused with that code, and nothing is delivered.
    """
    sealed = sealed_result(store.payloads, settled) if settled else None
    try:
        return await _prepared(store, request, terms, sealed)
    except CorruptPayloadError as error:
        return await _not_built(store, request, terms, sealed, error.code)


async def _not_built(
    store: Store, request: PrepareRequest, terms: RequestTerms, sealed: SealedResult | None, code: str
) -> PreparedRequest:
    """A request that could not be put together is written down as that (SPEC A8); a result that came is kept."""
    async with store.transaction("prepare_request") as connection:
        heads = await lock_heads(connection, request.context_id, execution_no=request.execution_no)
        if standing := await fetch_value(connection, PREPARED, operation_id=request.operation_id):
            return PreparedRequest.model_validate(standing)
        limit, cutoff = terms.budget.input_limit, heads.input_cutoff
        prepared = PreparedRequest(cutoff=cutoff, estimated=NOT_MEASURED, input_limit=limit, refused=code)
        writes, events = WriteSet(), EventLog(heads.run_id, heads.event_head)
        frozen = Frozen(heads.run_id, request.operation_id, request.loop, prepared, transforms=())
        place = {"view_id": None, "view_length": None}
        writes.insert(operations, [operation_row(request, heads, terms, prepared) | place | frozen.state])
        if sealed is not None:
            write_result(writes, sealed)
        write_frozen(writes, events, frozen, terms)
        events.write(writes)
        await writes.send(connection)
        return prepared


async def _prepared(
    store: Store, request: PrepareRequest, terms: RequestTerms, sealed: SealedResult | None
) -> PreparedRequest:
    if sealed is not None and (prepared := await _prepared_at_once(store, request, terms, sealed)):
        return prepared
    async with store.transaction("prepare_request") as connection:
        heads = await lock_heads(connection, request.context_id, execution_no=request.execution_no)
        found = await _gather(connection, request, heads, terms)
        if found["prepared"]:
            return PreparedRequest.model_validate(found["prepared"])
        results, fresh = _waiting(found["results"]), sealed if not found["results"] else None
        if len(results) + (fresh is not None) != (found["size"] or 0):
            raise AgentLoomError("A batch is to be delivered before all its calls are settled.")
        if found["answered"] and not found["inputs"]:
            return NOTHING_NEW
        preparation = _Preparation(request, terms, heads, Measuring(store.payloads, connection, terms.counter))
        if fresh is not None:
            results = (preparation.settle(fresh),)
        inputs, answered = _waiting(found["inputs"]), found["answered"]
        prepared = await preparation.collect(results, inputs, found["last_view_id"], answered=answered)
        await preparation.writes.send(connection)
    if preparation.is_permit(prepared):
        store.standings.note(preparation.leaves(prepared))
    return prepared


async def _prepared_at_once(
    store: Store, request: PrepareRequest, terms: RequestTerms, only: SealedResult
) -> PreparedRequest | None:
    """The same in one statement, if nobody has touched the Run since the answer with this one call was stored here."""
    known = store.standings.of(request.context_id, request.batch_id, request.execution_no)
    if known is None or not _is_plain(request, terms, known, only):
        return None
    try:
        async with store.single("prepare_request") as connection:
            measuring = Measuring(store.payloads, connection, terms.counter)
            preparation = _Preparation(request, terms, known.heads, measuring)
            results = (preparation.settle(only),)
            prepared = await preparation.collect(results, (), known.request_view)
            known.expect(preparation.writes, only.request.operation_id, AS_EXPECTED)
            await preparation.writes.send_as_expected(connection)
    except NotHeldError:
        return None
    store.standings.note(preparation.leaves(prepared))
    return prepared


def _is_plain(request: PrepareRequest, terms: RequestTerms, known: Standing, only: SealedResult) -> bool:
    """Whether the result is all that is new, in the list that the model saw last, and no limit comes near."""
    estimated = known.heads.view_tokens + only.message.tokens[only.request.estimator_id] + terms.beside
    fits = isinstance(judge(estimated, terms.budget, protected=0), Fits)
    is_same_list = known.batch_size == 1 and known.heads.view_id == known.request_view
    return fits and is_same_list and not may_be_due(estimated, terms.compaction, request.asked)


async def _gather(connection: AsyncConnection, request: PrepareRequest, heads: Heads, terms: RequestTerms) -> Any:
    """What waits to be carried, read after the locks were taken."""
    return await fetch_one(
        connection,
        GATHER,
        operation_id=request.operation_id,
        batch_id=request.batch_id,
        context_id=request.context_id,
        run_id=heads.run_id,
        cutoff=request.cutoff,
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
        self._base = ViewHead(heads.view_id, heads.view_length, heads.view_tokens)
        self._items: list[ViewItem] = []
        self._broken: str | None = None
        self.writes = WriteSet()
        self._events = EventLog(heads.run_id, heads.event_head)

    def settle(self, result: SealedResult) -> Waiting:
        """Write the result of the one call with everything else."""
        request, message = result.request, result.message
        write_result(self.writes, result)
        is_part = result.whole is not None
        call: dict[str, Any] = {"call_id": request.call_id, "status": request.status, "offloaded": is_part}
        tokens = message.tokens[request.estimator_id]
        return Waiting(request.operation_id, message.payload_id, message.digest, tokens, **call)

    async def collect(
        self,
        results: tuple[Waiting, ...],
        inputs: tuple[Waiting, ...],
        last_view_id: UUID | None,
        *,
        answered: bool = False,
    ) -> PreparedRequest:
        if self._heads.view_id is None:
            await self._begin(inputs)
        if self._base.view_id != last_view_id:
            await self._check(results)
        for result in results:
            await self._deliver(result)
        for one in inputs:
            await self._claim(one)
        weighed = Weighed()
        if self._broken is None and may_be_due(self._estimated, self._terms.compaction, self._request.asked):
            await self._write_early()
            weighed = await self._weigh()
        prepared = await self._judge(inputs, weighed, answered=answered)
        self._freeze(prepared, inputs, weighed)
        self._measuring.write(self.writes)
        self._records.write(self.writes, self._list(), cause="prepare_request")
        self._events.write(self.writes)
        return prepared

    @staticmethod
    def is_permit(prepared: PreparedRequest) -> bool:
        """Whether the model may be called now."""
        return prepared.refused is None and prepared.compact is None

    def leaves(self, prepared: PreparedRequest) -> Standing:
        """Where the Run stands once this is true and the model may be called."""
        view = self._extended()
        assert view.view_id is not None
        heads = replace(
            self._records.moved(view),
            loops=self._request.loop,
            input_cutoff=prepared.cutoff,
            event_head=self._events.head,
        )
        return Standing(heads, self._request.operation_id, view.view_id)

    async def _begin(self, inputs: tuple[Waiting, ...]) -> None:
        """A Run's first list: system message and history."""
        own, heads, terms = frozenset(one.source_id for one in inputs), self._heads, self._terms
        first = await build_first_view(self._measuring, heads, terms, own)
        self._items += first.items
        view_id = derived(heads.context_id, "view", 1)
        self._base = ViewHead(view_id, 0, 0)
        write_switch(self.writes, heads.context_id, first.switch(view_id))
        names: dict[str, Any] = {"whole": terms.whole_session, "estimator_id": terms.counter.estimator_id}
        await note_observed(self._measuring.connection, self.writes, heads, **names)

    async def _check(self, results: tuple[Waiting, ...]) -> None:
        """A list that no request was made from yet is looked at as a whole; it never parts a call from its results.

        What is added to a list later is a whole batch behind its call.
        """
        connection = self._measuring.connection
        items = (*await listed(connection, self._base.view_id, self._base.length), *self._items)
        if await breaks_pairs(connection, items, then=[result.call_id for result in results]):
            self._broken = "invalid_tool_pairs"

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
        transform = OFFLOADED if result.offloaded else None
        item = ViewItem("tool_result", result.payload_id, result.tokens or 0, record_id, transform=transform)
        await self._show(item, result.tokens)

    async def _claim(self, one: Waiting) -> None:
        if one.recorded:
            return
        self._records.add("user_ref", role="user", payload_id=one.payload_id, digest=one.digest, input_id=one.source_id)
        await self._show(ViewItem("input", one.payload_id, one.tokens or 0, one.source_id), one.tokens)

    async def _show(self, item: ViewItem, known: int | None) -> None:
        self._items.append(item if known is not None else await self._measuring.measure(item))

    async def _write_early(self) -> None:
        """What is read from here on must find what was settled with this request."""
        await self.writes.send(self._measuring.connection)
        self.writes = WriteSet()

    async def _weigh(self) -> Weighed:
        """A trigger may have fired: old output is shown shorter where that helps, else a compaction may be due."""
        connection = self._measuring.connection
        items = (*await listed(connection, self._base.view_id, self._base.length), *self._items)
        if self._estimated >= self._terms.budget.trigger:
            items = await self._pruned(items)
        sizes = {"estimated": self._estimated, "beside": self._fixed}
        return await weigh(connection, self._request, self._terms, self._heads, items, **sizes)

    async def _pruned(self, items: tuple[ViewItem, ...]) -> tuple[ViewItem, ...]:
        """The list with its older output shorter, as a list of its own; the same one if too little would go."""
        shorter = await pruned(self._measuring, items, self._terms.results)
        if shorter is None:
            return items
        view_id = derived(self._request.operation_id, "view", "pruning")
        before = self._base
        write_switch(
            self.writes,
            self._heads.context_id,
            Switch(view_id, "pruning", before.view_id, before.length, inherited=before.length),
        )
        self._base, self._items = ViewHead(view_id, 0, 0), list(shorter)
        return shorter

    async def _judge(self, inputs: tuple[Waiting, ...], weighed: Weighed, *, answered: bool) -> PreparedRequest:
        terms, estimated = self._terms, self._estimated
        refused, protected = CorruptPayloadError.code if self._broken else weighed.refused, weighed.protected
        if weighed.opening is None and refused is None:
            refused, protected = await self._refusal(estimated)
        says_protected = refused == ProtectedInputTooLargeError.code and protected is not None
        supplements = sum(one.kind == "supplement" for one in inputs)
        return PreparedRequest(
            cutoff=max([self._heads.input_cutoff, *(one.input_seq for one in inputs)]),
            estimated=estimated,
            input_limit=terms.budget.input_limit,
            **({"supplements": supplements} if supplements else {}),
            **({"refused": refused} if refused else {}),
            **({"protected": protected} if says_protected else {}),
            **({"compact": episode_id(self._request.operation_id)} if weighed.opening else {}),
            **({"answered": True} if answered else {}),
        )

    async def _refusal(self, estimated: int) -> tuple[str | None, int | None]:
        """The hard limit, whatever any policy says (SPEC B8), and the tokens of what may not be left out."""
        if not isinstance(judge(estimated, self._terms.budget, protected=0), TooLarge):
            return None, None
        protected = await self._measuring.protected_tokens(self._base.view_id, tuple(self._items)) + self._fixed
        return refusal(judge(estimated, self._terms.budget, protected=protected)), protected

    @property
    def _estimated(self) -> int:
        return self._base.tokens + total_tokens(tuple(self._items)) + self._fixed

    @property
    def _fixed(self) -> int:
        return self._terms.beside

    @property
    def _has_tools(self) -> bool:
        return self._terms.tools_tokens > 0 or any(item.kind == "tool_result" for item in self._items)

    def _list(self) -> ViewHead:
        """Extend the view by what is new."""
        base = self._base
        assert base.view_id is not None
        write_items(self.writes, base.view_id, self._items, start=base.length)
        return self._extended()

    def _extended(self) -> ViewHead:
        base = self._base
        return ViewHead(base.view_id, base.length + len(self._items), base.tokens + total_tokens(tuple(self._items)))

    def _freeze(self, prepared: PreparedRequest, inputs: tuple[Waiting, ...], weighed: Weighed) -> None:
        request = self._request
        if request.batch_id:
            self.writes.sql(CONSUME, batch_id=request.batch_id)
            self._events.add("tools_finished", loop=request.loop - 1, batch_id=request.batch_id)
        if inputs and not prepared.refused:
            self.writes.sql(CLAIM, operation_id=request.operation_id, claimed=[one.delivery_id for one in inputs])
        if weighed.opening is not None:
            self._open(prepared, weighed.opening)
            return
        transforms = sorted({item.transform for item in self._items if item.transform})
        names: dict[str, Any] = {"notes": (weighed.note,) if weighed.note else (), "broken": self._broken}
        names |= {"has_tools": self._has_tools, "was_asked": request.asked == "manual"}
        frozen = Frozen(self._heads.run_id, request.operation_id, request.loop, prepared, transforms, **names)
        self.writes.insert(operations, [self._operation_row(prepared) | frozen.state])
        write_frozen(self.writes, self._events, frozen, self._terms)

    def _open(self, prepared: PreparedRequest, opening: Opening) -> None:
        """A compaction goes first; the list is frozen for it, the request is not (SPEC K1)."""
        request, heads = self._request, self._heads
        assert self._base.view_id is not None
        waiting = {"state": "prepared", "attempts": 0, "view_id": None, "view_length": None}
        self.writes.insert(operations, [self._operation_row(prepared) | waiting])
        waits_at = EpisodePlace(
            session_id=heads.session_id,
            run_id=heads.run_id,
            context_id=heads.context_id,
            operation_id=request.operation_id,
            view_id=self._base.view_id,
            view_length=self._base.length + len(self._items),
            context_revision=self._records.revision,
            estimated=prepared.estimated,
            estimator_id=self._terms.counter.estimator_id,
        )
        write_episode(self.writes, self._events, waits_at, opening)
        place: dict[str, Any] = {"phase": "compacting", "loop": request.loop, "cutoff": prepared.cutoff}
        move_run(self.writes, heads.run_id, **place, calls_again=False, was_asked=request.asked == "manual")

    def _operation_row(self, prepared: PreparedRequest) -> dict[str, Any]:
        place = {"view_id": self._base.view_id, "view_length": self._base.length + len(self._items)}
        return operation_row(self._request, self._heads, self._terms, prepared) | place


def operation_row(
    request: PrepareRequest, heads: Heads, terms: RequestTerms, prepared: PreparedRequest
) -> dict[str, Any]:
    """The Operation of a request, but for its list and its state."""
    owner = {"session_id": heads.session_id, "run_id": heads.run_id, "context_id": heads.context_id}
    what = {"operation_id": request.operation_id, "loop_no": request.loop, "purpose": "business", "name": terms.model}
    bounds = {"input_cutoff": prepared.cutoff, "max_output_tokens": terms.max_output_tokens}
    return owner | what | bounds | {"prepared": prepared.model_dump_json()}

"""How earlier Runs appear to the model (SPEC P1, P3, P4): the last N whole, older ones as inputs, result and end state.

Works on references: a fact is a record or input with its payload; the few sentences of our own are `Own` facts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar
from uuid import UUID

from context.messages import ChatMessage
from context.views import OFFLOADED, ItemKind

T = TypeVar("T")

ENDS = {
    "succeeded": "it was answered",
    "failed": "it failed",
    "stopped": "it was stopped by the user",
    "timed_out": "it ran out of time",
    "exhausted": "it used up its budget",
}
CUT_OFF = {"timed_out": "ran out of time", "exhausted": "reached a limit", "failed": "failed"}
STOPPED = "was stopped"
UNSETTLED = {
    "calling": (
        "Unknown: the run ended while this call was being made; it may or may not have had its effect.",
        "unknown",
    ),
    "unknown": ("Unknown: no result arrived; the call may or may not have had its effect.", "unknown"),
}


@dataclass(frozen=True)
class PastRecord:
    """One record of an earlier Run's root role. `calls` are the tool calls of an assistant record, in order.

    `offloaded`: a result that is head and tail of a longer one.
    """

    record_id: UUID
    kind: str
    payload_id: bytes
    input_id: UUID | None = None
    call_id: str | None = None
    calls: tuple["PastCall", ...] = ()
    offloaded: bool = False


@dataclass(frozen=True)
class PastCall:
    """One call of an earlier Run: its Operation's state, and its result if one was stored.

    `begun`: a try at it may have reached the tool. Those of a `side_effect` are written down before they are made.
    """

    operation_id: UUID
    call_id: str
    name: str
    state: str
    result_id: bytes | None
    offloaded: bool = False
    effect: str | None = None
    begun: bool = False


@dataclass(frozen=True)
class PastInput:
    """One input as an earlier Run received it."""

    input_id: UUID
    payload_id: bytes
    delivered: bool


@dataclass(frozen=True)
class PastRun:
    """One ended Run. `records` are filled for the recent ones, in `context_seq` order.

    `execution_no` tells its ends apart: a Run that was resumed has ended more than once.
    """

    run_no: int
    status: str
    inputs: tuple[PastInput, ...]
    answer: tuple[UUID, bytes] | None
    records: tuple[PastRecord, ...] = ()
    execution_no: int = 1


@dataclass(frozen=True)
class Stored:
    """A fact whose content is already stored."""

    kind: ItemKind
    source_id: UUID
    payload_id: bytes
    run_no: int
    transform: str | None = None


@dataclass(frozen=True)
class Own:
    """A sentence of the platform's own, such as an end marker or a placeholder for a missing result.

    `revision` is the execution whose end a marker tells, if it is not the first.
    """

    kind: Literal["marker", "placeholder"]
    message: ChatMessage
    run_no: int
    source_id: UUID | None = None
    revision: int | None = None


Fact = Stored | Own


def last_of(runs: Sequence[T], recent: int) -> Sequence[T]:
    """The last `recent` of the ended Runs, which appear whole; all of them while there are no more (SPEC P1)."""
    return runs[max(0, len(runs) - recent) :]


def project(runs: Sequence[PastRun], *, recent: int, shown_elsewhere: frozenset[UUID]) -> tuple[Fact, ...]:
    """The history of a new Run, oldest first.

    `runs` are the ended Runs in `run_no` order; the last `recent` of them appear whole. `shown_elsewhere` are the ids
    of the current Run's own inputs, whose text stands there and not here (SPEC P3).
    """
    home = _homes(runs)
    border = len(runs) - recent
    facts: list[Fact] = []
    for index, run in enumerate(runs):
        hidden = shown_elsewhere | {input_id for input_id, run_no in home.items() if run_no != run.run_no}
        facts += _whole(run, hidden) if index >= border else _outline(run, hidden)
        facts.append(_end(run))
    return tuple(facts)


def _end(run: PastRun) -> Own:
    revision = run.execution_no if run.execution_no > 1 else None
    return Own("marker", end_marker(run), run.run_no, revision=revision)


def _homes(runs: Sequence[PastRun]) -> dict[UUID, int]:
    """Where each input's text stands: the Run that last delivered it, else the one that first received it."""
    home: dict[UUID, int] = {}
    for run in runs:
        for one in run.inputs:
            if one.delivered or one.input_id not in home:
                home[one.input_id] = run.run_no
    return home


def _outline(run: PastRun, hidden: frozenset[UUID]) -> list[Fact]:
    facts: list[Fact] = [_input(run, one) for one in run.inputs if one.input_id not in hidden]
    if run.answer:
        facts.append(Stored("assistant", run.answer[0], run.answer[1], run.run_no))
    return facts


def _whole(run: PastRun, hidden: frozenset[UUID]) -> list[Fact]:
    facts: list[Fact] = []
    shown = {record.input_id for record in run.records if record.input_id}
    answered = {record.call_id for record in run.records if record.kind == "tool_result"}
    for record in run.records:
        if record.input_id in hidden or record.kind == "fragment":  # an incomplete answer is no message (SPEC A5)
            continue
        facts.append(_record(run, record))
        facts += [_result(run, call) for call in record.calls if call.call_id not in answered]
    facts += [_input(run, one) for one in run.inputs if one.input_id not in shown | hidden]
    return facts


def _record(run: PastRun, record: PastRecord) -> Stored:
    source_id, transform = record.input_id or record.record_id, OFFLOADED if record.offloaded else None
    return Stored(_item_kind(record.kind), source_id, record.payload_id, run.run_no, transform)


def _input(run: PastRun, one: PastInput) -> Stored:
    return Stored("input", one.input_id, one.payload_id, run.run_no)


def _item_kind(record_kind: str) -> ItemKind:
    kinds: dict[str, ItemKind] = {"user_ref": "input", "assistant": "assistant", "tool_result": "tool_result"}
    return kinds.get(record_kind, "feedback")


def _result(run: PastRun, call: PastCall) -> Fact:
    """A stored result that no request carried, or the placeholder that says what became of the call (SPEC A4)."""
    if call.result_id is not None:
        transform = OFFLOADED if call.offloaded else None
        return Stored("tool_result", call.operation_id, call.result_id, run.run_no, transform)
    return Own("placeholder", placeholder(call, run.status), run.run_no, call.operation_id)


def placeholder(call: PastCall, run_status: str) -> ChatMessage:
    """The tool message for a call without a result of a Run that ended so. The Operation's own state is not touched."""
    text, status = UNSETTLED.get(call.state, UNSETTLED["unknown"])
    if call.state in ("prepared", "cancelled") and not (call.begun and call.effect == "side_effect"):
        text, status = _cut_off(call, run_status)
    return ChatMessage.model_validate(
        {"role": "tool", "content": text, "tool_call_id": call.call_id, "name": call.name, "status": status}
    )


def _cut_off(call: PastCall, run_status: str) -> tuple[str, str]:
    """A harmless call may have begun without a try on record, unless no loop was left for it: that does no harm."""
    how = CUT_OFF.get(run_status, STOPPED)
    if call.effect == "side_effect" or run_status == "exhausted":
        return f"Not executed: the run {how} before this call was made.", "not_executed"
    return f"Stopped: the run {how} before this call had a result.", "stopped"


def end_marker(run: PastRun) -> ChatMessage:
    """Says that an earlier Run ended, and how; never a made-up answer."""
    text = f"[AgentLoom] Question {run.run_no} has ended: {ENDS.get(run.status, run.status)}"
    return ChatMessage(role="user", content=text + ("." if run.answer else ", without a final result."))

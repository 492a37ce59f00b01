"""Answers that prove what a model saw: explanations, comparisons, contexts at a revision, the check of a session."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from api.schemas import Answer, Page, Purpose
from storage.reads.breaks import BreakKind

ExplanationName = Literal[
    "included", "replaced_by_summary", "left_out_by_rule", "left_out_for_budget", "not_yet_arrived", "withheld_by_hook"
]


class ExplanationEntry(Answer):
    """`explanation` says which of the six it is; the ids and numbers that belong to it are set, the others null."""

    operation_id: UUID
    piece: str
    explanation: ExplanationName
    position: int | None = None
    transform: str | None = None
    snapshot_id: UUID | None = None
    rule: str | None = None
    limit: int | None = None
    hook: str | None = None


class DiffEntry(Answer):
    piece: str
    change: str
    left: int | None
    right: int | None


class RequestDiff(Answer):
    """The items of both requests, in the order of the second; the first `common_prefix` items are the same."""

    operation_id: UUID
    compared_with: UUID
    common_prefix: int
    items: list[DiffEntry]


class ManifestItem(Answer):
    kind: str
    source_id: UUID | None
    run_no: int | None
    revision: int | None
    content_hash: str
    placement: str
    tokens: int
    transform: str | None


class ManifestBudget(Answer):
    """Where the rest of the window goes; `trigger` is null for a request that never starts a compaction."""

    context_window: int
    output_reserve: int
    safety_margin: int
    trigger: int | None


class ManifestEntry(Answer):
    operation_id: UUID
    purpose: Purpose
    model: str
    estimated_input_tokens: int
    reported_input_tokens: int | None
    input_limit: int
    counting_method: str
    exact: bool
    budget: ManifestBudget
    items: list[ManifestItem]
    transforms: list[Any]
    validation: str
    notes: list[str]
    created_at: datetime


class ManifestList(Page):
    items: list[ManifestEntry]


class ContextRecord(Answer):
    context_seq: int
    record_id: UUID
    kind: str
    message: dict[str, Any]
    created_at: datetime


class ContextView(Answer):
    """Records in order; `next_after` is what to pass as `after` for more, null at the end."""

    context_id: UUID
    revision: int
    record_watermark: int
    items: list[ContextRecord]
    next_after: int | None


class RevisionEntry(Answer):
    revision: int
    record_watermark: int
    mutation_ids: list[UUID]
    cause: str
    created_at: datetime


class RevisionList(Page):
    """`next` is what to pass as `after` for more."""

    items: list[RevisionEntry]


class VerifiedBreak(Answer):
    """What kind of thing is broken, of which record, context, input, summary, request …, and at which number in it.

    `content`: what is stored is gone or not what its hash says. `chain`: a record is not what the hash chain says, or
    is missing. `order`: the session's own numbering has a gap. `record`: a record does not fit its message or what it
    came from. `revision`: a revision is missing. `input`: an input is missing, shown in other words, or not delivered
    as it says. `coverage`: a summary does not cover what it says, or a compaction did not come to what is said of it.
    `view`: a list has lost items or shows another thing than it names. `doubled`: a request shows a piece twice.
    `request`: what was sent can't be rebuilt. `run`: a run's number, end or answer is not what its events say.
    `operation`: a call is not what batch, event or record say.
    """

    kind: BreakKind
    subject: str
    place: int | None


class SessionCheck(Answer):
    """`breaks` is empty for a session in which everything is as it was written."""

    session_id: UUID
    records: int
    contents: int
    snapshots: int
    requests: int
    breaks: list[VerifiedBreak]


class InstanceEntry(Answer):
    instance: str
    context_id: UUID
    role: str
    records: int
    revision: int


class InstanceList(Page):
    items: list[InstanceEntry]

"""What requests may hold and what answers hold (SPEC 16). Unknown fields of a request are errors."""

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator
from pydantic.json_schema import SkipJsonSchema

from context.inputs import MAX_CHARS, is_blank
from context.policy import AgentDefinition, Release
from context.written import Name

MAX_INT = 2**53 - 1  # what every JSON client keeps exact, and well inside bigint


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("should not be blank")
    return text


def _seen(text: str) -> str:
    if is_blank(text):
        raise ValueError("should not be blank")
    return text


InputText = Annotated[
    str,
    Field(min_length=1, max_length=MAX_CHARS),
    AfterValidator(_seen),
]
Title = Annotated[
    str, Field(min_length=1, max_length=500, json_schema_extra={"pattern": r"\S"}), AfterValidator(_not_blank)
]
ClientKey = Annotated[str, Field(min_length=1, max_length=200)]


class Wanted(BaseModel):
    """A request body."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Answer(BaseModel):
    """A response body."""

    model_config = ConfigDict(frozen=True, from_attributes=True)


class Page(Answer):
    """One page of a list; `next` is the cursor of the following page, null at the end."""

    next: str | None = None


class Problem(Answer):
    """RFC 9457 problem document."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    code: str


# --- agents ----------------------------------------------------------------------------------------------------------


class PublishAgent(Wanted):
    definition: AgentDefinition


class PublishedRelease(Answer):
    agent_id: UUID
    release_id: UUID
    release_no: int
    release_hash: str


class AgentEntry(Answer):
    agent_id: UUID
    name: str
    release_id: UUID | None
    release_no: int
    release_hash: str | None
    created_at: datetime


class AgentList(Page):
    items: list[AgentEntry]


class ReleaseEntry(Answer):
    agent_id: UUID
    agent: str
    release_id: UUID
    release_no: int
    release_hash: str
    release: Release
    created_at: datetime


class ReleaseList(Page):
    items: list[ReleaseEntry]


# --- sessions --------------------------------------------------------------------------------------------------------


class CreateSession(Wanted):
    agent: Name
    title: Title | None = None


class CreatedSession(Answer):
    session_id: UUID


class UpdateSession(Wanted):
    """What is left out stays as it is."""

    title: Title | None = Field(None, description="The new title; null removes it.")
    archived: bool | SkipJsonSchema[None] = None

    @field_validator("archived", mode="before")
    @classmethod
    def _is_true_or_false(cls, value: object) -> object:
        if value is None:
            raise ValueError("should be true or false; leave it out to keep it as it is")
        return value


class SessionEntry(Answer):
    """A session. `active_compaction_id`: it is compacted though no Run of it asked; that one can be stopped."""

    session_id: UUID
    agent: str
    title: str | None
    archived: bool
    run_head: int
    active_run_id: UUID | None = None
    active_compaction_id: UUID | None = None
    created_at: datetime


class SessionList(Page):
    items: list[SessionEntry]


Mode = Literal["auto", "question", "supplement"]
InputKind = Literal["question", "supplement"]
DeliveryState = Literal["pending", "claimed", "delivered", "carried", "withdrawn"]


class SendInput(Wanted):
    text: InputText
    mode: Mode = "auto"
    client_key: ClientKey | None = None


class CompactSession(Wanted):
    client_key: ClientKey | None = None


class CompactionAsked(Answer):
    """With an active Run, its next request is compacted first, if anything in it can be; `episode_id` is null then.

    An idle Session is compacted at once; the compaction stands with `run_id`, its newest Run.
    """

    session_id: UUID
    run_id: UUID
    episode_id: UUID | None


class AcceptedInput(Answer):
    input_id: UUID
    input_seq: int
    kind: InputKind
    run_id: UUID
    delivery_id: UUID
    state: DeliveryState


class InputEntry(Answer):
    input_id: UUID
    input_seq: int
    kind: InputKind
    text: str
    state: DeliveryState
    run_id: UUID | None
    delivery_id: UUID
    previous_delivery_id: UUID | None
    received_at: datetime


class InputList(Page):
    items: list[InputEntry]


class WithdrawnInput(Answer):
    input_id: UUID
    delivery_id: UUID
    state: DeliveryState


class MessageEntry(Answer):
    seq: int
    run_id: UUID
    instance: str
    kind: str
    record_id: UUID
    context_seq: int
    message: dict[str, Any]
    created_at: datetime


class MessagePage(Answer):
    """A page of messages; `next_after` goes into `after` of the next call and stays where it was on an empty page."""

    items: list[MessageEntry]
    next_after: int


# --- runs ------------------------------------------------------------------------------------------------------------

RunStatus = Literal["queued", "running", "succeeded", "failed", "stopped", "timed_out", "exhausted"]


class RunError(Answer):
    """Why a Run ended without success. `numbers` by name, tokens and seconds, and plain names such as a phase.

    With a window: `estimated_input_tokens` of `input_limit`, `protected_tokens` of what could not be left out (SPEC E).
    """

    code: str
    message: str
    numbers: dict[str, int | str]


class UsageTotals(Answer):
    """`cost` is null if any price is unknown; `unknown` counts attempts not reported in whole (estimated or none).

    A cost is in the currency of its agent's prices, or in US dollars by public ones.
    """

    input_tokens: int
    output_tokens: int
    cached_tokens: int
    unknown: int
    cost: Decimal | None


class UsageSum(UsageTotals):
    """`costs` by currency, null where a price is unknown. `cost` is their sum, and null if they are in several."""

    costs: dict[str, Decimal | None]


class UsageReport(UsageSum):
    """The same by what the calls were for: `business` answers, `compaction` summarises."""

    by_purpose: dict[str, UsageSum]


class RunEntry(Answer):
    """A Run as it stands. `event_head` is the `run_seq` of its newest event."""

    run_id: UUID
    session_id: UUID
    release_id: UUID
    run_no: int
    status: RunStatus
    phase: str
    loops: int
    answer: str | None
    end_reason: str | None
    error: RunError | None
    input_cutoff: int
    workflow_id: str
    execution_no: int
    usage: UsageTotals
    event_head: int
    stop_requested: bool
    created_at: datetime
    ended_at: datetime | None


class RunList(Page):
    items: list[RunEntry]


class ResumeRun(Wanted):
    text: InputText | None = None
    client_key: ClientKey | None = None


class ReceivedInput(Answer):
    input_id: UUID
    input_seq: int
    kind: InputKind
    run_id: UUID
    delivery_id: UUID


class ResumedRun(RunEntry):
    """The Run, and the supplement it was resumed with."""

    input: ReceivedInput | None


class RunEvent(Answer):
    """One event of a Run: its sequence, its type, and further ids and numbers."""

    model_config = ConfigDict(extra="allow")

    run_seq: int
    type: str
    at: datetime


class RunEventList(Page):
    items: list[RunEvent]


# --- operations ------------------------------------------------------------------------------------------------------

Purpose = Literal["business", "tool", "compaction", "verification"]
OperationState = Literal[
    "prepared", "frozen", "calling", "raw_stored", "accepted", "failed", "unknown", "cancelled", "denied"
]


class AttemptEntry(Answer):
    attempt_no: int
    state: str
    started_at: datetime
    first_output_at: datetime | None
    ended_at: datetime | None
    usage: dict[str, Any] | None
    cost: Decimal | None
    error: dict[str, Any] | None


class OperationEntry(Answer):
    operation_id: UUID
    run_id: UUID
    purpose: Purpose
    state: OperationState
    loop: int
    ordinal: int
    name: str
    call_id: str | None
    effect: str | None
    input_cutoff: int | None
    attempts: list[AttemptEntry]
    hooks: list[dict[str, Any]]
    transforms: list[str]
    created_at: datetime


class OperationList(Page):
    items: list[OperationEntry]


class RebuiltRequest(Answer):
    """The request as it was sent, rebuilt from what is stored, and the SHA-256 of its bytes."""

    request: dict[str, Any]
    sha256: str


class OperationResult(Answer):
    """`raw` is what came from the model or tool; `effective` is the message that went on. Null: there is none yet.

    `encoding` says how `result` stands for the bytes: as the JSON value they are, as their text, or as base64.
    """

    operation_id: UUID
    state: OperationState
    view: Literal["raw", "effective"]
    media_type: str | None
    encoding: Literal["json", "text", "base64"]
    result: Any


class SourceRange(Answer):
    context_id: UUID
    from_seq: int
    through_seq: int


class CompactionEntry(Answer):
    episode_id: UUID
    session_id: UUID
    run_id: UUID
    workflow_id: str
    operation_id: UUID | None
    source: str
    causes: list[str]
    status: str
    outcome: str | None
    failure: dict[str, Any] | None
    blocks: int | None
    cursor: int
    tokens_before: int | None
    tokens_after: int | None
    ratio: Decimal | None
    target: int | None
    reaches_target: bool | None
    under_trigger: bool | None
    truncated: bool
    calls: int
    input_tokens: int | None
    output_tokens: int | None
    cost: Decimal | None
    snapshot_id: UUID | None
    previous_snapshot_id: UUID | None
    outdated_at: datetime | None
    summary_tokens: int | None
    pieces: int | None
    ranges: list[SourceRange]
    replaced_inputs: list[UUID]
    created_at: datetime
    ended_at: datetime | None


class CompactionList(Page):
    items: list[CompactionEntry]

"""The values of a Run's steps: what is asked of each commit, and what it decided.

Those that a workflow sees (the pydantic ones) hold ids, numbers and small verdicts, never content (SPEC W1). Content
travels between activity and commit in one process only, as `Content`, which never shows itself.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from context.budget import Budget
from context.compaction import CompactionTerms
from context.messages import ChatMessage, ToolCall
from context.operations import Decision
from context.policy import Effect, ResultSettings
from context.replies import ModelReply, Usage
from context.tokens import TokenCounter

EndStatus = Literal["succeeded", "failed", "stopped", "timed_out", "exhausted"]


class Step(BaseModel):
    """A value that crosses the workflow boundary: frozen, and tolerant of fields that a newer version added."""

    model_config = ConfigDict(frozen=True, extra="ignore")


@dataclass(frozen=True)
class Content:
    """Something to be stored: its bytes, and its tokens if it is a message."""

    body: bytes = field(repr=False)
    tokens: int | None = None


# --- opening ---------------------------------------------------------------------------------------------------------


class OpenRun(Step):
    """Opens execution `execution_no` of a Run."""

    run_id: UUID
    execution_no: int


class UnsettledTool(Step):
    """A call of an earlier execution that has no result yet, by its place in the batch."""

    ordinal: int
    name: str


class OpenedRun(Step):
    """What an execution starts from. `batch_id` names a batch that no request carries yet, `unsettled` its open calls.

    `answered`: the answer is stored already and only the end is missing. `used_tokens` and `cost` are those of earlier
    executions; None: unknown. `asked_to_compact`: the next request is to be compacted first.
    """

    session_id: UUID
    context_id: UUID
    release_id: UUID
    run_no: int
    loops: int
    active_ms: int
    batch_id: UUID | None
    unsettled: tuple[UnsettledTool, ...] = ()
    answered: bool = False
    used_tokens: int = 0
    cost: Decimal | None = None
    asked_to_compact: bool = False


# --- preparing -------------------------------------------------------------------------------------------------------


class PrepareRequest(Step):
    """Prepares the business request of loop `loop`; `batch_id` is the batch whose results it carries, if any.

    `asked` is a compaction that does not wait for a trigger; after an `overflow` no input beyond `cutoff` is taken.
    """

    context_id: UUID
    release_id: UUID
    execution_no: int
    operation_id: UUID
    loop: int
    batch_id: UUID | None
    asked: Literal["manual", "overflow"] | None = None
    cutoff: int | None = None


class FreezeRequest(Step):
    """Freezes the request of an Operation that waited for a compaction.

    `ended_outside`: why that brought no verdict, if its workflow was ended from outside or could not start.
    """

    context_id: UUID
    release_id: UUID
    execution_no: int
    operation_id: UUID
    loop: int
    ended_outside: str | None = None


class PreparedRequest(Step):
    """What was frozen. `refused` is the code of SPEC E if the request may not be sent.

    `compact` is the CompactionEpisode that goes first; nothing is frozen then (SPEC K1).
    `protected`, if it is refused for that, is how much of it may not be left out.
    `nothing_new`: nothing was, since the Run has its answer and the input that one more loop was for is withdrawn.
    `answered`: the Run has an answer, which stands until the model is called for what came after it (SPEC S7).
    """

    cutoff: int
    estimated: int
    input_limit: int
    supplements: int = 0
    refused: str | None = None
    protected: int | None = None
    stopping: bool = False
    nothing_new: bool = False
    answered: bool = False
    compact: UUID | None = None


@dataclass(frozen=True)
class RequestTerms:
    """What a release fixes for all its requests. `whole_session`: the history is not cut to `recent_runs` (SPEC P2).

    `tools_tokens` are those of the tool list and of parameters that a model reads too, such as a schema of the answer.
    `cost_of_input` says what so many tokens going in cost; None if that is not known.
    """

    budget: Budget
    counter: TokenCounter
    system: ChatMessage | None
    tools_tokens: int
    max_output_tokens: int
    model: str
    recent_runs: int
    compaction: CompactionTerms
    results: ResultSettings
    frame: int  # tokens of the message around a summary
    cost_of_input: Callable[[int], Decimal | None]
    whole_session: bool = False

    @property
    def beside(self) -> int:
        """Tokens of a request that are no messages of its list."""
        return self.tools_tokens + self.counter.request_overhead


# --- calling ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BeginAttempt:
    """Begins a try for execution `execution_no`. `request_hash` is the SHA-256 of the wire body of a model call.

    `durable`: the attempt must reach the disk before the call is made, since a repeat of the call could do harm.
    `deadline_at` is when the Run's time is used up, in seconds since 1970: no try begins then.
    """

    operation_id: UUID
    execution_no: int
    request_hash: bytes | None = None
    durable: bool = False
    deadline_at: float | None = None


@dataclass(frozen=True)
class Begun:
    """The try may be made. `lost` says how many earlier ones began and never reported."""

    attempt_no: int
    lost: int = 0


@dataclass(frozen=True)
class Settled:
    """The Operation already has its result; nothing is called again (SPEC R2)."""


@dataclass(frozen=True)
class Stopping:
    """A stop is recorded, or the Run's time is used up; no new attempt starts (SPEC S8, W5)."""


@dataclass(frozen=True)
class RecordFirstOutput:
    """First output of attempt `attempt_no` (SPEC S6), whose body had this SHA-256."""

    operation_id: UUID
    run_id: UUID
    attempt_no: int
    request_hash: bytes | None = None


@dataclass(frozen=True)
class FailAttempt:
    """The failure of an attempt, as code, reason and HTTP status. A `verdict` ends the Operation with it.

    `usage`, `cost` and `raw` are those of a complete answer that was of no use (SPEC L5, K8).
    """

    operation_id: UUID
    attempt_no: int
    request_hash: bytes | None
    code: str
    reason: str
    status: int
    verdict: "ModelVerdict | None"
    fragment: Content | None = None
    usage: Usage | None = None
    cost: Decimal | None = None
    raw: Content | None = None


@dataclass(frozen=True)
class Failures:
    """How many tries failed so far, the seconds since the first began, and what the Run has used by now."""

    count: int
    elapsed_s: float
    tokens: int = 0
    cost: Decimal = Decimal(0)


@dataclass(frozen=True)
class ModelAnswered:
    """A complete answer; `raw` is what was received, with known credentials replaced. `transforms` names changes."""

    reply: ModelReply = field(repr=False)
    raw: bytes = field(repr=False)
    cost: Decimal | None
    transforms: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModelBroke:
    """One try failed. `reason` is as in ModelCallError; `fragment` is what came before the break, `came` the reading
    of it. `usage` is None if none was reported, and nothing came that could be counted. `was_sent`: the provider had
    the request and did not refuse it.
    """

    reason: str
    retryable: bool
    status: int
    retry_after_s: float | None
    fragment: bytes | None = field(default=None, repr=False)
    came: ModelReply | None = field(default=None, repr=False)
    usage: Usage | None = None
    cost: Decimal | None = None
    was_sent: bool = False


# --- accepting -------------------------------------------------------------------------------------------------------


class ToolPlan(Step):
    """One call of a batch, by its place in it, as the workflow needs it: never its arguments.

    `durable`: a try must be on disk before the call is made, since a repeat could do harm (SPEC T4).
    """

    ordinal: int
    name: str
    timeout_s: float
    local: bool = False
    durable: bool = True


class ModelVerdict(Step):
    """What the answer came to. `tools` are the calls still to run; refused ones have their result already.

    `batch` counts all calls. `next` is there if the calls were made and the next request frozen in the same go.
    `retry_at` is when the provider wants to be asked again, in seconds since 1970; 0 if it did not say.
    """

    kind: Literal["tools", "answer", "again", "unusable", "failed", "stopping"]
    tools: tuple[ToolPlan, ...] = ()
    batch: int = 0
    end_reason: str | None = None
    code: str | None = None
    status: int = 0
    retry_at: int = 0
    over_budget: bool = False
    next: PreparedRequest | None = None


@dataclass(frozen=True)
class Acceptance:
    """The verdict of an answer. `may_go_on`: it became fact just now, and no stop was recorded then."""

    verdict: ModelVerdict
    may_go_on: bool


@dataclass(frozen=True)
class PlannedCall:
    """A call of the answer: the plan for running it, or the message that refuses it."""

    call: ToolCall
    effect: Effect
    plan: ToolPlan | None
    refusal: Content | None = None
    refusal_status: str | None = None


@dataclass(frozen=True)
class AcceptModel:
    """Everything that the answer of one attempt brought."""

    context_id: UUID
    operation_id: UUID
    execution_no: int
    attempt_no: int
    loop: int
    decision: Decision
    request_hash: bytes
    reply: ModelReply = field(repr=False)
    raw: Content
    record: Content
    estimator_id: str
    calls: tuple[PlannedCall, ...] = field(default=(), repr=False)
    feedback: Content | None = None
    cost: Decimal | None = None
    max_total_tokens: int | None = None
    max_cost: Decimal | None = None
    transforms: tuple[str, ...] = ()


# --- tools -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ToolCallFacts:
    """What a tool activity needs to know of its Operation. `arguments` are those the model wrote.

    `ordinal` is its place in the batch.
    """

    operation_id: UUID
    session_id: UUID
    run_id: UUID
    release_id: UUID
    name: str
    call_id: str
    arguments: str = field(repr=False)


@dataclass(frozen=True)
class ToolFailure:
    """Why a try at a tool call got no answer, without a word of anybody's: a reason, an HTTP status if there is one."""

    reason: str
    status: int = 0
    code: str = "TOOL_UNAVAILABLE"


@dataclass(frozen=True)
class RecordToolResult:
    """The result of attempt `attempt_no`. `status` is None for plain success, as in a message.

    `attempt_no` is None for a harmless call made beside the workflow: its one try is written down with its result,
    and need not reach the disk before what follows does. `failure` says why the try has no answer of the tool.
    """

    operation_id: UUID
    call_id: str
    execution_no: int
    attempt_no: int | None
    state: Literal["accepted", "failed", "unknown"]
    status: str | None
    raw: Content | None
    message: Content
    estimator_id: str
    whole: Content | None = None
    artifacts: tuple[tuple[str, Content], ...] = ()
    transforms: tuple[str, ...] = ()
    raw_media_type: str | None = None
    failure: ToolFailure | None = None


# --- finishing -------------------------------------------------------------------------------------------------------


class FinishRun(Step):
    """Ends execution `execution_no` of a Run. `numbers` go into the Run's error; they are never content.

    `loop_budget` is given if an input that came too late for the last request may have one more loop
    (`late_input: continue`, SPEC S7), else 0.
    """

    run_id: UUID
    execution_no: int
    status: EndStatus
    end_reason: str
    code: str | None = None
    message: str | None = None
    numbers: dict[str, int | str] = {}
    loop_budget: int = 0


class FinishedRun(Step):
    """How the Run stands now. `go_on`: it has not ended, an accepted input must be served first."""

    status: str
    end_reason: str | None
    code: str | None
    go_on: bool = False

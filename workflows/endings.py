"""How a Run can end, as seen by its workflow, and how the workflow then closes (SPEC S2, W3a)."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from temporalio.exceptions import ApplicationError, FailureError, WorkflowAlreadyStartedError, is_cancelled_exception

from context.episodes import CompactionVerdict
from context.errors import (
    BudgetExhaustedError,
    CompactionFailedError,
    ConfigurationInvalidError,
    DeadlineExceededError,
    LoopsExhaustedError,
    ModelContextLengthError,
    ModelFailedError,
    ProtectedInputTooLargeError,
    RunFailedError,
    RunLostError,
    WindowExceededError,
)
from context.model_ends import ADVICE
from context.steps import EndStatus, ModelVerdict, PreparedRequest


@dataclass(frozen=True)
class Ending:
    """One end: state and reason, and for all but an answer and a stop the error's code and sentence."""

    status: EndStatus
    end_reason: str
    code: str | None = None
    message: str | None = None
    numbers: dict[str, int | str] = field(default_factory=dict)


class RunEnds(Exception):
    """Leaves the steps of a Run with its end."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.end_reason)
        self.ending = ending


ANSWERED = Ending("succeeded", "answered")
STOPPED = Ending("stopped", "user_stop")
NOT_SENT: tuple[type[RunFailedError], ...] = (
    ProtectedInputTooLargeError,
    WindowExceededError,
    CompactionFailedError,
    ModelContextLengthError,
)


def because(error: type[RunFailedError], **numbers: int | str) -> Ending:
    """The end that an error of the domain stands for."""
    status: EndStatus = error.status  # type: ignore[assignment]
    return Ending(status, error.end_reason, error.code, error.sentence, dict(numbers))


def _used_up(error: type[RunFailedError], raised: str, **numbers: int | str) -> Ending:
    """A limit of the release is reached: it can't be resumed, and what can be done is said."""
    way_on = f"Ask again to go on with a new one, or raise {raised} and publish the agent again."
    ending = because(error, **numbers)
    return replace(ending, message=f"{ending.message} {way_on}")


def out_of_time(deadline_s: int) -> Ending:
    """The Run's active time is used up."""
    return _used_up(DeadlineExceededError, "limits.deadline_s", deadline_s=deadline_s)


def out_of_loops(max_loops: int) -> Ending:
    """The loop budget is used up."""
    return _used_up(LoopsExhaustedError, "limits.max_loops", max_loops=max_loops)


def over_budget() -> Ending:
    """The cost or token limit is reached; its numbers are known to whoever records the end."""
    return _used_up(BudgetExhaustedError, "limits.max_total_tokens or limits.max_cost")


# No room or no budget for one more loop: there will be none however often it is tried.
NO_LOOP_FOLLOWS = (ProtectedInputTooLargeError.code, WindowExceededError.code, BudgetExhaustedError.code)


def leaves_answer(prepared: PreparedRequest) -> bool:
    """Whether the Run ends with the answer it has, since what came after that can't be sent (decision 0113)."""
    return prepared.answered and prepared.refused in NO_LOOP_FOLLOWS


WHERE_SET = "The limit follows from context_window, output_reserve_tokens and safety_margin_tokens of the agent."

GOES_ALONG = (
    "A supplement goes along with whatever starts next until a model has got it; withdraw those that are too long"
    " (DELETE /api/v1/inputs/{input_id})."
)

STAYS = (
    "What was asked stays in the session: a further question there has it summarised first, in as many calls as that"
    " takes if context.max_compaction_calls sets no bound; a new session begins without it."
)

WAITS = (
    "A compaction that failed is tried again after a pause of 30 s, longer each time, or when there is more to"
    " summarise: resume the run then."
)


def refused(prepared: PreparedRequest) -> Ending:
    """The request may not be sent; the numbers say how large it is, never what is in it."""
    if prepared.refused == BudgetExhaustedError.code:
        return over_budget()
    numbers: dict[str, int | str] = {
        **({"estimated_input_tokens": prepared.estimated} if prepared.estimated >= 0 else {}),
        "input_limit": prepared.input_limit,
        "phase": "preparing",
    }
    if prepared.protected is not None:
        numbers["protected_tokens"] = prepared.protected
    for error in NOT_SENT:
        if prepared.refused == error.code:
            tokens = prepared.estimated if prepared.protected is None else prepared.protected
            size = f"{tokens} tokens of {prepared.input_limit}, while preparing."
            sentence = f"{error.sentence} {size} {WHERE_SET}"
            if error is ProtectedInputTooLargeError:
                sentence = f"{sentence} {GOES_ALONG if prepared.supplements else STAYS}"
            if error is CompactionFailedError:
                sentence = f"{sentence} {WAITS}"
            return Ending("failed", error.end_reason, error.code, sentence, numbers)
    sentence = "The request could not be put together; check the session: agentloom verify SESSION."
    if prepared.refused == ConfigurationInvalidError.code:
        sentence = "No summary fits into the budget; check summary_target_tokens, target_ratio and the models' windows."
    return Ending("failed", RunFailedError.end_reason, prepared.refused, sentence, numbers)


NO_ROOM_FOR_A_BLOCK = (
    "The summarising model's window has no room for a block of material; give it a larger context_window or a smaller"
    " max_output_tokens (context.summary_model, else model), or lower context.summary_target_tokens."
)

NO_SUMMARY = {
    "empty": "The model that summarises answered without a summary, perhaps with nothing but reasoning up to its output"
    " limit; name another one as context.summary_model, or raise context.summary_target_tokens, and publish the agent"
    " again.",
    "too_many_calls": "It would have taken more calls than context.max_compaction_calls allows; raise that, or give the"
    " model that summarises a larger window, and publish the agent again.",
    "cancelled": "It was cancelled outside AgentLoom; resume the run.",
    "lost": "Its workflow was ended from outside AgentLoom; resume the run.",
    "not_started": "Another workflow in Temporal has the id of its workflow; end that one and resume the run.",
}
"""What to do next, by reasons that only a compaction has."""


def why_ended(error: FailureError) -> str:
    """The reason of a compaction whose workflow was ended from outside, or could not start, and left no verdict."""
    if isinstance(error, WorkflowAlreadyStartedError):
        return "not_started"
    return "cancelled" if is_cancelled_exception(error) else RunLostError.end_reason


def not_compacted(verdict: CompactionVerdict) -> Ending:
    """A compaction that the request needed came to no summary (SPEC K8), or used up the budget (SPEC L5)."""
    if verdict.code == BudgetExhaustedError.code:
        return over_budget()
    reason = verdict.reason or "unknown"
    ending = because(CompactionFailedError, reason=reason)
    if verdict.code == ConfigurationInvalidError.code:
        return replace(ending, code=verdict.code, message=NO_ROOM_FOR_A_BLOCK)
    return replace(ending, message=" ".join(filter(None, (ending.message, (NO_SUMMARY | ADVICE).get(reason)))))


def code_of(error: BaseException) -> str:
    """The code with which a step failed for good: what a regular activity raised is wrapped, a local one's is not."""
    cause = error if isinstance(error, ApplicationError) else error.__cause__
    return cause.type if isinstance(cause, ApplicationError) and cause.type else "INTERNAL"


def broken_down(error: BaseException) -> Ending:
    """A step failed for a reason of ours; the Run ends and says which, instead of staying open."""
    message = "A step of the run failed inside AgentLoom; the worker's log has more."
    return Ending("failed", "internal", code_of(error), message)


def no_answer(verdict: ModelVerdict, *, estimated: int, input_limit: int) -> Ending:
    """The model gave no usable answer; the two numbers are the size of the request, in tokens."""
    reason = verdict.end_reason or ModelFailedError.end_reason
    message = ADVICE.get(reason, ADVICE[ModelFailedError.end_reason])
    if reason == ModelContextLengthError.end_reason:
        size = f"estimated {estimated} tokens of {input_limit}, while calling the model."
        message = f"The provider refused the request as too long: {size} {WHERE_SET}"
    numbers: dict[str, int | str] = {"http_status": verdict.status} if verdict.status else {}
    numbers |= {"estimated_input_tokens": estimated, "input_limit": input_limit}
    if verdict.retry_at:
        again = datetime.fromtimestamp(verdict.retry_at, UTC).isoformat()
        message, numbers = f"{message} The provider asks to come back at {again}.", numbers | {"retry_at": again}
    return Ending("failed", reason, verdict.code or ModelFailedError.code, message, numbers)

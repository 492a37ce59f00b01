"""Every error of the domain, in one tree. A leaf is a code, one sentence, and numbers; never content.

AgentLoomError
├── RefusedError            the caller asked for something that cannot be (HTTP 4xx); nothing was stored
│   ├── RunActiveError · RunNotActiveError · RunNotResumableError · ClientKeyReusedError · ClientKeyInFlightError
│   ├── InputInvalidError · InputNotPendingError · TooLargeError · SessionArchivedError
│   ├── ConfigurationInvalidError · ModelWindowUnknownError · ConfirmationRequiredError
│   └── UnauthenticatedError · ForbiddenError · NotFoundError · RateLimitedError
├── RunFailedError          the Run ends with this code and an `end_reason`
│   ├── ProtectedInputTooLargeError · WindowExceededError · CompactionFailedError
│   ├── ModelContextLengthError · ModelFailedError · HookDeniedError · SourceFailedError
│   ├── LoopsExhaustedError · DeadlineExceededError · BudgetExhaustedError
│   └── RunLostError
├── ModelCallError          one Attempt at a model failed; carries its retry posture
├── SupersededError         a late writer met a newer owner or an ended Run (SPEC R5)
│   └── AttemptSupersededError  a later try of the same Operation has begun
├── CallIdsTakenError       a provider's call ids repeat in the Session (SPEC A4)
├── RevisionConflictError   a compare-and-set met another revision (SPEC H5)
├── CorruptPayloadError     stored content does not decrypt to what its id promises
│   └── UnknownContentError     it does, and another version wrote it in a form that this one does not know
└── UnavailableError        the database or Temporal is away; the same call may be sent again
"""

import re
from typing import ClassVar
from uuid import UUID

from context.model_ends import ModelEnd
from context.replies import Usage

PLAIN_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,64}")


class AgentLoomError(Exception):
    """Root of the tree. `code` is the constant of SPEC section 14; `numbers` may be shown to anyone."""

    code: ClassVar[str] = "INTERNAL"
    sentence: ClassVar[str] = "Something inside AgentLoom went wrong."

    def __init__(self, message: str | None = None, **numbers: int | str) -> None:
        self.message = message or self.sentence
        self.numbers = numbers
        super().__init__(self.message)


class RefusedError(AgentLoomError):
    """A request that cannot be served as asked; nothing was stored."""


class RunActiveError(RefusedError):
    code = "RUN_ACTIVE"
    sentence = "This session already has an active run."


class RunNotActiveError(RefusedError):
    code = "RUN_NOT_ACTIVE"
    sentence = "This session has no active run to supplement."


class RunNotResumableError(RefusedError):
    code = "RUN_NOT_RESUMABLE"
    sentence = "Only a failed or stopped run can be resumed."


class ClientKeyReusedError(RefusedError):
    code = "CLIENT_KEY_REUSED"
    sentence = "This client key was used before with another body."


class ClientKeyInFlightError(RefusedError):
    code = "CLIENT_KEY_REUSED"
    sentence = "The first request with this client key is still being handled; send it again shortly."


class InputInvalidError(RefusedError):
    code = "INPUT_INVALID"
    sentence = "The request is not valid."


class InputNotPendingError(RefusedError):
    code = "INPUT_NOT_PENDING"
    sentence = "Only an input that no request contains yet can be withdrawn."


class TooLargeError(RefusedError):
    code = "TOO_LARGE"
    sentence = "The request is larger than allowed."


class SessionArchivedError(RefusedError):
    code = "SESSION_ARCHIVED"
    sentence = "This session is archived; unarchive it to go on."


class ConfigurationInvalidError(RefusedError):
    code = "CONFIGURATION_INVALID"
    sentence = "The agent definition is not valid."


class ModelWindowUnknownError(RefusedError):
    code = "MODEL_WINDOW_UNKNOWN"
    sentence = "The model's context window is not known; set model.context_window (32768 is a common value)."


class ConfirmationRequiredError(RefusedError):
    code = "CONFIRMATION_REQUIRED"
    sentence = "This cannot be undone; repeat it with confirm=true."


class UnauthenticatedError(RefusedError):
    code = "UNAUTHENTICATED"
    sentence = "Send a valid API key as 'Authorization: Bearer <key>'."


class ForbiddenError(RefusedError):
    code = "FORBIDDEN"
    sentence = "This API key may not do that."


class NotFoundError(RefusedError):
    """`kind` and `id` of what was asked for are among the numbers; it may be there and belong to somebody else."""

    code = "NOT_FOUND"
    sentence = "What was asked for is not there."

    @classmethod
    def of(cls, kind: str, identity: UUID | str) -> "NotFoundError":
        """Names what was not found. An identity that is neither an id nor a plain name could be content: left out."""
        told = str(identity)
        if not PLAIN_NAME.fullmatch(told):
            return cls(f"There is no such {kind}.", kind=kind)
        return cls(f"There is no {kind} {told}.", kind=kind, id=told)


class RateLimitedError(RefusedError):
    code = "RATE_LIMITED"
    sentence = "Too many requests with this key; try again after the time in Retry-After."

    def __init__(self, retry_after_s: int) -> None:
        super().__init__(retry_after_s=retry_after_s)
        self.retry_after_s = retry_after_s


class RunFailedError(AgentLoomError):
    """Ends the Run. `end_reason` is the machine-readable reason of SPEC S2, `status` the Run's end state."""

    end_reason: ClassVar[str] = "internal"
    status: ClassVar[str] = "failed"


class ProtectedInputTooLargeError(RunFailedError):
    code = "CONTEXT_PROTECTED_INPUT_TOO_LARGE"
    sentence = "What may not be left out of the request is larger than the input budget."
    end_reason = "context_too_large"


class WindowExceededError(RunFailedError):
    code = "CONTEXT_WINDOW_EXCEEDED"
    sentence = "The request is larger than the input budget."
    end_reason = "context_too_large"


class CompactionFailedError(RunFailedError):
    code = "COMPACTION_FAILED"
    sentence = "The context could not be compacted."
    end_reason = "compaction_failed"


class ModelContextLengthError(RunFailedError):
    code = "MODEL_CONTEXT_LENGTH_EXCEEDED"
    sentence = "The provider refused the request as longer than its context window; check model.context_window."
    end_reason = "context_too_large"


class ModelFailedError(RunFailedError):
    """The model gave no usable answer; `end_reason` says why (SPEC S2, L1, L2)."""

    code = "MODEL_FAILED"
    sentence = "The model did not answer."
    end_reason = "model_unavailable"


class HookDeniedError(RunFailedError):
    code = "HOOK_DENIED"
    sentence = "A hook denied the model request."
    end_reason = "hook_denied"


class SourceFailedError(RunFailedError):
    code = "SOURCE_FAILED"
    sentence = "A context source failed and may not be left out."


class LoopsExhaustedError(RunFailedError):
    code = "LOOPS_EXHAUSTED"
    sentence = "The run used up its loop budget."
    end_reason = "loops"
    status = "exhausted"


class BudgetExhaustedError(RunFailedError):
    code = "BUDGET_EXHAUSTED"
    sentence = "The run used up its cost or token budget."
    end_reason = "budget"
    status = "exhausted"


class DeadlineExceededError(RunFailedError):
    code = "DEADLINE_EXCEEDED"
    sentence = "The run used up its time."
    end_reason = "deadline"
    status = "timed_out"


class RunLostError(RunFailedError):
    code = "RUN_LOST"
    sentence = "The workflow of this run is gone."
    end_reason = "lost"


class ModelCallError(AgentLoomError):
    """One Attempt at a model failed. `reason` is the `end_reason` if it can't be retried away (SPEC L2).

    `reason` is one of `context.model_ends`.
    `retry_after_s` is what the provider asked for, in seconds, or None. `status` is the HTTP status, 0 if none.
    The provider's text is never part of it (SPEC Y6).
    """

    code = "MODEL_FAILED"
    sentence = "The call to the model failed."

    def __init__(
        self, reason: ModelEnd, *, retryable: bool, status: int = 0, retry_after_s: float | None = None
    ) -> None:
        super().__init__(f"{self.sentence} ({reason}, HTTP {status})" if status else f"{self.sentence} ({reason})")
        self.reason = reason
        self.retryable = retryable
        self.status = status
        self.retry_after_s = retry_after_s
        self.usage: Usage | None = None
        """What the provider had reported by then, if it did."""
        self.was_sent = False
        """Whether the provider had the request and did not refuse it: it may have worked on it (decision 0065)."""


class SupersededError(AgentLoomError):
    code = "SUPERSEDED"
    sentence = "Another owner has taken over, or the run has ended; this result changes nothing."


class AttemptSupersededError(SupersededError):
    """The result of this try does not count. If this try is the one that is still waited for, it is made again."""

    code = "ATTEMPT_SUPERSEDED"
    sentence = "A later try of the same call has begun; the result of this one changes nothing."


class CallIdsTakenError(AgentLoomError):
    """Call ids that the Session has had before; the answer is taken again with others (SPEC A4)."""

    code = "CALL_IDS_TAKEN"
    sentence = "The provider repeated call ids."

    def __init__(self, taken: frozenset[str]) -> None:
        super().__init__(count=len(taken))
        self.taken = taken


class RevisionConflictError(AgentLoomError):
    code = "CONTEXT_REVISION_CONFLICT"
    sentence = "The context has moved on to another revision."


class CorruptPayloadError(AgentLoomError):
    code = "PAYLOAD_CORRUPT"
    sentence = (
        "Stored content is damaged or can't be decrypted with the given keys; `agentloom verify` names its place."
    )


class UnknownContentError(CorruptPayloadError):
    code = "PAYLOAD_UNKNOWN"
    sentence = (
        "Stored content is whole and has a form that this version does not know; run the version that wrote it, or a"
        " newer one."
    )


class UnavailableError(AgentLoomError):
    code = "UNAVAILABLE"
    sentence = "The database or Temporal can't be reached right now; send the same request again."

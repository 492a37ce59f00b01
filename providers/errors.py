"""Says what a failed model call means (SPEC L2, B7): its reason, whether a repeat can help, and how long to wait.

Providers word the same failure in many ways and places; all of that is known here and nowhere else. The provider's own
text is looked at, never kept: errors carry a reason, a status and numbers (Y6).
"""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from context.errors import ModelCallError
from context.model_ends import ModelEnd
from context.replies import ModelReply
from egress.errors import HostUnknownError, NotHttpError
from providers import failure_shapes
from providers.failure_shapes import Complaint

RETRYABLE_CLIENT_STATUSES = frozenset({408, 409, 425, 429})


class RedirectRefusedError(ModelCallError):
    """The provider answered with a redirect. It is never followed, since that could take the key elsewhere."""

    sentence = "The model's address answered with a redirect, which is refused; give the final address as base_url."

    def __init__(self, status: int) -> None:
        super().__init__("model_redirected", retryable=False, status=status)


class EndpointRefusedError(ModelCallError):
    """The guarded client does not reach this address; nothing was sent, so the provider is not to blame."""

    sentence = "The model's address is not allowed by the outbound guard."

    def __init__(self) -> None:
        super().__init__("model_address_refused", retryable=False)


class EndpointUntrustedError(ModelCallError):
    """The certificate of the model's server is not trusted; nothing was sent, and only somebody who acts mends it."""

    sentence = "The certificate of the model's server is not trusted."

    def __init__(self) -> None:
        super().__init__("model_certificate_untrusted", retryable=False)


class AnswerRefusedError(ModelCallError):
    """The answer broke the bounds of the guarded client: too large, or of a size that can't be told."""

    sentence = "The model's answer is not allowed by the outbound guard."

    def __init__(self) -> None:
        super().__init__("model_answer_refused", retryable=False)


class ConnectionUnusableError(ModelCallError):
    """The stored connection gives no key for this call: it is gone, has moved, or its key fits into no header."""

    sentence = "The model's stored connection can't be used."

    def __init__(self) -> None:
        super().__init__("model_connection_unusable", retryable=False)


class NoApiError(ModelCallError):
    """What stands at the address is no model API: a web page, another protocol, or nothing but an empty answer."""

    sentence = "What stands at the model's address is no model API."

    def __init__(self, status: int = 0, *, retryable: bool = False) -> None:
        super().__init__("model_no_api", retryable=retryable, status=status)


class MalformedAnswerError(ModelCallError):
    """The provider answered with something that is no chat completion."""

    sentence = "The model's answer could not be read."

    def __init__(self, status: int = 0) -> None:
        super().__init__("model_unavailable", retryable=True, status=status)


class IncompleteAnswerError(ModelCallError):
    """The answer ended before the provider said that it was complete (SPEC A5)."""

    sentence = "The model's answer broke off."

    def __init__(self, status: int = 0) -> None:
        super().__init__("model_unavailable", retryable=True, status=status)
        self.was_sent = True


class BrokenStreamError(ModelCallError):
    """An attempt that failed after output had come. What came is kept as a fragment and never used as an answer.

    `cause` tells the posture; `fragment` is what was understood, None if nothing; `raw` the bytes, without credentials.
    """

    sentence = "The model's answer failed after its first output."

    def __init__(self, cause: ModelCallError, *, fragment: ModelReply | None, raw: bytes) -> None:
        super().__init__(
            cause.reason, retryable=cause.retryable, status=cause.status, retry_after_s=cause.retry_after_s
        )
        self.was_sent = True
        self.fragment = fragment
        self.raw = raw


def classify(status: int, headers: Mapping[str, str], body: bytes, *, now: datetime | None = None) -> ModelCallError:
    """The error of an HTTP answer that is not a success. `headers` are looked up in lower case."""
    if 300 <= status < 400:
        return RedirectRefusedError(status)
    complaint = failure_shapes.complaint_in(body)
    if status == 405 or (status == 400 and failure_shapes.is_no_tls(complaint)):
        return NoApiError(status)
    return _verdict(status, complaint, retry_after(headers, now=now) or complaint.wait_s)


def classify_embedded(error: object) -> ModelCallError:
    """The error of an error object inside a body or stream that began as a success (SPEC L1)."""
    complaint = failure_shapes.complaint_of(error)
    embedded = complaint.embedded_status
    meant = embedded or _meant_status(complaint)
    verdict = _verdict(meant, complaint, complaint.wait_s)
    pause = verdict.retry_after_s
    return ModelCallError(verdict.reason, retryable=verdict.retryable, status=embedded or 200, retry_after_s=pause)


def _meant_status(complaint: Complaint) -> int:
    """The status that an error without one would have had."""
    if failure_shapes.is_callers_fault(complaint):
        return 400
    return 429 if failure_shapes.is_throttled(complaint) else 500


def encoded(status: int) -> ModelCallError:
    """The error of a compressed answer, which is not read: its status still says what a refusal means."""
    return AnswerRefusedError() if 200 <= status < 300 else classify(status, {}, b"")


def unreachable(cause: BaseException | None = None, *, was_sent: bool = False) -> ModelCallError:
    """The error of a connection that failed or stayed silent too long; `cause` is what the network's library raised."""
    if isinstance(cause, NotHttpError):
        return NoApiError()
    unknown = isinstance(cause, HostUnknownError)
    error = ModelCallError("model_host_unknown" if unknown else "model_unavailable", retryable=True)
    error.was_sent = was_sent
    return error


def retry_after(headers: Mapping[str, str], *, now: datetime | None = None) -> float | None:
    """Seconds the provider asked to wait, from `retry-after-ms`, or `retry-after` as seconds or date.

    None for no wish, a negative or impossible one, and for zero: the default back-off is kinder than no wait.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    wish = headers.get("retry-after")
    seconds = _number(wish)
    return seconds if seconds is not None else _seconds_until(wish, now or datetime.now(UTC))


def _verdict(status: int, complaint: Complaint, retry_after_s: float | None) -> ModelCallError:
    """Reasons in order of certainty: what the text says for sure goes before what the status suggests."""
    if failure_shapes.is_overflow(status, complaint):
        return ModelCallError("context_length", retryable=False, status=status)
    if status == 402 or failure_shapes.is_quota(complaint):
        return ModelCallError("model_quota", retryable=False, status=status)
    if status < 500 and failure_shapes.is_refused_content(complaint):
        return ModelCallError("content_filtered", retryable=False, status=status)
    if status in (400, 403) and failure_shapes.is_throttled(complaint):  # never asked again, but truly named (SPEC L2)
        return ModelCallError("model_rate_limited", retryable=False, status=status, retry_after_s=retry_after_s)
    is_auth = failure_shapes.is_auth(complaint) or (status < 500 and failure_shapes.is_worded_as_auth(complaint))
    if status in (401, 403) or is_auth:
        return ModelCallError("model_auth", retryable=False, status=status)
    if status >= 500 or status in RETRYABLE_CLIENT_STATUSES:
        passing: ModelEnd = "model_rate_limited" if status == 429 else "model_unavailable"
        return ModelCallError(passing, retryable=True, status=status, retry_after_s=retry_after_s)
    reason: ModelEnd = "model_not_found" if _names_no_model(status, complaint) else "model_rejected"
    return ModelCallError(reason, retryable=False, status=status)


def _names_no_model(status: int, complaint: Complaint) -> bool:
    """At this address there is no such model, or nothing at all."""
    return status in (404, 410) or failure_shapes.is_unknown_model(complaint)


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None


def _seconds_until(text: str | None, now: datetime) -> float | None:
    try:
        moment = parsedate_to_datetime(text or "")
    except (ValueError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    seconds = (moment - now).total_seconds()
    return seconds if seconds > 0 else None

"""How providers word their failures: where an error object hides in a body, and the codes and phrases that tell what
it is. A table of facts with predicates over it; what follows from them is decided in `errors`.

Only the error's own message is searched, and only its beginning: it can quote the request at any length.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

_LONGEST_SEARCHED = 4_000
_STATUS = re.compile(r"[45][0-9][0-9]")


@dataclass(frozen=True, slots=True)
class Complaint:
    """What can be learnt from an error object: codes and types in lower case, and its message in lower case."""

    codes: frozenset[str] = frozenset()
    text: str = ""

    @property
    def embedded_status(self) -> int | None:
        """An HTTP status that stands in the object as its code."""
        numbers = sorted(code for code in self.codes if _STATUS.fullmatch(code))
        return int(numbers[0]) if numbers else None


def complaint_in(body: bytes) -> Complaint:
    """The complaint in the body of an error answer, which may be JSON of any shape, a plain text, or nothing."""
    text = body.decode(errors="replace").strip()
    try:
        return complaint_of(json.loads(text))
    except (ValueError, RecursionError):
        return Complaint(text=_searchable(text))


def complaint_of(value: object) -> Complaint:
    """The complaint in an error value: an object, a list with one, a text, or an object that wraps one."""
    if isinstance(value, str):
        return Complaint(text=_searchable(value))
    if isinstance(value, list):
        return complaint_of(value[0]) if value else Complaint()
    if not isinstance(value, dict):
        return Complaint()
    inner = value.get("error") or value.get("errors")
    own = _own_complaint(value)
    if not isinstance(inner, dict | list | str) or not inner:
        return own
    found = complaint_of(inner)
    return Complaint(codes=found.codes | own.codes, text=found.text or own.text)


def _own_complaint(value: dict[str, Any]) -> Complaint:
    codes = {_code(value.get(key)) for key in ("code", "type", "status", "error_code", "statusCode")} - {""}
    texts = [value.get(key) for key in ("message", "detail", "msg", "error_msg")]
    text = next((text for text in texts if isinstance(text, str) and text), "")
    return Complaint(codes=frozenset(codes), text=_searchable(text))


def _code(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        return ""
    return str(value).strip().lower()


def _searchable(text: str) -> str:
    return text[:_LONGEST_SEARCHED].lower()


_OVERFLOW_CODES = frozenset(
    {
        "context_length_exceeded",
        "exceed_context_size_error",
        "context_window_exceeded",
        "model_max_prompt_tokens_exceeded",
        "1261",
    }
)
_OVERFLOW = re.compile(
    r"maximum context length|max(imum)? (model|sequence) length"
    r"|(exceed\w*|longer than|larger than|greater than|beyond|over)\b.{0,60}\b"
    r"(context (length|size|window)|input length)"
    r"|(exceed\w*|longer than|larger than|over)\b.{0,40}\b(model )?token limit"
    r"|input token count.{0,40}exceeds"
    r"|(prompt|input|context)( is)? too long|(prompt|输入|上下文).{0,10}超长|超[出过].{0,12}(上下文|最大长度)"
    r"|requested \d+ tokens \(\d+ in the messages"
    r"|reduce the length of the (messages|prompt|input)",
    re.DOTALL,
)
_THROTTLE = re.compile(
    r"per (min|minute|hour|day|second)\b|rate.?limit|too many (requests|tokens)|please (wait|slow down)|try(ing)? again"
)
_QUOTA_CODES = frozenset(
    {
        "insufficient_quota",
        "insufficient_balance",
        "insufficient_user_quota",
        "billing_hard_limit_reached",
        "billing_not_active",
        "quota_exceeded_for_billing",
        "arrearage",
        "1113",
    }
)
_QUOTA = re.compile(
    r"insufficient (account )?(balance|credits?|funds|quota)|exceeded your current quota"
    r"|credit balance is too low|余额不足|欠费"
)
_CONTENT_CODES = frozenset(
    {"content_filter", "content_policy_violation", "data_inspection_failed", "moderation_blocked", "1301"}
)
_CONTENT = re.compile(
    r"content exists risk|content (management )?policy|inappropriate content"
    r"|flagged (by|as|for)|moderation|敏感内容|违规"
)
_AUTH_CODES = frozenset(
    {"invalid_api_key", "authentication_error", "invalid_authentication", "permission_denied", "permission_error"}
)
_NO_TLS = re.compile(r"plain http request was sent to https port|sent an http request to an https server")
_UNKNOWN_MODEL_CODES = frozenset(
    {"model_not_found", "model_not_exist", "invalid_model", "unknown_model", "model_decommissioned"}
)
_UNKNOWN_MODEL = re.compile(
    r"\bmodel( name| id)?:?\s*([\"'`][^\"'`]{0,200}[\"'`]|\S{0,200})?\s*"
    r"(not (found|exist)|does(n't| not) exist|is not found|has been (decommissioned|retired))"
    r"|\b(unknown|no such|invalid) model\b|模型不存在"
)
_CALLER_CODES = frozenset(
    {
        "invalid_request_error",
        "invalid_request",
        "bad_request",
        "model_not_found",
        "not_found_error",
        "invalid_argument",
    }
)


def is_overflow(status: int, complaint: Complaint) -> bool:
    """The request is longer than the model's window. Throttling that counts tokens is something else."""
    if status == 413 or complaint.codes & _OVERFLOW_CODES:
        return True
    if status == 429 and (_THROTTLE.search(complaint.text) or "rate_limit_exceeded" in complaint.codes):
        return False
    return bool(_OVERFLOW.search(complaint.text))


def is_quota(complaint: Complaint) -> bool:
    """The account can't pay, which no waiting mends. `resource_exhausted` is a rate limit that words itself so."""
    if complaint.codes & _QUOTA_CODES:
        return True
    return "resource_exhausted" not in complaint.codes and bool(_QUOTA.search(complaint.text))


def is_refused_content(complaint: Complaint) -> bool:
    """The provider refuses what the request is about."""
    return bool(complaint.codes & _CONTENT_CODES or _CONTENT.search(complaint.text))


def is_auth(complaint: Complaint) -> bool:
    """The key is missing, wrong, or may not do this."""
    return bool(complaint.codes & _AUTH_CODES)


def is_unknown_model(complaint: Complaint) -> bool:
    """The provider knows no model of this name."""
    return bool(complaint.codes & _UNKNOWN_MODEL_CODES or _UNKNOWN_MODEL.search(complaint.text))


def is_no_tls(complaint: Complaint) -> bool:
    """The server speaks TLS there and was called without."""
    return bool(_NO_TLS.search(complaint.text))


def is_callers_fault(complaint: Complaint) -> bool:
    """An error without a status whose type says that the request itself is wrong."""
    return bool(complaint.codes & (_CALLER_CODES | _AUTH_CODES | _QUOTA_CODES | _CONTENT_CODES | _OVERFLOW_CODES))

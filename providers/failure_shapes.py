"""How providers word their failures: where an error object hides in a body, and the codes and phrases that tell what
it is. A table of facts with predicates over it; what follows from them is decided in `errors`.

Only the error's own message is searched, and only its beginning: it can quote the request at any length.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

_LONGEST_SEARCHED = 4_000
_CODE_KEYS = ("code", "type", "status", "error_code", "statusCode", "status_code")
_TEXT_KEYS = ("message", "detail", "msg", "error_msg", "status_msg")
_LONGEST_WAIT_S = 366 * 86_400
_UNITS = {"h": 3_600, "m": 60, "s": 1, "ms": 0.001}
_DURATION = (
    r"(?:(?P<h>\d{1,9}) ?h(?:ours?)?)? ?(?:(?P<m>\d{1,9}) ?m(?:in(?:ute)?s?)?(?!s))? ?"
    r"(?:(?P<s>\d{1,9}(?:\.\d{1,9})?) ?s(?:ec(?:ond)?s?)?|(?P<ms>\d{1,9}(?:\.\d{1,9})?) ?ms)?"
)
_WAIT = re.compile(_DURATION)
_WISH = re.compile(r"(?:try again|retry|wait) (?:in|after|for) (?=\d)" + _DURATION + r"(?![\w])")
_NO_FAULT = frozenset({"", "0", "200", "ok", "success"})
_STATUS = re.compile(r"[45][0-9][0-9]")


@dataclass(frozen=True, slots=True)
class Complaint:
    """What can be learnt from an error object: codes and types in lower case, and its message in lower case."""

    codes: frozenset[str] = frozenset()
    text: str = ""
    wait: str = ""
    """How long to wait, as the object writes it in a field of its own (`54s`)."""

    @property
    def wait_s(self) -> float | None:
        """Seconds the provider asks to wait, in a field or in its words; None if it doesn't, or impossibly."""
        found = _WAIT.fullmatch(self.wait) if self.wait else _WISH.search(self.text)
        seconds = sum(float(found[unit] or 0) * size for unit, size in _UNITS.items()) if found else 0
        return seconds if 0 < seconds < _LONGEST_WAIT_S else None

    @property
    def embedded_status(self) -> int | None:
        """An HTTP status that stands in the object as its code."""
        numbers = sorted(code for code in self.codes if _STATUS.fullmatch(code))
        return int(numbers[0]) if numbers else None


def reported_failure(document: dict[str, Any], *, is_complete: bool) -> object | None:
    """What a document under a success status reports as its failure, in any of the places for it; None if nothing.

    A bare message with a code is one too, unless it comes with an answer or the answer `is_complete` already.
    """
    if says_something(document.get("error")):
        return document
    verdict = document.get("base_resp")
    if isinstance(verdict, dict) and verdict.get("status_code") not in (None, 0, "0"):
        return verdict
    if document.get("object") == "error":
        return document
    is_answer = is_complete or bool(document.get("choices"))
    return document if not is_answer and _is_complaint(document) else None


def _is_complaint(document: dict[str, Any]) -> bool:
    codes = [document.get(key) for key in _CODE_KEYS if key not in ("type", "status")]
    is_blamed = document.get("success") is False or "detail" in document
    return bool(_own_complaint(document).text) and (is_blamed or any(_code(code) not in _NO_FAULT for code in codes))


def says_something(error: object) -> bool:
    """Whether an error field holds an error; some servers send it in each document, with nothing in it."""
    return any(map(bool, error.values())) if isinstance(error, dict) else bool(error)


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
    own = _own_complaint(value)
    inner = value.get("error") or value.get("errors") or _passed_on(value)
    if not isinstance(inner, dict | list | str) or not inner:
        return own
    found = complaint_of(inner)
    return Complaint(codes=found.codes | own.codes, text=found.text or own.text, wait=found.wait or own.wait)


def _passed_on(value: dict[str, Any]) -> object:
    """What a gateway was answered itself, which says more than its own words about it."""
    metadata = value.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    try:
        return json.loads(raw) if isinstance(raw, str) else raw
    except (ValueError, RecursionError):
        return raw


def _own_complaint(value: dict[str, Any]) -> Complaint:
    codes = {_code(value.get(key)) for key in _CODE_KEYS} - {""}
    texts = [value.get(key) for key in _TEXT_KEYS]
    text = next((text for text in texts if isinstance(text, str) and text), "")
    return Complaint(codes=frozenset(codes), text=_searchable(text), wait=_wait_in(value.get("details")))


def _wait_in(details: object) -> str:
    waits = [one.get("retryDelay") for one in details if isinstance(one, dict)] if isinstance(details, list) else []
    return next((wait.strip().lower() for wait in waits if isinstance(wait, str)), "")


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
    r"maximum context length|max(imum)? (model|sequence|prompt) length|context_(length|window)_exceeded"
    r"|(exceed\w*|longer than|larger than|greater than|beyond|over)\b.{0,60}\b"
    r"(context (length|size|window)|input length)"
    r"|(exceed\w*|longer than|larger than|over)\b.{0,40}\b(model )?token limit"
    r"|input token count.{0,40}exceeds|prompt token count.{0,40}exceeds|exceed\w* max message tokens"
    r"|input length \d+ exceeds|range of input length should be|tokens in request more than max tokens"
    r"|(prompt|input|context|conversation)( tokens?| length)?( is| are)? too (long|large)"
    r"|(prompt|输入|上下文).{0,10}超长"
    r"|\b(context|prompt)( (window|length|size|limit|tokens?))*( is| has been)? exceed"
    r"|number of (input |prompt )?tokens\b.{0,40}exceed|exceed\w* (the )?max(imum)? (input|prompt) tokens"
    r"|\b(prompt|input) length\b.{0,40}(can|should|must) ?not exceed|prompt_tokens\b.{0,20}must be less than"
    r"|reached (the )?(maximum )?context length"
    r"|(超[出过]|超限).{0,12}(上下文|最大长度)|输入长度超"
    r"|too many (input|prompt) tokens|must have less than \d+ tokens|`inputs` tokens.{0,40} must be <="
    r"|requested \d+ tokens \(\d+ in the messages|when context the overflows|reduce your (context|prompt)\b"
    r"|reduce the length of the (messages|prompt|input)",
    re.DOTALL,
)
_THROTTLE = re.compile(
    r"per (min|minute|hour|day|second)\b|rate.?limit|too many (requests|tokens)|please (wait|slow down)|try(ing)? again"
)
_PER_MINUTE = re.compile(r"per (min|minute|second)\b|requests per")
_QUOTA_CODES = frozenset(
    {
        "insufficient_quota",
        "insufficient_balance",
        "insufficient_user_quota",
        "billing_hard_limit_reached",
        "billing_not_active",
        "quota_exceeded_for_billing",
        "insufficient_balance_error",
        "exceeded_current_quota_error",
        "usage_limit_reached",
        "billing_error",
        "allocationquota.freetieronly",
        "arrearage",
        "1113",
        "1310",
    }
)
_QUOTA = re.compile(
    r"insufficient[ _](account )?(user_)?(balance|credits?|funds|quota)|exceeded your current quota"
    r"|credit balance is too low|balance is negative|out of credits|余额不足|欠费"
    r"|(used|exhausted|exceeded) (all |your )?(available |monthly |included )*credits"
    r"|(credit|spend(ing)?|spend cap|key|billing hard) limit (has been |was )?(reached|exceeded)"
    r"|(reached|exceeded|hit) .{0,40}(monthly (usage|spending) limit|specified api usage limits"
    r"|usage limit for this (billing cycle|period))"
    r"|free tier .{0,30}exhausted|free allocated quota exceeded"
)
_CONTENT_CODES = frozenset(
    {
        "content_filter",
        "content_policy_violation",
        "data_inspection_failed",
        "datainspectionfailed",
        "moderation_blocked",
        "1301",
    }
)
_CONTENT = re.compile(
    r"content exists risk|content (management )?policy|inappropriate content"
    r"|flagged (by|as|for)|moderation|considered high risk|敏感内容|违规"
)
_AUTH_CODES = frozenset(
    {
        "invalid_api_key",
        "invalidapikey",
        "authentication_error",
        "authenticationerror",
        "invalid_authentication",
        "unauthenticated",
        "permission_denied",
        "permission_error",
    }
)
_AUTH = re.compile(
    r"(invalid|incorrect|wrong|missing) api[- _]?key|api[- _]?key (is )?(not valid|invalid|missing)"
    r"|not authenticated|login fail"
)
_THROTTLE_CODES = frozenset(
    {
        "rate_limit_exceeded",
        "rate_limit_error",
        "rate_limit_reached_error",
        "too_many_requests",
        "limit_requests",
        "limit_burst_rate",
        "resource_exhausted",
    }
)
_THROTTLED = re.compile(r"too many requests|\brate.?limit(ed|s?\b)")
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
    is_rate = "resource_exhausted" in complaint.codes or bool(_PER_MINUTE.search(complaint.text))
    return not is_rate and bool(_QUOTA.search(complaint.text))


def is_refused_content(complaint: Complaint) -> bool:
    """The provider refuses what the request is about."""
    return bool(complaint.codes & _CONTENT_CODES or _CONTENT.search(complaint.text))


def is_auth(complaint: Complaint) -> bool:
    """The key is missing, wrong, or may not do this."""
    return bool(complaint.codes & _AUTH_CODES)


def is_worded_as_auth(complaint: Complaint) -> bool:
    """The words say that about the key; whose key is meant is sure only where the status blames the caller."""
    return bool(_AUTH.search(complaint.text))


def is_throttled(complaint: Complaint) -> bool:
    """The provider is asked too often, or too much at once."""
    return bool(complaint.codes & _THROTTLE_CODES or _THROTTLED.search(complaint.text))


def is_unknown_model(complaint: Complaint) -> bool:
    """The provider knows no model of this name."""
    return bool(complaint.codes & _UNKNOWN_MODEL_CODES or _UNKNOWN_MODEL.search(complaint.text))


def is_no_tls(complaint: Complaint) -> bool:
    """The server speaks TLS there and was called without."""
    return bool(_NO_TLS.search(complaint.text))


def is_callers_fault(complaint: Complaint) -> bool:
    """An error without a status that says that the request itself, its key or its account is wrong."""
    named = _CALLER_CODES | _AUTH_CODES | _QUOTA_CODES | _CONTENT_CODES | _OVERFLOW_CODES
    return bool(complaint.codes & named) or is_worded_as_auth(complaint) or bool(_CONTENT.search(complaint.text))

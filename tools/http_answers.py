"""What an HTTP answer says about a call, the same for HTTP tools and MCP servers over HTTP (SPEC T4, T7, T9).

A 3xx or 4xx is the answer of the tool. What leaves open whether the call ran, such as a 503, is raised together with
what the server said, for the caller to decide.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from context.messages import UNDECODABLE_REPLACED
from context.policy import FrozenTool
from egress.errors import (
    AddressRefusedError,
    AnswerEncodedError,
    CertificateUntrustedError,
    EgressError,
    RedirectRefusedError,
)
from egress.limits import REDIRECTS
from tools.errors import ToolUnavailableError
from tools.outcomes import artifact_note, encodable, error_outcome, exact_json, sniffed_media_type
from tools.port import Artifact, ToolInvocation, ToolOutcome

_LONGEST_WAIT_S = 86_400.0
_BUSY = frozenset({408, 429})
_GATEWAY = frozenset({502, 503, 504})
_NO_CHARSETS = frozenset({"idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined"})
"""Python's names for what no server writes text in; some take longer than linear time."""
_CONTROL = re.compile(r"[\x01-\x07\x0e-\x1a\x1c-\x1f]")
_TEXT_TYPES = ("text/", "application/json", "application/xml", "application/yaml", "application/javascript")


@dataclass(frozen=True)
class HttpAnswer:
    """An answer as it came, read to its end."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    charset: str | None
    body: bytes = field(repr=False)

    @property
    def media_type(self) -> str:
        return self.headers.get("Content-Type", "").split(";")[0].strip().lower()

    @property
    def is_open(self) -> bool:
        """Whether it comes from in front of the tool, or says "later": no word about the call."""
        return self.status in _BUSY | _GATEWAY


def raise_unless_answered(tool: FrozenTool, answer: HttpAnswer, outcome: ToolOutcome) -> None:
    """A 5xx of the tool itself is an answer where the call must not be repeated: the model should see it."""
    status, wait = answer.status, retry_after_s(answer.headers.get("Retry-After"))
    if status in _BUSY:
        raise ToolUnavailableError("busy", may_have_run=False, status=status, retry_after_s=wait, said=outcome)
    repeatable = tool.effect != "side_effect" or tool.retry_unknown
    if status in _GATEWAY or (status >= 500 and repeatable):
        raise ToolUnavailableError("server_error", may_have_run=True, status=status, retry_after_s=wait, said=outcome)


def refused_outcome(error: EgressError) -> ToolOutcome:
    """What the guard stopped: a call that was not made, or an answer that is not taken (SPEC Y4)."""
    match error:
        case AddressRefusedError():
            kind = "AddressRefused"
        case CertificateUntrustedError():
            kind = "CertificateUntrusted"
        case RedirectRefusedError():
            kind = "RedirectRefused"
        case AnswerEncodedError():
            kind = "AnswerCompressed"
        case _:
            kind = "ResultTooLarge"
    return error_outcome(kind, error.message)


def http_outcome(answer: HttpAnswer, call: ToolInvocation) -> ToolOutcome:
    """The answer as the model and the record get it."""
    text, transforms, artifacts = _shown(answer, call)
    raw_type = answer.media_type or "application/octet-stream"
    if 200 <= answer.status < 300:
        return ToolOutcome("ok", text, answer.body, artifacts, transforms, raw_type)
    kind = "RedirectRefused" if answer.status in REDIRECTS and "Location" in answer.headers else "HttpError"
    error = error_outcome(kind, text.strip(), status=answer.status)
    return ToolOutcome("error", error.content, answer.body, artifacts, transforms, raw_type)


def _shown(answer: HttpAnswer, call: ToolInvocation) -> tuple[str, tuple[str, ...], tuple[Artifact, ...]]:
    """The body as text, or as the reference of an artifact (SPEC T7)."""
    media_type, body = answer.media_type, answer.body
    is_labelled_text = media_type.startswith(_TEXT_TYPES) or media_type.endswith(("+json", "+xml"))
    if is_labelled_text or not body or media_type in ("", "application/x-www-form-urlencoded"):
        text, marks = _decoded(body, answer.charset)
        if not _is_binary(text, marks, is_labelled_text):
            return text, marks, ()
        media_type = sniffed_media_type(body)
    artifact = Artifact(media_type, body)
    return exact_json(artifact_note(call.operation_id, 1, artifact)).decode(), (), (artifact,)


def _is_binary(text: str, marks: tuple[str, ...], is_labelled_text: bool) -> bool:
    """A label makes no text: text has no NUL, and if some of it does not decode no control characters either."""
    return "\0" in text or (bool(marks) and (not is_labelled_text or _CONTROL.search(text) is not None))


def _decoded(body: bytes, charset: str | None) -> tuple[str, tuple[str, ...]]:
    for encoding in filter(None, (charset, "utf-8")):
        if encoding.lower().replace("_", "-") in _NO_CHARSETS:
            continue
        try:
            return encodable(body.decode(encoding))
        except (ValueError, LookupError):  # a UnicodeError, a name that is none
            continue
    return body.decode(errors="replace"), (UNDECODABLE_REPLACED,)


def retry_after_s(value: str | None) -> float | None:
    """Seconds that a Retry-After header asks for, in either of its forms; None if it says nothing usable."""
    if not value:
        return None
    if re.fullmatch(r"\s*[0-9]+\s*", value):
        return min(float(value), _LONGEST_WAIT_S)
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return min(max(0.0, (moment - datetime.now(UTC)).total_seconds()), _LONGEST_WAIT_S)

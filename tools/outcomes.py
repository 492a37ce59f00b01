"""Outcomes put together: errors in one structured form, texts that encode, artifacts as references, secrets taken out.

Nothing here knows where a result came from.
"""

import json
import math
from dataclasses import replace
from typing import Any
from uuid import UUID

from context.messages import CREDENTIAL_REMOVED, SURROGATES_REPLACED, canonical_json, without_lone_surrogates
from egress.credentials import Credentials
from tools.errors import ToolUnavailableError
from tools.port import Artifact, ToolOutcome, artifact_ref

_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
)


def error_content(error_type: str, message: str, **facts: Any) -> str:
    """What the model reads about a failed call: never empty, names the type of error (SPEC T9)."""
    error = {"type": error_type, "message": message or f"The tool failed with {error_type} and gave no message."}
    return json.dumps({"error": error | facts}, ensure_ascii=False)


def error_outcome(error_type: str, message: str, **facts: Any) -> ToolOutcome:
    """A failure in the tool's own business, which answers the model (SPEC T9)."""
    content, transforms = encodable(error_content(error_type, message, **facts))
    return ToolOutcome("error", content, content.encode(), transforms=transforms)


def unavailable_outcome(error: ToolUnavailableError) -> ToolOutcome:
    """What the model is told once no further try will be made: what the server said, if it said something."""
    if error.said is not None:
        told = json.loads(error.said.content)["error"] | {"may_have_run": error.may_have_run}
        told |= {"retry_after_s": math.ceil(error.retry_after_s)} if error.retry_after_s else {}
        return replace(error.said, content=json.dumps({"error": told}, ensure_ascii=False))
    kind = "ToolTimeout" if error.reason == "timeout" else "ToolUnavailable"
    return error_outcome(kind, error.message, may_have_run=error.may_have_run)


def text_outcome(text: str, raw: bytes, *, artifacts: tuple[Artifact, ...] = ()) -> ToolOutcome:
    """A successful result, its text made fit to be encoded."""
    content, transforms = encodable(text)
    return ToolOutcome("ok", content, raw, artifacts, transforms)


def encodable(text: str) -> tuple[str, tuple[str, ...]]:
    """The text without lone surrogates, and the mark that says so if there were any (SPEC Y5)."""
    clean = text if text.isascii() else without_lone_surrogates(text)
    return clean, () if clean == text else (SURROGATES_REPLACED,)


def exact_json(value: Any) -> bytes:
    """Canonical JSON; a value with lone surrogates, which has none, keeps them as escapes."""
    try:
        return canonical_json(value)
    except UnicodeEncodeError:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def finite(value: Any) -> Any:
    """The value with words for the numbers that JSON has no form for, and that some writers send all the same."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, list) else value


def artifact_note(operation_id: UUID, ordinal: int, artifact: Artifact) -> dict[str, Any]:
    """What stands in the content in place of an artifact's bytes (SPEC T7)."""
    note = {"artifact_ref": artifact_ref(operation_id, ordinal), "media_type": artifact.media_type}
    return note | {"bytes": len(artifact.body)} | ({"name": artifact.name} if artifact.name else {})


def sniffed_media_type(body: bytes) -> str:
    """The media type of bytes that came without one."""
    if body[:4] == b"RIFF" and body[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _SIGNATURES if body.startswith(start)), "application/octet-stream")


def without_credentials(outcome: ToolOutcome, *secrets: str | None) -> ToolOutcome:
    """The outcome with secrets replaced, before anything is stored (SPEC Y3, L6): of the call, or of its release."""
    given = [secret for secret in secrets if secret is not None]
    if not given:
        return outcome
    # A header's media type is read, and shown, in small letters.
    known = Credentials([*given, *(secret.lower() for secret in given)])
    clean = replace(
        outcome,
        content=known.removed_from(outcome.content),
        raw=known.removed_from_bytes(outcome.raw),
        artifacts=tuple(_artifact_without(known, artifact) for artifact in outcome.artifacts),
        raw_media_type=known.removed_from(outcome.raw_media_type),
    )
    if clean.content != outcome.content and clean.raw == outcome.raw:  # in a charset of its own: the reading is kept
        clean = replace(clean, raw=clean.content.encode(), raw_media_type="text/plain; charset=utf-8")
    if clean == outcome or CREDENTIAL_REMOVED in outcome.transforms:
        return outcome if clean == outcome else clean
    return replace(clean, transforms=(*clean.transforms, CREDENTIAL_REMOVED))


def _artifact_without(known: Credentials, artifact: Artifact) -> Artifact:
    name = known.removed_from(artifact.name) if artifact.name else artifact.name
    return Artifact(known.removed_from(artifact.media_type), known.removed_from_bytes(artifact.body), name)

"""What settling a tool call writes: its result as it came, the message the model will get, the end of the try."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from context.steps import RecordToolResult
from storage.payloads import Payloads, Sealed, distinct
from storage.tables import artifacts, payloads
from storage.writes import WriteSet

SETTLE = """
    UPDATE operations o SET state = :settled_state, raw_id = :raw_id, result_id = :result_id, whole_id = :whole_id,
           raw_media_type = :raw_media_type, transforms = CAST(:result_transforms AS jsonb),
           verdict = CAST(:settled_verdict AS jsonb), attempts = coalesce(:attempt_no, o.attempts + 1),
           updated_at = now()
    FROM runs r
    WHERE o.operation_id = :settled_id AND o.attempts <= coalesce(:attempt_no, o.attempts) AND o.verdict IS NULL
      AND r.run_id = o.run_id AND r.status = 'running' AND r.execution_no = :execution_no
    RETURNING o.attempts
"""
END_ATTEMPT = """
    INSERT INTO attempts (operation_id, attempt_no, state, ended_at, error)
    SELECT :settled_id, attempts, :attempt_state, now(), CAST(:attempt_error AS jsonb) FROM settled
    ON CONFLICT (operation_id, attempt_no)
    DO UPDATE SET state = :attempt_state, ended_at = now(), error = CAST(:attempt_error AS jsonb)
"""


@dataclass(frozen=True)
class SealedResult:
    """A result with its content encrypted, which needs no lock."""

    request: RecordToolResult
    message: Sealed
    raw: Sealed | None
    whole: Sealed | None
    kept: tuple[tuple[str, Sealed], ...]

    @property
    def all(self) -> list[Sealed]:
        return [one for one in (self.raw, self.message, self.whole, *(body for _, body in self.kept)) if one]


def sealed_result(vault: Payloads, request: RecordToolResult) -> SealedResult:
    """The content of a result, encrypted."""
    return SealedResult(
        request,
        message=vault.seal(request.message.body, {request.estimator_id: request.message.tokens or 0}),
        raw=vault.seal(request.raw.body) if request.raw else None,
        whole=vault.seal(request.whole.body) if request.whole else None,
        kept=tuple((media_type, vault.seal(one.body)) for media_type, one in request.artifacts),
    )


def write_result(writes: WriteSet, result: SealedResult) -> None:
    """Put a result into the commit's writes; the part `settled` has a row if it still counted."""
    request = result.request
    writes.insert(payloads, distinct(result.all), skip_existing=True)
    rows = [_artifact_row(request, ordinal, *one) for ordinal, one in enumerate(result.kept, start=1)]
    writes.insert(artifacts, rows, skip_existing=True)
    writes.sql(
        SETTLE,
        tag="settled",
        settled_state=request.state,
        raw_id=result.raw.payload_id if result.raw else None,
        result_id=result.message.payload_id,
        whole_id=result.whole.payload_id if result.whole else None,
        raw_media_type=request.raw_media_type,
        result_transforms=json.dumps(request.transforms) if request.transforms else None,
        settled_verdict=json.dumps({"status": request.status, "content_id": result.message.payload_id.hex()}),
        execution_no=request.execution_no,
    )
    writes.sql(
        END_ATTEMPT,
        attempt_state="failed" if request.failure else "succeeded",
        attempt_error=json.dumps(asdict(request.failure)) if request.failure else None,
    )
    writes.bind(settled_id=request.operation_id, attempt_no=request.attempt_no)


def _artifact_row(request: RecordToolResult, ordinal: int, media_type: str, body: Sealed) -> dict[str, Any]:
    place = {"operation_id": request.operation_id, "ordinal": ordinal}
    return place | {"media_type": media_type, "payload_id": body.payload_id}

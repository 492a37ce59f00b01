"""Operations: one model or tool call, the request that was sent, and what came back."""

import base64
import json
from dataclasses import asdict
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import Query
from pydantic_core import to_json

from api.auth import Caller
from api.openapi import refusals, router
from api.proof_schemas import DiffEntry, ExplanationEntry, ExplanationName, RequestDiff
from api.schemas import OperationEntry, OperationResult, RebuiltRequest
from api.wiring import Wired
from context.errors import InputInvalidError
from context.explain import (
    Explanation,
    Included,
    LeftOutByRule,
    LeftOutForBudget,
    NotYetArrived,
    ReplacedBySummary,
    Withheld,
)
from context.messages import canonical_json
from storage import reads

routes = router("operations")

Subject = Annotated[UUID | None, Query(description="Id of the record that is asked about.")]
NAMES: dict[type[Explanation], ExplanationName] = {
    Included: "included",
    ReplacedBySummary: "replaced_by_summary",
    LeftOutByRule: "left_out_by_rule",
    LeftOutForBudget: "left_out_for_budget",
    NotYetArrived: "not_yet_arrived",
    Withheld: "withheld_by_hook",
}
Encoding = Literal["json", "text", "base64"]
View = Annotated[
    Literal["raw", "effective"], Query(description="`raw`: what came back; `effective`: the message that went on.")
]

Artifact = Annotated[
    int | None,
    Query(ge=1, le=1_000_000, description="Number of an artifact of the result, as its reference ends with."),
]


@routes.get("/operations/{operation_id}", responses=refusals(404))
async def read_operation(operation_id: UUID, caller: Caller, services: Wired) -> OperationEntry:
    """One Operation with its Attempts."""
    return OperationEntry.model_validate(await reads.operation(services.store, operation_id, caller.user_id))


@routes.get("/operations/{operation_id}/request", responses=refusals(404))
async def read_request(operation_id: UUID, caller: Caller, services: Wired) -> RebuiltRequest:
    """The frozen request of a model call, rebuilt byte for byte from what is stored, and the SHA-256 of its bytes."""
    await reads.operation(services.store, operation_id, caller.user_id)
    rebuilt = await services.rebuild(operation_id)
    return RebuiltRequest(request=json.loads(rebuilt.body), sha256=rebuilt.sha256)


@routes.get("/operations/{operation_id}/result", responses=refusals(404))
async def read_result(
    operation_id: UUID, caller: Caller, services: Wired, view: View = "effective", artifact: Artifact = None
) -> OperationResult:
    """What the call gave: as it came, or as the message that went on; or one piece of its binary content."""
    if artifact is None:
        found = await reads.operation_result(services.store, operation_id, caller.user_id, view=view)
    else:
        found, view = await reads.operation_artifact(services.store, operation_id, caller.user_id, artifact), "raw"
    encoding, result = ("json", None) if found.content is None else _readable(found.content)
    return OperationResult(
        operation_id=operation_id,
        state=found.state,
        view=view,
        media_type=found.media_type,
        encoding=encoding,
        result=result,
    )


@routes.get("/operations/{operation_id}/explain", responses=refusals(404))
async def explain_piece(
    operation_id: UUID,
    caller: Caller,
    services: Wired,
    record: Subject = None,
    given: Annotated[UUID | None, Query(alias="input", description="Id of the input that is asked about.")] = None,
) -> ExplanationEntry:
    """Why a record, or an input, was or was not in the request of this model call."""
    if (record is None) == (given is None):
        raise InputInvalidError("Name a record or an input to explain, and only one.")
    found = await reads.explained(services.store, operation_id, caller.user_id, record_id=record, input_id=given)
    facts = asdict(found.explanation)
    name = NAMES[type(found.explanation)]
    return ExplanationEntry(operation_id=operation_id, piece=found.piece, explanation=name, **facts)


@routes.get("/operations/{operation_id}/diff", responses=refusals(404))
async def compare_requests(
    operation_id: UUID,
    caller: Caller,
    services: Wired,
    other: Annotated[UUID, Query(alias="with", description="The model call whose request this one is compared with.")],
) -> RequestDiff:
    """This request item by item, seen from the other one: same, changed, moved, added, removed or summarised."""
    found = await reads.compared(services.store, other, operation_id, caller.user_id)
    return RequestDiff(
        operation_id=operation_id,
        compared_with=other,
        common_prefix=found.common_prefix,
        items=[DiffEntry.model_validate(line) for line in found.lines],
    )


def _readable(content: bytes) -> tuple[Encoding, Any]:
    """JSON as JSON; else the text, such as a streamed answer or JSON that names lone surrogates; else base64."""
    try:
        value = json.loads(content)
        canonical_json(value)
        to_json([[value]])  # as deep as it stands in the answer: what the answer can't carry stays text
        return "json", value
    except (ValueError, RecursionError):
        pass
    try:
        return "text", content.decode()
    except UnicodeDecodeError:
        return "base64", base64.b64encode(content).decode()

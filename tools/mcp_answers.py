"""What an MCP server answered, as text, artifacts and errors (SPEC T7); imports the SDK's types."""

import base64
import json
from dataclasses import replace
from typing import Any

from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)
from pydantic_core import to_jsonable_python

from context.messages import SURROGATES_REPLACED, UNDECODABLE_REPLACED
from tools.mcp_servers import ServerRefusal
from tools.mcp_streams import REPLACED
from tools.outcomes import artifact_note, error_outcome, exact_json, finite, text_outcome
from tools.port import Artifact, ToolInvocation, ToolOutcome

_MARKS = (SURROGATES_REPLACED, UNDECODABLE_REPLACED)


def outcome_of(answer: CallToolResult | ServerRefusal, call: ToolInvocation) -> ToolOutcome:
    """The answer as the model and the record get it."""
    if isinstance(answer, ServerRefusal):
        return error_outcome("McpError", answer.message, code=answer.code)
    mark = (answer.meta or {}).pop(REPLACED, None)
    try:
        raw = exact_json(to_jsonable_python(finite(answer.model_dump(by_alias=True, exclude_none=True))))
    except (ValueError, RecursionError):
        return error_outcome("InvalidToolResult", "The tool's result is nested too deeply, or is no JSON.")
    outcome = _outcome(answer, raw, call)
    return replace(outcome, transforms=(*outcome.transforms, mark)) if mark in _MARKS else outcome


def _outcome(answer: CallToolResult, raw: bytes, call: ToolInvocation) -> ToolOutcome:
    artifacts: list[Artifact] = []
    try:
        parts = [_shown(block, artifacts, call) for block in answer.content]
    except ValueError:
        return replace(error_outcome("InvalidToolResult", "The tool's binary content is not valid base64."), raw=raw)
    if not any(part.strip() for part in parts) and answer.structured_content is not None:
        parts = [_json(finite(answer.structured_content))]
    text = "\n".join(parts)
    if answer.is_error:
        return replace(error_outcome("ToolError", text), raw=raw, artifacts=tuple(artifacts))
    return text_outcome(text, raw, artifacts=tuple(artifacts))


def _shown(block: ContentBlock, artifacts: list[Artifact], call: ToolInvocation) -> str:
    """One content block as text; what is binary is kept as an artifact and leaves its reference (SPEC T7)."""
    match block:
        case TextContent():
            return block.text
        case ImageContent() | AudioContent():
            return _kept(Artifact(block.mime_type, _decoded(block.data)), artifacts, call)
        case ResourceLink():
            return _json(block.model_dump(mode="json", include={"uri", "name", "description"}, exclude_none=True))
        case EmbeddedResource():
            resource = block.resource
    if isinstance(resource, BlobResourceContents):
        media_type = resource.mime_type or "application/octet-stream"
        return _kept(Artifact(media_type, _decoded(resource.blob), str(resource.uri)), artifacts, call)
    return resource.text


def _kept(artifact: Artifact, artifacts: list[Artifact], call: ToolInvocation) -> str:
    artifacts.append(artifact)
    return _json(artifact_note(call.operation_id, len(artifacts), artifact))


def _decoded(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)

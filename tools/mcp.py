"""Tools of MCP servers: schemas frozen at publishing; answers as text, artifacts and errors (SPEC T1, T4, T7).

What a server says about the effects of its own tools is not believed; the agent definition says it.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable
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
from mcp.types import Tool as RemoteTool

from context.errors import ConfigurationInvalidError
from context.policy import Effect, FrozenTool, ToolEntry
from tools.errors import ToolUnavailableError
from tools.mcp_servers import McpServer, McpServers, ServerRefusal
from tools.outcomes import artifact_note, error_outcome, exact_json, text_outcome, without_credentials
from tools.port import Artifact, ToolInvocation, ToolOutcome, wants_key
from tools.schemas import checked_schema
from tools.secrets import ConnectionMissingError, ResolveSecret, secret_of

_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")
_MAX_NAME = 64


async def list_frozen(
    entry: ToolEntry, *, servers: McpServers, resolve_secret: ResolveSecret
) -> tuple[FrozenTool, ...]:
    """The server's allowed tools as frozen into a release, in the server's order.

    Raises ConfigurationInvalidError if the server can't be reached (SPEC B3) or lacks a tool that the entry names.
    """
    try:
        secret = await secret_of(entry, resolve_secret)
        listed = await servers.list_tools(McpServer.of(entry, secret))
    except ConnectionMissingError as error:
        raise ConfigurationInvalidError(f"The MCP server '{entry.name}': {error.message}") from None
    except ToolUnavailableError:
        problem = f"The MCP server '{entry.name}' could not be asked for its tools; check that it starts and answers."
        raise ConfigurationInvalidError(problem) from None
    _refuse_unknown_names(entry, {tool.name for tool in listed})
    return tuple(_frozen(entry, tool) for tool in listed if entry.allow is None or tool.name in entry.allow)


def wire_name(remote_name: str, *, prefix: str = "") -> str:
    """A name that every provider takes: letters, digits, `_` and `-`, at most 64."""
    return _FOREIGN.sub("_", f"{prefix}{remote_name}")[:_MAX_NAME]


def _refuse_unknown_names(entry: ToolEntry, offered: set[str]) -> None:
    named = set(entry.allow or ()) | (set(entry.effect) if isinstance(entry.effect, dict) else set())
    if missing := sorted(named - offered):
        raise ConfigurationInvalidError(
            f"The MCP server '{entry.name}' has no tool '{missing[0]}'; it has: {', '.join(sorted(offered))[:500]}."
        )


def _frozen(entry: ToolEntry, tool: RemoteTool) -> FrozenTool:
    return FrozenTool(
        name=wire_name(tool.name),
        description=tool.description or tool.title or "",
        parameters=checked_schema(tool.input_schema, tool=tool.name),
        kind="mcp",
        entry_name=entry.name,
        remote_name=tool.name,
        effect=_effect(entry, tool.name),
        timeout_s=entry.timeout_s,
        retry_unknown=entry.retry_unknown,
    )


def _effect(entry: ToolEntry, remote_name: str) -> Effect:
    return entry.effect.get(remote_name, "side_effect") if isinstance(entry.effect, dict) else entry.effect


class McpTool:
    """One tool of one server."""

    def __init__(
        self, frozen: FrozenTool, entry: ToolEntry, *, servers: McpServers, resolve_secret: ResolveSecret
    ) -> None:
        self.frozen = frozen
        self._entry = entry
        self._servers = servers
        self._resolve_secret = resolve_secret

    async def run(self, call: ToolInvocation, *, on_progress: Callable[[], None]) -> ToolOutcome:
        try:
            secret = await secret_of(self._entry, self._resolve_secret)
        except ConnectionMissingError as error:
            return error_outcome("ConnectionMissing", error.message)
        answer = await self._servers.call(
            McpServer.of(self._entry, secret),
            self.frozen.remote_name or self.frozen.name,
            call.arguments,
            timeout_s=self.frozen.timeout_s,
            idempotency_key=call.idempotency_key if wants_key(self.frozen) else None,
            on_progress=on_progress,
        )
        return without_credentials(_outcome(answer, call), secret)


def _outcome(answer: CallToolResult | ServerRefusal, call: ToolInvocation) -> ToolOutcome:
    if isinstance(answer, ServerRefusal):
        return error_outcome("McpError", answer.message, code=answer.code)
    raw = exact_json(answer.model_dump(mode="json", by_alias=True, exclude_none=True))
    artifacts: list[Artifact] = []
    try:
        parts = [_shown(block, artifacts, call) for block in answer.content]
    except binascii.Error:
        return replace(error_outcome("InvalidToolResult", "The tool's binary content is not valid base64."), raw=raw)
    if not parts and answer.structured_content is not None:
        parts = [json.dumps(answer.structured_content, ensure_ascii=False)]
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

"""Tools of MCP servers: schemas frozen at publishing, and calls through the process's connections (SPEC T1, T4).

What a server says about the effects of its own tools is not believed; the agent definition says it. The SDK is
imported by the first call only, not with this module.
"""

import re
from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING

from context.errors import ConfigurationInvalidError
from context.policy import Effect, FrozenTool, ToolEntry
from egress.errors import EgressError
from tools.errors import ToolUnavailableError
from tools.http_answers import HttpAnswer, http_outcome, raise_unless_answered, refused_outcome
from tools.http_fields import check_http_fields
from tools.mcp_access import McpServer, OpenServers
from tools.mcp_refusals import why_unasked
from tools.outcomes import error_outcome, without_credentials
from tools.port import ToolInvocation, ToolOutcome, wants_key
from tools.schemas import checked_schema
from tools.secrets import ConnectionMissingError, ResolveSecret, secret_of

if TYPE_CHECKING:
    from mcp.types import CallToolResult
    from mcp.types import Tool as RemoteTool

    from tools.mcp_servers import McpServers, ServerRefusal

_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")
_MAX_NAME = 64
_MARK = 6


async def list_frozen(
    entry: ToolEntry, *, open_servers: OpenServers, resolve_secret: ResolveSecret
) -> tuple[FrozenTool, ...]:
    """The server's allowed tools as frozen into a release, in the server's order.

    Raises ConfigurationInvalidError if the server can't be reached or used (SPEC B3), or lacks a tool that the entry
    names.
    """
    if entry.url is not None:
        check_http_fields(entry)
    try:
        secret = await secret_of(entry, resolve_secret)
        listed = await (await open_servers()).list_tools(McpServer.of(entry, secret), timeout_s=entry.timeout_s)
        _refuse_unknown_names(entry, {tool.name for tool in listed})
        return tuple(_frozen(entry, tool) for tool in listed if entry.allow is None or tool.name in entry.allow)
    except (ConnectionMissingError, EgressError, ConfigurationInvalidError) as error:
        raise ConfigurationInvalidError(f"The MCP server '{entry.name}': {error.message}") from None
    except ToolUnavailableError as error:
        raise ConfigurationInvalidError(f"The MCP server '{entry.name}' {why_unasked(error, entry)}") from None


def wire_name(remote_name: str, *, prefix: str = "") -> str:
    """A name that every provider takes: letters, digits, `_` and `-`, at most 64."""
    return _FOREIGN.sub("_", f"{prefix}{remote_name}")[:_MAX_NAME]


def marked_name(name: str, remote_name: str) -> str:
    """The name with a mark that is the remote name's own, if that lost something in it."""
    if name.endswith(remote_name):
        return name
    mark = sha256(remote_name.encode(errors="surrogatepass")).hexdigest()[:_MARK]
    return f"{name[: _MAX_NAME - _MARK - 1]}_{mark}"


def _refuse_unknown_names(entry: ToolEntry, offered: set[str]) -> None:
    named = set(entry.allow or ()) | (set(entry.effect) if isinstance(entry.effect, dict) else set())
    if missing := sorted(named - offered):
        raise ConfigurationInvalidError(f"There is no tool '{missing[0]}'; it has: {', '.join(sorted(offered))[:500]}.")


def _frozen(entry: ToolEntry, tool: "RemoteTool") -> FrozenTool:
    if not tool.name:
        raise ConfigurationInvalidError("It lists a tool without a name, which nobody could call; mend the server.")
    return FrozenTool(
        name=wire_name(tool.name),
        description=tool.description or tool.title or "",
        parameters=checked_schema(tool.input_schema, tool=tool.name, declared=False),
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
        self, frozen: FrozenTool, entry: ToolEntry, *, open_servers: OpenServers, resolve_secret: ResolveSecret
    ) -> None:
        self.frozen = frozen
        self._entry = entry
        self._open_servers = open_servers
        self._resolve_secret = resolve_secret

    async def run(self, call: ToolInvocation, *, on_progress: Callable[[], None]) -> ToolOutcome:
        try:
            with call.delivery.preparing():
                secret = await secret_of(self._entry, self._resolve_secret)
                servers = await self._open_servers()
                answer = await self._asked(servers, secret, call, on_progress)
        except ConnectionMissingError as error:
            return error_outcome("ConnectionMissing", error.message)
        except EgressError as error:
            return refused_outcome(error)
        if isinstance(answer, HttpAnswer):
            outcome = without_credentials(http_outcome(answer, call), secret)
            raise_unless_answered(self.frozen, answer, outcome)
            return outcome
        from tools.mcp_answers import outcome_of

        return without_credentials(outcome_of(answer, call), secret)

    async def _asked(
        self, servers: "McpServers", secret: str | None, call: ToolInvocation, on_progress: Callable[[], None]
    ) -> "CallToolResult | ServerRefusal | HttpAnswer":
        return await servers.call(
            McpServer.of(self._entry, secret),
            self.frozen.remote_name or self.frozen.name,
            call.arguments,
            timeout_s=self.frozen.timeout_s,
            idempotency_key=call.idempotency_key if wants_key(self.frozen) else None,
            delivery=call.delivery,
            on_progress=on_progress,
        )

"""The tools of a release: frozen once when it is published, and put together for calling from what was frozen.

A release never changes, so a box is built once per release and process. What a tool needs (clients, servers, backends,
secrets) is given by whoever wires.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import httpx

from context.budget import plan_budget
from context.errors import ConfigurationInvalidError
from context.policy import AgentDefinition, FrozenTool, Release, ToolEntry
from tools.builtin import Backends, BuiltinTool, freeze_builtin, has_backend
from tools.describing import Descriptions, PythonDescription
from tools.http import HttpTool, freeze_http
from tools.mcp import McpTool, list_frozen, marked_name, wire_name
from tools.mcp_access import OpenServers
from tools.outcomes import error_outcome
from tools.port import Tool, ToolInvocation, ToolOutcome
from tools.python import PythonTool, freeze_python
from tools.secrets import ResolveSecret

_DESCRIBED = Descriptions()  # of this process, as the files are
_PAGES_AT_ONCE = 3  # that `result_read` gives and the input budget holds; a result just come is never left out of it
_RESULT_READ = ToolEntry(kind="builtin", name="result_read")


@dataclass(frozen=True)
class Adapters:
    """What tools of every kind reach the world with; one per process."""

    http: httpx.AsyncClient
    open_servers: OpenServers
    backends: Backends


async def freeze_tools(
    definition: AgentDefinition, *, open_servers: OpenServers, resolve_secret: ResolveSecret
) -> tuple[FrozenTool, ...]:
    """The callable tools of a definition, in its order, with `result_read` behind them if there are any (SPEC T1, T5).

    Has Python modules imported elsewhere and asks MCP servers; nothing else leaves the process. Raises
    ConfigurationInvalidError.
    """
    described = await _DESCRIBED.of([entry.entry or "" for entry in definition.tools if entry.kind == "python"])
    frozen: list[FrozenTool] = []
    for entry in definition.tools:
        frozen += await _frozen(entry, described, open_servers, resolve_secret)
    if frozen and not any(tool.kind == "builtin" and tool.name == "result_read" for tool in frozen):
        frozen.append(freeze_builtin(_RESULT_READ))
    return tuple(_with_unique_names(frozen))


async def _frozen(
    entry: ToolEntry,
    described: Mapping[str, PythonDescription],
    open_servers: OpenServers,
    resolve_secret: ResolveSecret,
) -> Sequence[FrozenTool]:
    match entry.kind:
        case "builtin":
            return [freeze_builtin(entry)]
        case "http":
            return [await asyncio.to_thread(freeze_http, entry)]  # a schema may take seconds to check
        case "python":
            return [await asyncio.to_thread(freeze_python, entry, described[entry.entry or ""])]
        case "mcp":
            return await list_frozen(entry, open_servers=open_servers, resolve_secret=resolve_secret)


def _with_unique_names(tools: Sequence[FrozenTool]) -> list[FrozenTool]:
    """MCP tools keep the server's names; where two tools share one, the servers' get their entry's name in front.

    Names that meet only because of what providers refuse in them, such as two in Chinese, get a mark behind.
    """
    named = _told_apart(_told_apart(tools, _prefixed), _marked)
    if twice := [name for name, count in Counter(tool.name for tool in named).items() if count > 1]:
        raise ConfigurationInvalidError(f"Two tools would be called '{twice[0]}'; leave one out or rename its entry.")
    return named


def _told_apart(tools: Sequence[FrozenTool], renamed: Callable[[FrozenTool], FrozenTool]) -> list[FrozenTool]:
    counts = Counter(tool.name for tool in tools)
    return [renamed(tool) if counts[tool.name] > 1 and tool.kind == "mcp" else tool for tool in tools]


def _prefixed(tool: FrozenTool) -> FrozenTool:
    return tool.model_copy(update={"name": wire_name(tool.remote_name or tool.name, prefix=f"{tool.entry_name}_")})


def _marked(tool: FrozenTool) -> FrozenTool:
    return tool.model_copy(update={"name": marked_name(tool.name, tool.remote_name or tool.name)})


class ToolBox:
    """The tools of one release, by name."""

    def __init__(self, release: Release, *, adapters: Adapters, resolve_secret: ResolveSecret) -> None:
        self.frozen = release.tools
        page_bytes = plan_budget(release).input_limit // _PAGES_AT_ONCE
        entries = {entry.name: entry for entry in release.definition.tools}
        self._tools: dict[str, Tool] = {}
        for tool in release.tools:
            entry = entries.get(tool.entry_name, _RESULT_READ)
            self._tools[tool.name] = _tool(tool, entry, adapters, resolve_secret, page_bytes)

    def get(self, name: str) -> Tool | None:
        """The tool of that name, or None if the release has none; never fails."""
        return self._tools.get(name)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tools)


class ToolBoxes:
    """The boxes of the releases that this process has worked for, newest last, a bounded number of them."""

    def __init__(self, adapters: Adapters, *, capacity: int = 256) -> None:
        self._adapters = adapters
        self._capacity = capacity
        self._boxes: OrderedDict[UUID, ToolBox] = OrderedDict()

    def box(self, release_id: UUID, release: Release, *, resolve_secret: ResolveSecret) -> ToolBox:
        """The box of the release; `resolve_secret` must look where that release's connections are kept."""
        box = self._boxes.get(release_id)
        if box is None:
            box = ToolBox(release, adapters=self._adapters, resolve_secret=resolve_secret)
            self._boxes[release_id] = box
        self._boxes.move_to_end(release_id)
        if len(self._boxes) > self._capacity:
            self._boxes.popitem(last=False)
        return box


class MissingTool:
    """A tool that a release froze and this version no longer has; calling it is answered, not failed."""

    def __init__(self, frozen: FrozenTool) -> None:
        self.frozen = frozen

    async def run(self, call: ToolInvocation, *, on_progress: Callable[[], None]) -> ToolOutcome:
        return error_outcome("ToolMissing", f"The tool '{self.frozen.name}' is no longer available.")


def _tool(
    frozen: FrozenTool, entry: ToolEntry, adapters: Adapters, resolve_secret: ResolveSecret, page_bytes: int
) -> Tool:
    match frozen.kind:
        case "builtin" if has_backend(frozen):
            return BuiltinTool(frozen, adapters.backends, page_bytes=page_bytes)
        case "builtin":
            return MissingTool(frozen)
        case "python":
            return PythonTool(frozen, entry)
        case "http":
            return HttpTool(frozen, entry, client=adapters.http, resolve_secret=resolve_secret)
        case "mcp":
            return McpTool(frozen, entry, open_servers=adapters.open_servers, resolve_secret=resolve_secret)

"""Which fields a tool of each kind may have: one that would be ignored is refused by name at publishing (SPEC T1, E).

A stored release is not looked at: what an older version let through goes on without effect, as it did.
"""

from context.errors import ConfigurationInvalidError
from context.policy import AgentDefinition, ToolEntry

_ALL = frozenset({"kind", "name", "timeout_s"})
_EFFECT = frozenset({"effect", "retry_unknown"})
_HTTP = frozenset({"url", "headers", "connection"})
_OWN: dict[str, frozenset[str]] = {
    "builtin": _ALL | {"description", "effect"},
    "python": _ALL | _EFFECT | {"entry", "description", "schema_"},
    "http": _ALL | _EFFECT | _HTTP | {"description", "schema_"},
    "mcp over HTTP": _ALL | _EFFECT | _HTTP | {"allow"},
    "mcp by command": _ALL | _EFFECT | {"command", "allow"},
}
_WRITTEN = {"schema_": "schema"}


def check_tool_fields(definition: AgentDefinition) -> None:
    """Raises ConfigurationInvalidError, naming tool and key, if a field of a tool would have no effect."""
    for place, entry in enumerate(definition.tools):
        if problem := _problem(entry):
            field, words = problem
            key = f"tools.{place}.{_WRITTEN.get(field, field)}"
            raise ConfigurationInvalidError(f"{key}: {words}.", key=key)


def _problem(entry: ToolEntry) -> tuple[str, str] | None:
    """The first field that is out of place, and why."""
    if entry.kind == "mcp" and entry.url is not None and entry.command is not None:
        return "command", f"the MCP server '{entry.name}' has a url too; leave one of them out"
    kind = _kind(entry)
    foreign = [field for field in _given(entry) if field not in _OWN[kind]]
    if not foreign:
        return None
    if kind == "mcp by command" and foreign[0] in _HTTP:
        return foreign[
            0
        ], f"the MCP server '{entry.name}' is started by command, which is sent no headers and no secret"
    return foreign[0], f"the tool '{entry.name}' is of kind {entry.kind}, where this has no effect; leave it out"


def _kind(entry: ToolEntry) -> str:
    if entry.kind != "mcp":
        return entry.kind
    return "mcp over HTTP" if entry.url is not None else "mcp by command"


def _given(entry: ToolEntry) -> list[str]:
    """The fields that say something: one that is written out with its default says nothing."""
    fields = type(entry).model_fields.items()
    return [name for name, field in fields if getattr(entry, name) != field.get_default(call_default_factory=True)]

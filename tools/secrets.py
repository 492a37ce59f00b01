"""The secrets that tools are called with: asked for at each call, so that a new key counts at once."""

from collections.abc import Awaitable, Callable

from context.errors import AgentLoomError
from context.policy import ToolEntry

ResolveSecret = Callable[[str], Awaitable[str | None]]
"""From the name of a stored connection to its secret, or None if there is none of that name."""


class ConnectionMissingError(AgentLoomError):
    """The agent definition names a stored connection that is not there."""

    code = "CONFIGURATION_INVALID"
    sentence = "The stored connection it names does not exist."


async def secret_of(entry: ToolEntry, resolve_secret: ResolveSecret) -> str | None:
    """The secret that the entry is sent with; None if it needs none. Raises ConnectionMissingError."""
    if entry.connection is None:
        return None
    secret = await resolve_secret(entry.connection)
    if secret is None:
        raise ConnectionMissingError(f"There is no stored connection '{entry.connection}'.")
    return secret

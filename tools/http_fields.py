"""What can't be sent as an HTTP request is refused at publishing, with its field named (SPEC E).

Pure. Which characters a header may have is seen by the definition itself; here is what needs the whole entry. A stored
release is not looked at again: what an older version let through fails at the call, with nothing sent.
"""

import re

import httpx

from context.errors import ConfigurationInvalidError
from context.policy import ToolEntry

_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_LONGEST_HOST = 253
_OURS = frozenset({
    "accept-encoding", "connection", "content-length", "content-type", "expect", "host", "idempotency-key",
    "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
})  # fmt: skip
_OURS_FOR_MCP = frozenset({"accept", "last-event-id", "mcp-protocol-version", "mcp-session-id"})


def check_http_fields(entry: ToolEntry) -> None:
    """Raises ConfigurationInvalidError if the entry's `url` or `headers` can't be sent as they are."""
    if problem := _url_problem(entry.url or ""):
        raise ConfigurationInvalidError(f"The url of the tool '{entry.name}' {problem}.")
    for name in entry.headers:
        if problem := _header_problem(entry, name):
            raise ConfigurationInvalidError(f"The headers of the tool '{entry.name}': '{name}' {problem}.")


def _url_problem(text: str) -> str | None:
    if not text.lower().startswith(("http://", "https://")):
        return "must begin with http:// or https://"
    if any(ord(one) <= ord(" ") or one in "{}\\" for one in text):
        return "may hold no space, control character, backslash or brace; it is no template, arguments go in the body"
    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, ValueError):
        return "is not a valid address"
    if url.userinfo:
        return "may hold no user name or password; use `connection` for a secret"
    if url.fragment or text.endswith("#"):
        return "may not end in a fragment (#…), which is never sent"
    return _place_problem(url)


def _place_problem(url: httpx.URL) -> str | None:
    host = url.raw_host.decode("ascii")
    # An IPv6 address was checked by the parser.
    if ":" not in host and not (len(host) <= _LONGEST_HOST and all(map(_LABEL.fullmatch, host.split(".")))):
        return "has no valid host name"
    if url.port is not None and not 0 < url.port < 65_536:
        return "has no valid port"
    return None


def _header_problem(entry: ToolEntry, name: str) -> str | None:
    if name.lower() in (_OURS | _OURS_FOR_MCP if entry.kind == "mcp" else _OURS):
        return "is set by AgentLoom itself"
    if name.lower() == "authorization" and entry.connection is not None:
        return "is set from `connection`"
    if sum(other.lower() == name.lower() for other in entry.headers) > 1:
        return "is there twice"
    return None

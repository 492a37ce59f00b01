"""Which texts are addresses of an API: judged where a person gives one, before it is stored or frozen (SPEC Y5, L6)."""

from urllib.parse import SplitResult, urlsplit

ADDRESS = r"^https?://[!-~]+$"
NOT_AN_ADDRESS = "must be an http or https address without user, query, fragment, blanks or control characters"


def is_api_address(url: str) -> bool:
    """Whether an API can stand there. A user or a query would be a place for a secret that everybody is shown."""
    if not (url.isascii() and url.isprintable()) or " " in url or "?" in url or "#" in url:
        return False  # checked before, since urlsplit drops line breaks
    try:
        parts = urlsplit(url)
        is_port = parts.port != 0
    except ValueError:
        return False
    return is_port and parts.scheme in ("http", "https") and "@" not in parts.netloc and _is_host(parts)


def _is_host(parts: SplitResult) -> bool:
    """Whether some name server could know it, or it is an IPv6 address."""
    host = parts.hostname or ""
    return ":" in host or all(0 < len(label) < 64 for label in host.removesuffix(".").split("."))

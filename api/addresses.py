"""Which texts are addresses of an API: judged where a person gives one, before it is stored or frozen (SPEC Y5, L6)."""

from urllib.parse import urlsplit

NOT_AN_ADDRESS = "must be an http or https address without user, query, fragment, blanks or control characters"


def is_api_address(url: str) -> bool:
    """Whether an API can stand there. A user or a query would be a place for a secret that everybody is shown."""
    if not (url.isascii() and url.isprintable()) or " " in url:
        return False  # checked before, since urlsplit drops line breaks
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    stray = parts.username is not None or parts.password is not None or "?" in url or "#" in url
    return parts.scheme in ("http", "https") and bool(parts.hostname) and not stray and port != 0

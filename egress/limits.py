"""How long and how large an outbound call may be (SPEC Y4), as one frozen value."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EgressLimits:
    """Seconds and bytes. `read_s` is the longest silence between two pieces of an answer, not its whole duration."""

    connect_s: float = 10
    read_s: float = 300
    write_s: float = 60
    pool_s: float = 30
    max_answer_bytes: int = 64 << 20
    max_connections: int = 200


REDIRECTS = frozenset({301, 302, 303, 307, 308})
"""Statuses that ask to go elsewhere; the guard never does."""


def has_readable_encoding(content_encoding: str | None) -> bool:
    """Whether an answer comes uncompressed, so that counting its bytes bounds what is kept of it."""
    return (content_encoding or "identity").strip().lower() in ("", "identity")

"""A stored key as the edge that calls a model is given it: for whom it was stored, and the secret itself (SPEC L3)."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

KnownSecrets = Callable[[], Awaitable[frozenset[str]]]
"""Every secret that a release's connections hold, as far as it is known here: none of them may come back unseen."""


@dataclass(frozen=True)
class StoredKey:
    """The key of a stored connection. `secret` is None for a server that needs none; no text form shows it."""

    provider: str
    base_url: str | None
    secret: str | None = field(repr=False)

    def belongs_to(self, provider: str, base_url: str | None, *, official: str | None) -> bool:
        """Whether it was stored for this provider and address; no address is the `official` one."""
        return (self.provider, _plain(self.base_url or official)) == (provider, _plain(base_url or official))


def _plain(base_url: str | None) -> str | None:
    return base_url.rstrip("/") if base_url else None

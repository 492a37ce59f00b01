"""Whose certificates are trusted, and how a refused one is told from a network that failed (SPEC L2).

Trying again mends only the second.
"""

import ssl
from functools import lru_cache

import httpx


@lru_cache(maxsize=1)
def bundled_authorities() -> ssl.SSLContext:
    """The bundled certificate authorities, whatever the environment says. Reading them takes tens of milliseconds."""
    return httpx.create_ssl_context(trust_env=False)


def is_untrusted(error: BaseException) -> bool:
    """Whether a connection failed because of the other side's certificate, by what the network's library raised."""
    origin: BaseException | None = error
    while origin is not None and not isinstance(origin, ssl.SSLCertVerificationError):
        # The pool of httpcore raises "from None", so that only the context is left.
        origin = origin.__cause__ or origin.__context__
    return origin is not None

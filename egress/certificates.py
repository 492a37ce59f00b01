"""Tells a certificate that is not trusted from a network that failed (SPEC L2): trying again mends only the second."""

import ssl


def is_untrusted(error: BaseException) -> bool:
    """Whether a connection failed because of the other side's certificate, by what the network's library raised."""
    origin: BaseException | None = error
    while origin is not None and not isinstance(origin, ssl.SSLCertVerificationError):
        # The pool of httpcore raises "from None", so that only the context is left.
        origin = origin.__cause__ or origin.__context__
    return origin is not None

"""The order and identity of what a RoleContext holds: a hash chain over raw content (SPEC M7)."""

import hashlib

EMPTY_CHAIN = bytes(32)


def next_chain(previous: bytes, context_seq: int, digest: bytes) -> bytes:
    """The chain after one more record: SHA-256 over the chain before it, its place, and its content's SHA-256."""
    return hashlib.sha256(previous + context_seq.to_bytes(8, "big") + digest).digest()

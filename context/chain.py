"""The order and identity of what a RoleContext holds: a hash chain over raw content (SPEC M7)."""

import hashlib
from dataclasses import dataclass

from context.messages import canonical_json

EMPTY_CHAIN = bytes(32)


@dataclass(frozen=True)
class RecordFact:
    """What the chain holds of a record: its places in context and Session, what it is taken for, and its content.

    `digest` is the SHA-256 of the content. What a record only points to is not in it: ids do not survive an export.
    """

    context_seq: int
    seq: int
    kind: str
    role: str
    call_id: str | None
    status: str | None
    digest: bytes


def next_chain(previous: bytes, fact: RecordFact) -> bytes:
    """The chain after one more record: SHA-256 over the chain before it and the record's canonical form (SPEC M7)."""
    form = {
        "call_id": fact.call_id,
        "context_seq": fact.context_seq,
        "kind": fact.kind,
        "role": fact.role,
        "seq": fact.seq,
        "sha256": fact.digest.hex(),
        "status": fact.status,
    }
    return hashlib.sha256(previous + canonical_json(form)).digest()


def follows(chain: bytes, previous: bytes, fact: RecordFact) -> bool:
    """Whether this is the chain after the record, in the form of today or in the one before it (SPEC M7).

    Both stay: a chain goes on from what an earlier version wrote. Whoever can make an older link can make a newer one.
    """
    return chain in (next_chain(previous, fact), _first_form(previous, fact))


def _first_form(previous: bytes, fact: RecordFact) -> bytes:
    """The form that knew place and content only."""
    return hashlib.sha256(previous + fact.context_seq.to_bytes(8, "big") + fact.digest).digest()

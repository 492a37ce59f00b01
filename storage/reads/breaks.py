"""What a check of a session can find: one thing that is not as it should be (SPEC M7)."""

from dataclasses import dataclass
from typing import Literal

BreakKind = Literal[
    "content", "chain", "order", "record", "revision", "input", "coverage", "view", "doubled", "request"
]


@dataclass(frozen=True)
class Break:
    """One thing that is not as it should be, by name and place.

    `content`: what is stored is not what its id, size and digest say, or gone. `chain`: a record is not what the hash
    chain of its context says, or one is missing at this `context_seq`. `order`: the session's own sequence has a gap or
    disagrees. `record`: a record does not fit its message, or a request shows it in other words. `revision`: a revision
    is missing or disagrees with the records. `input`: one is missing, or shown in other words. `coverage`: a summary
    does not cover what it says. `view`: a saved view has lost items, or claims what its Run could not see. `doubled`: a
    request shows a piece twice. `request`: the one that was sent can't be rebuilt.
    """

    kind: BreakKind
    subject: str
    place: int | None = None

"""What a check of a session can find: one thing that is not as it should be (SPEC M7)."""

from dataclasses import dataclass
from typing import Literal

BreakKind = Literal[
    "content",
    "chain",
    "order",
    "record",
    "revision",
    "input",
    "coverage",
    "view",
    "doubled",
    "request",
    "run",
    "operation",
]


@dataclass(frozen=True)
class Break:
    """One thing that is not as it should be, by name and place.

    `content`: what is stored is not what its id, size and digest say, or gone. `chain`: a record is not what the hash
    chain of its context says, one is missing at this `context_seq`, or the end of a Run named another link. `order`:
    the session's own sequence has a gap or disagrees. `record`: a record does not fit its message, what it came from,
    or a request that shows it. `revision`: a revision is missing or disagrees with the records. `input`: one is
    missing, shown in other words, or not delivered as its row says. `coverage`: a summary does not cover what it says,
    a compaction is not what its events say, or triggers count from another place than the last one reached. `view`: a
    list has lost items or shows another thing than it names, a saved one claims what its Run could not see, or another
    summary is said to be in use. `doubled`: a request shows a piece twice. `request`: the one that was sent can't be
    rebuilt. `run`: its number, end or answer is not what events, inputs and calls say. `operation`: a call is not what
    batch, event or record say.
    """

    kind: BreakKind
    subject: str
    place: int | None = None

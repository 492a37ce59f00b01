"""Which part of a Session a Run's view may stand for when later Runs go on from it (SPEC P2).

Only what the view really observed counts: a view that would have to claim records it never saw is not saved, and the
next Run projects the Session anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Seen:
    """What a root role's view knew of its Session when its Run ended; places are session `seq`.

    `observed` is the highest place of earlier records at its first request, `last` that of its own newest record.
    `foreign` are the places of root records of other Runs beyond `observed`. `unsettled` counts calls without a stored
    outcome, `queued` inputs that wait in the Session.
    """

    observed: int
    last: int
    foreign: Sequence[int] = ()
    unsettled: int = 0
    queued: int = 0


@dataclass(frozen=True)
class Claim:
    """The view stands for all root records up to this place."""

    through_seq: int


@dataclass(frozen=True)
class NoClaim:
    """The view is not saved."""

    reason: Literal["foreign_records", "unsettled_tools", "queued_inputs"]


def claim(seen: Seen) -> Claim | NoClaim:
    """What a view may claim at the end of its Run."""
    if any(seen.observed < place <= seen.last for place in seen.foreign):
        return NoClaim("foreign_records")
    if seen.unsettled:
        return NoClaim("unsettled_tools")
    return NoClaim("queued_inputs") if seen.queued else Claim(max(seen.observed, seen.last))


@dataclass(frozen=True)
class SavedView:
    """A claim that was saved: of which Run, up to which place, with how many items."""

    run_no: int
    through_seq: int
    length: int


def best_view(views: Sequence[SavedView], *, before_run: int, unseen: Sequence[int]) -> SavedView | None:
    """The saved view that Run `before_run` goes on from: the one that reaches farthest, or None.

    A Run sees only earlier ones (SPEC S9). `unseen` are places of records that no earlier view knew in their present
    form or that this Run may not see; a view that reaches beyond one of them is of no use.
    """
    first_unseen = min(unseen, default=None)
    usable = [
        one for one in views if one.run_no < before_run and (first_unseen is None or one.through_seq < first_unseen)
    ]
    return max(usable, key=lambda one: (one.through_seq, one.run_no), default=None)

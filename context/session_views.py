"""Which part of a Session a Run's view may stand for when later Runs go on from it (SPEC P2).

Only what the view really observed counts: a view that would have to claim records it never saw is not saved, and the
next Run goes on from an earlier view, or projects the Session anew.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from typing import Literal
from uuid import UUID

from context.history import Fact, Own, PastRun, project
from context.material import piece_of
from context.views import ViewItem


@dataclass(frozen=True)
class Seen:
    """What a root role's view knew of its Session when its Run ended; places are session `seq`.

    `observed` is the highest place of earlier records at its first request, `last` that of its own newest record.
    `foreign` are places of root records of other Runs beyond `observed`. `unsettled` counts batches of calls whose
    results no request carried, `queued` inputs that wait in the Session.
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


def observed(head: int, first_of_later_runs: int | None) -> int:
    """How far a Run sees its Session at its first request: to the head, but not past a Run that came later (SPEC S9).

    There are later ones if it was stopped before its first request and is resumed now.
    """
    return head if first_of_later_runs is None else min(head, first_of_later_runs - 1)


@dataclass(frozen=True)
class SavedView:
    """A claim that was saved: of which Run, up to which place, with how many items.

    `outdated`: something it shows has another version by now.
    """

    run_no: int
    through_seq: int
    length: int
    outdated: bool = False


def best_view(views: Sequence[SavedView], *, before_run: int) -> SavedView | None:
    """The saved view that Run `before_run` goes on from: the one that reaches farthest, or None.

    A Run sees only earlier ones (SPEC S9), and nothing in a version that no longer is (SPEC P5).
    """
    usable = [one for one in views if one.run_no < before_run and not one.outdated]
    return max(usable, key=lambda one: (one.through_seq, one.run_no), default=None)


def inherited(items: Sequence[ViewItem], run_no: int) -> tuple[ViewItem, ...]:
    """The items of Run `run_no`'s view as a later Run begins with them; the system message is each Run's own.

    What was that Run's own now comes from an earlier one, and its inputs are no longer protected (SPEC A2).
    """
    rest = (item for item in items if item.kind != "system")
    return tuple(replace(item, run_no=run_no) if _is_own(item) else item for item in rest)


def following(runs: Sequence[PastRun], *, saved_by: int, hidden: frozenset[UUID]) -> tuple[Fact, ...]:
    """What follows a view: the rest of the Run that saved it, then the rest of the others, each with its end.

    `runs` hold only records beyond the view. `hidden` are inputs whose text stands elsewhere or nowhere.
    """
    ordered = sorted(runs, key=lambda run: (run.run_no != saved_by, run.run_no))
    return project(ordered, recent=len(ordered), shown_elsewhere=hidden)


def not_shown(facts: Sequence[Fact], shown: Set[str]) -> tuple[Fact, ...]:
    """The facts that a view does not show yet, by their pieces: inputs of resumed Runs, ends that it knew."""
    return tuple(fact for fact in facts if piece_of_fact(fact) not in shown)


def piece_of_fact(fact: Fact) -> str:
    """The lasting name of what a fact shows; see `piece_of`."""
    revision = fact.revision if isinstance(fact, Own) else None
    return piece_of(ViewItem(fact.kind, b"", 0, fact.source_id, fact.run_no, revision))


def _is_own(item: ViewItem) -> bool:
    return item.run_no is None and item.kind != "summary"

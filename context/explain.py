"""Why a piece was or was not in a request, and what two requests have in common (SPEC A10).

Answers come from what was stored when the request was made: its items, cutoff and watermark, the coverage of its
summary, and what its manifest says was left out. Names and numbers only.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Literal
from uuid import UUID

from context.material import piece_of
from context.views import ViewItem

Rule = Literal[
    "private_to_executor",
    "other_session",
    "later_run",
    "older_run_outline",
    "shown_elsewhere",
    "incomplete_answer",
    "withdrawn",
    "later_block",
    "not_summarised",
    "not_in_history",
]


@dataclass(frozen=True)
class Subject:
    """The piece that is asked about, and where it comes from. `session_seq` is its place in its Session if a record.

    `context_id` and `context_seq` place a record, `input_seq` an input; `withheld_by` is the hook that kept it from the
    model. `is_private` is true for records of an executor's context, `is_fragment` for an incomplete answer.
    """

    piece: str
    run_no: int
    context_id: UUID | None = None
    context_seq: int | None = None
    session_seq: int | None = None
    input_seq: int | None = None
    withheld_by: str | None = None
    is_private: bool = False
    is_fragment: bool = False
    is_withdrawn: bool = False
    same_session: bool = True


@dataclass(frozen=True)
class ExplainedRequest:
    """What is known of a request: its items in order, and what bounded it.

    `run_no` and `context_id` say whose it is, `cutoff` is the highest `input_seq` it could contain, `watermark` the
    newest record of its own context then, `observed` the place up to which its Run's history knew of earlier Runs.
    `snapshots` holds the pieces that each summary among the items stands for, `omitted` the pieces left out for budget,
    `recent_from` the first earlier Run shown whole (None: all are).
    """

    items: Sequence[ViewItem]
    run_no: int
    context_id: UUID
    cutoff: int
    watermark: int
    snapshots: Mapping[UUID, Set[str]] = field(default_factory=dict)
    omitted: frozenset[str] = frozenset()
    recent_from: int | None = None
    observed: int | None = None


@dataclass(frozen=True)
class ExplainedBlock:
    """What is known of a compaction's call beside that: its block, and what the other blocks hold.

    `shown` are the pieces of its block, and whether each is in it as a whole; the message at `position` holds them and
    the summary so far. That stands for `folded`, the pieces of the summary `folds`, and for those `before`.
    """

    shown: Mapping[str, bool]
    before: Set[str]
    later: Set[str]
    summary: UUID
    position: int
    folds: UUID | None = None
    folded: Set[str] = frozenset()


@dataclass(frozen=True)
class Included:
    """It stands at this position; `transform` says if it was shown in another form than stored."""

    position: int
    transform: str | None


@dataclass(frozen=True)
class ReplacedBySummary:
    """The summary of this snapshot, at this position, stands for it."""

    snapshot_id: UUID
    position: int


@dataclass(frozen=True)
class LeftOutByRule:
    """The projection leaves it out."""

    rule: Rule


@dataclass(frozen=True)
class LeftOutForBudget:
    """There was no room for it."""


@dataclass(frozen=True)
class NotYetArrived:
    """It came after the request's cutoff (`limit`, an `input_seq`, a `context_seq`, or for earlier Runs a `seq`)."""

    limit: int


@dataclass(frozen=True)
class Withheld:
    """A hook kept it from the model."""

    hook: str


Explanation = Included | ReplacedBySummary | LeftOutByRule | LeftOutForBudget | NotYetArrived | Withheld


def explain(subject: Subject, request: ExplainedRequest) -> Explanation:
    """Which of the six it was. What is in the request is said first, whatever else may be true of it."""
    return (
        _included(subject, request)
        or _replaced(subject, request)
        or _late(subject, request)
        or _withheld(subject)
        or (LeftOutForBudget() if subject.piece in request.omitted else None)
        or LeftOutByRule(_rule(subject, request))
    )


def explain_block(subject: Subject, block: ExplainedBlock, request: ExplainedRequest) -> Explanation:
    """The same for a call of a compaction; `request` has no items, since a block is one message of many pieces."""
    if (is_whole := block.shown.get(subject.piece)) is not None:
        return Included(block.position, None if is_whole else "fragment")
    if subject.piece in block.before:
        return ReplacedBySummary(block.summary, block.position)
    if block.folds is not None and subject.piece in block.folded:
        return ReplacedBySummary(block.folds, block.position)
    late, rule = _late(subject, request), _rule(subject, request)
    if late or rule not in ("shown_elsewhere", "older_run_outline", "not_in_history"):
        return late or LeftOutByRule(rule)
    return LeftOutByRule("later_block" if subject.piece in block.later else "not_summarised")


def _included(subject: Subject, request: ExplainedRequest) -> Included | None:
    places = (at for at, item in enumerate(request.items) if piece_of(item) == subject.piece)
    at = next(places, None)
    return None if at is None else Included(at, request.items[at].transform)


def _replaced(subject: Subject, request: ExplainedRequest) -> ReplacedBySummary | None:
    for at, item in enumerate(request.items):
        covered = request.snapshots.get(item.source_id) if item.kind == "summary" and item.source_id else None
        if covered is not None and subject.piece in covered and item.source_id:
            return ReplacedBySummary(item.source_id, at)
    return None


def _late(subject: Subject, request: ExplainedRequest) -> NotYetArrived | None:
    if subject.input_seq is not None and subject.input_seq > request.cutoff and subject.same_session:
        return NotYetArrived(request.cutoff)
    own = subject.context_id == request.context_id
    if own and subject.context_seq is not None and subject.context_seq > request.watermark:
        return NotYetArrived(request.watermark)
    return _resumed_since(subject, request)


def _resumed_since(subject: Subject, request: ExplainedRequest) -> NotYetArrived | None:
    """An earlier Run that was resumed after this one's history was made has records that are newer (SPEC S9)."""
    if request.observed is None or subject.session_seq is None or subject.run_no >= request.run_no:
        return None
    is_later = subject.same_session and subject.session_seq > request.observed
    return NotYetArrived(request.observed) if is_later else None


def _withheld(subject: Subject) -> Withheld | None:
    return Withheld(subject.withheld_by) if subject.withheld_by is not None else None


def _rule(subject: Subject, request: ExplainedRequest) -> Rule:
    """The first rule of the projection that leaves the piece out."""
    older = request.recent_from is not None and subject.run_no < request.recent_from
    rules: tuple[tuple[bool, Rule], ...] = (
        (not subject.same_session, "other_session"),
        (subject.is_withdrawn, "withdrawn"),
        (subject.is_private and subject.context_id != request.context_id, "private_to_executor"),
        (subject.run_no > request.run_no, "later_run"),
        (subject.is_fragment, "incomplete_answer"),
        (subject.piece.startswith("input/"), "shown_elsewhere"),
        (older, "older_run_outline"),
    )
    return next((rule for holds, rule in rules if holds), "not_in_history")


# --- comparing two requests ------------------------------------------------------------------------------------------

Change = Literal["same", "changed", "moved", "added", "removed", "summarised"]


@dataclass(frozen=True)
class DiffLine:
    """One piece in both requests: its position in each (None: not there), and what happened to it.

    `changed`: another version or form. `summarised`: it is gone, and a summary of the other request stands for it.
    """

    piece: str
    change: Change
    left: int | None
    right: int | None


def diff(
    left: Sequence[ViewItem], right: Sequence[ViewItem], *, snapshots: Mapping[UUID, Set[str]] | None = None
) -> tuple[DiffLine, ...]:
    """Two requests item by item, in the order of `right`; what only `left` has stands where it stood there.

    `snapshots` are the pieces that the summaries in `right` stand for. Near linear in the number of items.
    """
    places = {name: at for at, name in enumerate(_names(left))}
    there = {name: at for at, name in enumerate(_names(right))}
    kept = [name for name in there if name in places]
    settled = _in_order([places[name] for name in kept])
    lines = [_line(name, left, right, places.get(name), at, settled) for name, at in there.items()]
    covered = {name for one in (snapshots or {}).values() for name in one}
    gone = [name for name in places if name not in there]
    removed = {
        name: DiffLine(name, "summarised" if name in covered else "removed", places[name], None) for name in gone
    }
    return _woven(lines, removed)


def common_prefix(left: Sequence[ViewItem], right: Sequence[ViewItem]) -> int:
    """How many items both requests begin with, in the same version: what a provider's prompt cache can reuse."""
    pairs = zip(left, right, strict=False)
    return next((at for at, (one, other) in enumerate(pairs) if not _is_same(one, other)), min(len(left), len(right)))


def _names(items: Sequence[ViewItem]) -> list[str]:
    """Pieces made unique: a second item of the same piece gets a number."""
    counts: dict[str, int] = {}
    names = []
    for item in items:
        piece = piece_of(item)
        counts[piece] = counts.get(piece, 0) + 1
        names.append(piece if counts[piece] == 1 else f"{piece}#{counts[piece]}")
    return names


def _line(
    name: str, left: Sequence[ViewItem], right: Sequence[ViewItem], before: int | None, at: int, settled: set[int]
) -> DiffLine:
    if before is None:
        return DiffLine(name, "added", None, at)
    if not _is_same(left[before], right[at]):
        return DiffLine(name, "changed", before, at)
    return DiffLine(name, "same" if before in settled else "moved", before, at)


def _is_same(one: ViewItem, other: ViewItem) -> bool:
    return (one.payload_id, one.kind) == (other.payload_id, other.kind) and piece_of(one) == piece_of(other)


def _in_order(places: Sequence[int]) -> set[int]:
    """The longest rising part of the places: those that stayed in order, while the others have moved."""
    ends: list[int] = []  # the smallest end of a rising part of each length
    before: dict[int, int | None] = {}
    for place in places:
        length = bisect_left(ends, place)
        before[place] = ends[length - 1] if length else None
        ends[length : length + 1] = [place]
    settled: set[int] = set()
    place_of_end = ends[-1] if ends else None
    while place_of_end is not None:
        settled.add(place_of_end)
        place_of_end = before[place_of_end]
    return settled


def _woven(lines: Sequence[DiffLine], removed: Mapping[str, DiffLine]) -> tuple[DiffLine, ...]:
    """The lines of `right`, each removed one before the first line that stood behind it in `left`."""
    waiting = sorted(removed.values(), key=lambda line: line.left or 0)
    woven: list[DiffLine] = []
    for line in lines:
        while waiting and line.change in ("same", "changed") and (waiting[0].left or 0) < (line.left or 0):
            woven.append(waiting.pop(0))
        woven.append(line)
    return (*woven, *waiting)

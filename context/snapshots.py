"""What a summary covers, exactly, and when it may stand for that (SPEC K9, K10, P7).

Coverage is a list of pieces with the version that was read of each; ranges and revisions follow from it. Whether a
snapshot still applies is decided by comparing versions, never by comparing places alone, and it applies as a whole or
not at all.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Literal
from uuid import UUID

from context.compaction import NotSmaller, Shrinks
from context.material import Material
from context.views import ViewItem

_NEVER_COVERED = frozenset({"system", "summary", "state", "reference"})


@dataclass(frozen=True)
class SourceRange:
    """Records `from_seq` to `through_seq` of one context, both included and none between them left out."""

    context_id: UUID
    from_seq: int
    through_seq: int


@dataclass(frozen=True)
class Version:
    """An effective version: the SHA-256 of its content, and the mutations that made it, oldest first."""

    digest: bytes
    mutations: tuple[UUID, ...] = ()


@dataclass(frozen=True)
class Covered:
    """One piece that a summary stands for, in the version that was summarised; see `Material` for the fields."""

    piece: str
    version: Version
    run_no: int
    context_id: UUID | None = None
    context_seq: int | None = None


@dataclass(frozen=True)
class Coverage:
    """Everything that one summary stands for, in view order, and the revision of each context it was read at."""

    pieces: tuple[Covered, ...]
    revisions: Mapping[UUID, int]

    def __contains__(self, piece: object) -> bool:
        return piece in self._versions

    @cached_property
    def _versions(self) -> dict[str, Version]:
        return {covered.piece: covered.version for covered in self.pieces}

    @property
    def names(self) -> Set[str]:
        return self._versions.keys()

    @property
    def ranges(self) -> tuple[SourceRange, ...]:
        """The covered records as ranges, per context in order of its first; what stands between is not covered."""
        places: dict[UUID, list[int]] = {}
        for covered in self.pieces:
            if covered.context_id is not None and covered.context_seq is not None:
                places.setdefault(covered.context_id, []).append(covered.context_seq)
        return tuple(one for context_id, seqs in places.items() for one in _ranges(context_id, seqs))

    @property
    def runs(self) -> frozenset[int]:
        """Numbers of the Runs that anything was taken from."""
        return frozenset(covered.run_no for covered in self.pieces)


def cover(materials: Sequence[Material], revisions: Mapping[UUID, int]) -> Coverage:
    """The coverage of what is summarised, read at these revisions.

    Raises ValueError for what may not be covered: a current input or anything else that is no history (SPEC K5), or one
    piece twice.
    """
    for one in materials:
        if one.item.is_protected or one.item.kind in _NEVER_COVERED:
            raise ValueError(f"a summary can't stand for {one.item.kind}")
    pieces = tuple(
        Covered(one.piece, Version(one.digest, one.mutations), one.run_no, one.context_id, one.context_seq)
        for one in materials
    )
    _check_once(pieces)
    contexts = {covered.context_id for covered in pieces}
    return Coverage(pieces, {context: revision for context, revision in revisions.items() if context in contexts})


@dataclass(frozen=True)
class Extent:
    """How far a coverage reaches, without its pieces: what is told of a snapshot, and enough to extend it."""

    ranges: tuple[SourceRange, ...]
    revisions: Mapping[UUID, int]
    runs: frozenset[int]
    pieces: int


def extent_of(coverage: Coverage) -> Extent:
    """The extent of pieces that are at hand."""
    return Extent(coverage.ranges, coverage.revisions, coverage.runs, len(coverage.pieces))


def extended(older: Extent, newer: Coverage) -> Extent:
    """The extent of a summary made from an earlier one and what followed it; the two have no piece in common.

    The newer revisions stand, since the older pieces are compared again at the same moment (SPEC K9).
    """
    places: dict[UUID, list[SourceRange]] = {}
    for one in (*older.ranges, *newer.ranges):
        places.setdefault(one.context_id, []).append(one)
    ranges = tuple(joined for of_context in places.values() for joined in _joined(of_context))
    revisions = {**older.revisions, **newer.revisions}
    return Extent(ranges, revisions, older.runs | newer.runs, older.pieces + len(newer.pieces))


# --- validity --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Applies:
    """Every covered piece still has the version that was summarised."""


@dataclass(frozen=True)
class Outdated:
    """These pieces have changed or are gone; the snapshot stops applying as a whole."""

    pieces: tuple[str, ...]


def check(coverage: Coverage, current: Mapping[str, Version]) -> Applies | Outdated:
    """Compare all covered versions with the effective ones of now. A piece that is not in `current` is gone."""
    changed = tuple(one.piece for one in coverage.pieces if current.get(one.piece) != one.version)
    return Outdated(changed) if changed else Applies()


# --- publishing ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Publish:
    """The snapshot becomes the active one of its context."""


@dataclass(frozen=True)
class StoreOnly:
    """The summary is kept and not used; the originals are unfolded again (SPEC K8, K9)."""

    reason: Literal["not_smaller", "sources_changed", "another_snapshot"]


def publication(
    size: Shrinks | NotSmaller, validity: Applies | Outdated, *, active: UUID | None, expected: UUID | None
) -> Publish | StoreOnly:
    """What happens to a finished summary, under the lock of its context.

    `expected` is the active snapshot the episode started from, `active` the one of now.
    """
    if active != expected:
        return StoreOnly("another_snapshot")
    if isinstance(validity, Outdated):
        return StoreOnly("sources_changed")
    return StoreOnly("not_smaller") if isinstance(size, NotSmaller) else Publish()


# --- use in other Runs -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Candidate:
    """A published snapshot that a new Run might begin with: the Runs it stands for, its size, whether it applies."""

    snapshot_id: UUID
    runs: frozenset[int]
    pieces: int
    validity: Applies | Outdated


def reusable(candidates: Sequence[Candidate], *, older_runs: Set[int]) -> Candidate | None:
    """The snapshot that stands for most, of those that lie wholly in the older part and still apply (SPEC P7, P2).

    `older_runs` are the Runs that the new one does not show whole: all but the last N with `recent_runs`, all that it
    may see with `session_view`. Of equals, the later in the list is taken.
    """
    fitting = [one for one in candidates if one.runs <= older_runs and isinstance(one.validity, Applies)]
    return max(reversed(fitting), key=lambda one: one.pieces, default=None)


# --- every version once ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SummaryChains:
    """Which summaries add which pieces to what they stand for, and which one was folded into each; all by their names.

    What a summary stands for is what it adds and what those behind it add, so that no piece is named twice.
    """

    adding: Mapping[str, Set[str]]
    folded: Mapping[str, str | None]

    def behind(self, summary: str) -> tuple[str, ...]:
        """The summary, the one folded into it, and so on; a ring of them ends where it began."""
        found: dict[str, None] = {}
        one: str | None = summary
        while one is not None and one not in found:
            found[one] = None
            one = self.folded.get(one)
        return tuple(found)


def doubled(pieces: Sequence[str | None], chains: SummaryChains) -> tuple[tuple[int, str], ...]:
    """The places at which a list shows a piece again, twice as itself or beside a summary of it; None is no piece.

    A list that ends before such a place does not show that piece again, so one look tells of each beginning of it.
    """
    shown: set[str] = set()
    summed: frozenset[str] = frozenset()
    twice: list[tuple[int, str]] = []
    for at, piece in enumerate(pieces):
        if piece is None:
            continue
        if piece in shown or not summed.isdisjoint(chains.adding.get(piece, ())):
            twice.append((at, piece))
        shown.add(piece)
        if piece in chains.folded:
            behind = frozenset(chains.behind(piece))
            twice += [(at, one) for one in _again(behind, shown, summed, chains)]
            summed |= behind
    return tuple(twice)


def _again(behind: Set[str], shown: Set[str], summed: Set[str], chains: SummaryChains) -> list[str]:
    """What these summaries stand for and the list has shown before; only for a second one all is looked through."""
    stood_for = chains.adding.items() if summed else ((one, chains.adding.get(one, set())) for one in shown)
    return [one for one, by in stood_for if not behind.isdisjoint(by) and (one in shown or not summed.isdisjoint(by))]


def summary_item(snapshot_id: UUID, payload_id: bytes, tokens: int) -> ViewItem:
    """The snapshot's message in a view."""
    return ViewItem("summary", payload_id, tokens, snapshot_id, transform="history_compaction")


def _joined(ranges: Sequence[SourceRange]) -> list[SourceRange]:
    """Ranges of one context in order, those that meet as one."""
    joined: list[SourceRange] = []
    for one in sorted(ranges, key=lambda one: one.from_seq):
        if joined and joined[-1].through_seq + 1 == one.from_seq:
            joined[-1] = replace(joined[-1], through_seq=one.through_seq)
        else:
            joined.append(one)
    return joined


def _ranges(context_id: UUID, places: Sequence[int]) -> list[SourceRange]:
    """Sorted places as runs of consecutive numbers."""
    numbered = enumerate(sorted(places))
    runs = ([place for _, place in run] for _, run in groupby(numbered, key=lambda one: one[1] - one[0]))
    return [SourceRange(context_id, run[0], run[-1]) for run in runs]


def _check_once(pieces: Sequence[Covered]) -> None:
    if len({covered.piece for covered in pieces}) < len(pieces):
        raise ValueError("a summary can't stand for the same piece twice")

"""What of a view can be summarised, and the view with a summary in place of it (SPEC K2, A1, A2, A7).

Works on items: kinds, sizes, sources. What stays keeps its order; a call and its results go or stay together.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from uuid import UUID

from context.compaction import CompactionTerms, least_room
from context.material import piece_of
from context.pairing import GroupBorders
from context.views import ItemKind, ViewItem, total_tokens

_COMPRESSIBLE: frozenset[ItemKind] = frozenset(
    {"input", "assistant", "tool_result", "placeholder", "marker", "feedback"}
)


@dataclass(frozen=True)
class Partition:
    """A view taken apart for compaction. Positions are those of the view, in order.

    `fixed` is F in tokens, `material` what the summary would replace; `folds` is the position of the summary that is
    folded into the new one, if there is one. `covered` has that position too.
    """

    fixed: int
    material: int
    covered: tuple[int, ...]
    kept: tuple[int, ...]
    folds: int | None


def protocol_tail(items: Sequence[ViewItem]) -> int:
    """Where the tail begins: the last calls of the current Run and all that the model has not answered since (SPEC K2).

    Inputs alone make no tail, since they are protected anyway; a Run that has had no answer yet has none either.
    """
    own = [at for at, item in enumerate(items) if item.kind == "assistant" and item.run_no is None]
    if not own:
        return len(items)
    waits = any(item.kind in ("tool_result", "placeholder", "feedback") for item in items[own[-1] + 1 :])
    return own[-1] if waits else len(items)


def partition(
    items: Sequence[ViewItem],
    terms: CompactionTerms,
    *,
    beside: int,
    frame: int,
    pinned: Set[UUID] = frozenset(),
    whole_from: int | None = None,
) -> Partition:
    """What stays and what goes.

    `beside` are the tokens of the request that are no items of the view (tool schemas, overhead, state, reference),
    `frame` those of the message around a summary; `pinned` are sources that stay, such as frozen hook additions. Runs
    from number `whole_from` on stay whole (SPEC P7); they are recent groups, of which no more are kept than need be.
    """
    tail = protocol_tail(items)
    groups = [group for group in GroupBorders([item.kind for item in items]).groups() if group.stop <= tail]
    whole = {at for at, item in enumerate(items) if _is_of_run(item, whole_from)}
    free = [group for group in groups if all(at not in whole and _is_compressible(items[at], pinned) for at in group)]
    summaries = [at for at, item in enumerate(items) if item.kind == "summary"]
    movable = {*summaries, *(at for group in free for at in group)}
    hard = frame + beside + sum(item.tokens for at, item in enumerate(items) if at not in movable)
    listed = _listed(items, movable, terms, hard)
    hard += listed
    kept = _kept(items, free, terms, hard, recent=sum(items[at].tokens for at in whole))
    covered = sorted(at for group in free[: len(free) - len(kept)] for at in group)
    sizes = {"hard": hard, "frame": frame, "listed": listed}
    return _partition(items, terms, **sizes, covered=covered, kept=kept, summaries=summaries)


def with_summary(items: Sequence[ViewItem], covered: Set[int], summary: ViewItem) -> tuple[ViewItem, ...]:
    """The view with the summary in place of what it covers: system, summary, then all else in its order (SPEC A1).

    Protected inputs stand where they stood in the conversation, and the protocol tail at the end.
    """
    leading = next((at for at, item in enumerate(items) if item.kind != "system"), len(items))
    rest = (item for at, item in enumerate(items) if at >= leading and at not in covered)
    return (*items[:leading], summary, *rest)


def unfolded(
    before: Sequence[ViewItem],
    compacted: Sequence[ViewItem],
    *,
    inherited: int,
    changed: Mapping[str, ViewItem] | None = None,
) -> tuple[ViewItem, ...]:
    """The view without a summary that no longer applies: the list before it, then what came since (SPEC K9, K10).

    `inherited` is how many items the compacted view began with; `changed` are pieces in their newest version.
    """
    newest = changed or {}
    items = (*before, *compacted[inherited:])
    return tuple(newest.get(piece_of(item), item) for item in items)


def same_pieces(frozen: Sequence[ViewItem], now: Sequence[ViewItem]) -> bool:
    """Whether a list still begins with the pieces of a frozen one, each at its place, in whatever version (SPEC K9)."""
    return [piece_of(item) for item in frozen] == [piece_of(item) for item in now[: len(frozen)]]


def without_covered(items: Sequence[ViewItem], summary: ViewItem, covered: Set[str]) -> tuple[ViewItem, ...]:
    """A Run's first view with a snapshot of an earlier Run in place of the pieces it covers (SPEC P2, P7)."""
    return with_summary(items, {at for at, item in enumerate(items) if piece_of(item) in covered}, summary)


def new_material(items: Sequence[ViewItem]) -> int:
    """Tokens of these items that a summary could stand for (SPEC K14)."""
    return sum(item.tokens for item in items if _is_compressible(item, frozenset()))


def _partition(
    items: Sequence[ViewItem],
    terms: CompactionTerms,
    *,
    hard: int,
    frame: int,
    listed: int,
    covered: list[int],
    kept: list[range],
    summaries: list[int],
) -> Partition:
    stays = [at for group in kept for at in group]
    fixed = hard + sum(items[at].tokens for at in stays)
    goes = tuple(sorted([*summaries, *covered]))
    material = total_tokens(tuple(items[at] for at in goes))
    as_it_is = fixed - frame - listed + material
    # What is no longer than a summary's frame is no material, and a summary alone is none: nothing is gained by another
    # one, unless that is the only way under B.
    if (not covered or material <= frame) and as_it_is <= terms.budget.input_limit:
        return Partition(as_it_is, 0, (), tuple(stays), None)
    folds = summaries[0] if summaries else None
    return Partition(fixed, material, goes, tuple(stays), folds)


def _kept(
    items: Sequence[ViewItem], free: list[range], terms: CompactionTerms, hard: int, *, recent: int
) -> list[range]:
    """The newest complete groups within `keep_recent`, given up oldest first until F is at most floor(B·q).

    `recent` are the tokens of newer groups that stay anyhow.
    """
    kept: list[range] = []
    used = 0
    for group in reversed(free):
        size = sum(items[at].tokens for at in group)
        if recent + used + size > terms.keep_recent or hard + used + size > terms.goal:
            break
        kept.insert(0, group)
        used += size
    return kept


def _listed(items: Sequence[ViewItem], movable: Set[int], terms: CompactionTerms, hard: int) -> int:
    """Tokens of F for a list of the results that are summarised: what it may take, but nothing of the summary's own."""
    if not any(items[at].kind in ("tool_result", "summary") for at in movable):
        return 0
    return max(0, min(terms.listing, terms.goal - least_room(terms) - hard))


def _is_of_run(item: ViewItem, whole_from: int | None) -> bool:
    return whole_from is not None and item.run_no is not None and item.run_no >= whole_from


def _is_compressible(item: ViewItem, pinned: Set[UUID]) -> bool:
    return item.kind in _COMPRESSIBLE and not item.is_protected and item.source_id not in pinned

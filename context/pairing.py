"""Which messages belong together, where a list may be cut, and what is broken in one (SPEC A4).

Each rule is a small object over what it needs and no more: kinds for borders, call ids for answers. None repairs
anything; a list that breaks a rule is never sent.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from context.messages import Role
from context.views import ItemKind

RESULTS: frozenset[ItemKind] = frozenset({"tool_result", "placeholder"})

Broken = Literal[
    "result_missing", "result_out_of_order", "result_without_call", "call_id_repeated", "group_cut", "results_orphaned"
]


@dataclass(frozen=True)
class Breach:
    """One broken rule, and the position in the list where it shows."""

    rule: Broken
    position: int


@dataclass(frozen=True)
class Link:
    """What the protocol sees of a message: who speaks, which calls it makes, which call it answers."""

    role: Role
    calls: tuple[str, ...] = ()
    answers: str | None = None


class GroupBorders:
    """A list may be cut only between groups: an assistant message and the results that follow it are one group."""

    def __init__(self, kinds: Sequence[ItemKind]) -> None:
        self._kinds = kinds

    def cuts(self) -> tuple[int, ...]:
        """Positions before which the list may be cut; its beginning and end are among them."""
        return (*(at for at, kind in enumerate(self._kinds) if kind not in RESULTS), len(self._kinds))

    def groups(self) -> tuple[range, ...]:
        """The groups in order. Results at the very beginning, which is a breach, form a group of their own."""
        starts = sorted({0, *self.cuts()}) if self._kinds else [0]
        return tuple(range(start, end) for start, end in pairwise(starts))

    def breaches(self, kept: Set[int] | None = None) -> tuple[Breach, ...]:
        """Groups of which only a part is in `kept` (all positions if None), and results that no assistant precedes."""
        chosen = set(range(len(self._kinds))) if kept is None else kept
        cut = [Breach("group_cut", group.start) for group in self.groups() if 0 < len(chosen & set(group)) < len(group)]
        return (*cut, *self._orphans())

    def _orphans(self) -> list[Breach]:
        starts = [group for group in self.groups() if len(group) > 1 or self._kinds[group.start] in RESULTS]
        return [Breach("results_orphaned", one.start) for one in starts if self._kinds[one.start] != "assistant"]


class CallsAnswered:
    """Every call is answered once, in ordinal order, right after the message that makes it; no result without a call.

    Call ids are unique in the whole list, since some servers look for that.
    """

    def __init__(self, links: Sequence[Link]) -> None:
        self._links = links

    def breaches(self) -> tuple[Breach, ...]:
        """Everything that is wrong, in order of position."""
        found = [*self._repeated(), *self._wrong_answers()]
        return tuple(sorted(found, key=lambda breach: (breach.position, breach.rule)))

    def _repeated(self) -> list[Breach]:
        seen: set[str] = set()
        found = []
        for at, link in enumerate(self._links):
            if seen & set(link.calls) or len(set(link.calls)) < len(link.calls):
                found.append(Breach("call_id_repeated", at))
            seen |= set(link.calls)
        return found

    def _wrong_answers(self) -> list[Breach]:
        found: list[Breach] = []
        open_calls: list[str] = []
        for at, link in enumerate(self._links):
            if link.role == "tool":
                found += self._answer(at, link, open_calls)
                continue
            if open_calls:
                found.append(Breach("result_missing", at))
            open_calls = list(link.calls)
        return found + [Breach("result_missing", len(self._links))] * bool(open_calls)

    @staticmethod
    def _answer(at: int, link: Link, open_calls: list[str]) -> list[Breach]:
        if link.answers is None or link.answers not in open_calls:
            return [Breach("result_without_call", at)]
        in_order = open_calls[0] == link.answers
        open_calls.remove(link.answers)
        return [] if in_order else [Breach("result_out_of_order", at)]

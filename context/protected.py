"""What may never be missing from a request: the current question and supplements, or an executor's task (SPEC A2)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from context.material import piece_of
from context.views import ViewItem


@dataclass(frozen=True)
class ProtectedBreach:
    """A protected piece that is missing, stands twice, or stands out of the order in which it was received."""

    rule: Literal["missing", "twice", "out_of_order"]
    piece: str


class ProtectedPresent:
    """Each required piece stands once in the request, as itself, in the given order.

    `required` are pieces (`input/<id>`) in the order received. Enforced outside every port and hook (SPEC B8).
    """

    def __init__(self, required: Sequence[str]) -> None:
        self._required = tuple(required)

    def breaches(self, items: Sequence[ViewItem]) -> tuple[ProtectedBreach, ...]:
        """What is wrong with a request's items; a shortened or historical copy does not count as the piece itself."""
        shown = [piece_of(item) for item in items if item.is_protected and item.transform is None]
        wrong = [ProtectedBreach("missing", piece) for piece in self._required if piece not in shown]
        wrong += [ProtectedBreach("twice", piece) for piece in self._required if shown.count(piece) > 1]
        return (*wrong, *self._disordered(shown))

    def _disordered(self, shown: Sequence[str]) -> list[ProtectedBreach]:
        places = [(shown.index(piece), piece) for piece in self._required if piece in shown]
        steps = pairwise(places)
        return [ProtectedBreach("out_of_order", later[1]) for earlier, later in steps if later[0] < earlier[0]]

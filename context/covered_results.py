"""The tool results that a summary stands for, as its message lists them: what `result_read` can bring back (SPEC T5).

Names and references, no content. The list is bounded in number and size; what is cut from it can still be had, since
the summary's own id names all of them. A list is read back from a message only where nothing in it can be forged.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from context.transcripts import safe_name

READER = "result_read"
MOST = 32
"""Results that one message lists at most."""
SHARE = 16
"""The list of a message takes at most so small a part of B."""
OLDER = "(older ones)"  # no tool has such a name as `safe_name` leaves it
_LINE = re.compile(rf"({re.escape(OLDER)}|[\w.:-]+) ([0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}})", re.ASCII)


@dataclass(frozen=True)
class CoveredResult:
    """One result: what `result_read` takes, and the tool it came from."""

    result_ref: UUID
    tool: str

    @property
    def line(self) -> str:
        return f"{safe_name(self.tool)} {self.result_ref}"


@dataclass(frozen=True)
class CoveredResults:
    """The newest results that a summary covers, in order; if more, `older` is the reference of a list of all."""

    results: tuple[CoveredResult, ...]
    older: UUID | None = None

    @property
    def lines(self) -> tuple[str, ...]:
        older = (f"{OLDER} {self.older}",) if self.older else ()
        return (*older, *(one.line for one in self.results))

    def newest(self, number: int, summary_id: UUID) -> "CoveredResults":
        """The last `number` of them; the list of all then names what was cut."""
        if number >= len(self.results):
            return self
        return replace(self, results=self.results[len(self.results) - number :], older=summary_id)


def list_allowance(input_limit: int) -> int:
    """Tokens that a list may take, of B = `input_limit`."""
    return input_limit // SHARE


def folded_results(
    earlier: CoveredResults | None, added: Sequence[CoveredResult], *, folds: bool, summary_id: UUID
) -> CoveredResults | None:
    """The list of a summary from that of the one folded into it and what it adds; None if there is nothing to list.

    An earlier summary that lists nothing may stand for results all the same.
    """
    known = (*(earlier.results if earlier else ()), *added)
    if not known:
        return replace(earlier, older=summary_id) if earlier else None
    is_cut = earlier.older is not None if earlier else folds
    whole = CoveredResults(known, summary_id if is_cut else None)
    return whole.newest(min(len(known), MOST), summary_id)


def fitting(
    listed: CoveredResults, summary_id: UUID, *, limit: int, size: Callable[[CoveredResults], int]
) -> CoveredResults | None:
    """The longest end of the list whose message, as `size` counts it, has at most `limit` tokens; None if none has."""

    def tokens(number: int) -> int:
        return size(listed.newest(number, summary_id))

    fits = bisect_right(range(len(listed.results) + 1), limit, key=tokens)
    return listed.newest(fits - 1, summary_id) if fits else None


def read_lines(lines: Iterator[str]) -> CoveredResults:
    """The list of which these are the first lines, up to the first that is none of it."""
    results: list[CoveredResult] = []
    older = None
    for line in lines:
        if (match := _LINE.fullmatch(line)) is None:
            break
        if match[1] == OLDER:
            older = UUID(match[2])
        else:
            results.append(CoveredResult(UUID(match[2]), match[1]))
    return CoveredResults(tuple(results), older)

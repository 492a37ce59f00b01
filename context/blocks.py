"""The block plan of a compaction: which part of which record is summarised by which call (SPEC K5).

Sources come in history order and are seen once, so they can be read by page. A group stays together where it fits, a
record too large for a block is cut into fragments, and the parts of all blocks are the material, without gap or
overlap. A plan holds names and numbers; text is needed for measuring and for `block_text`, and is not kept.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from context.errors import ConfigurationInvalidError
from context.transcripts import Source, heading, neutralised, neutralised_span

LEAST_ROOM = 256
"""A block smaller than this could hold little but headings."""
SEAM = 4
"""Tokens that joining two texts may cost beyond their sum."""
CUT_MARK = "\n[cut here: longer than asked for]"
_LONGEST_SLICE = 4_096
_SHORTEST_SLICE = 16


class Measure(Protocol):
    """Tokens that a text adds to the message it stands in."""

    def __call__(self, text: str) -> int: ...


@dataclass(frozen=True)
class Part:
    """Characters `start` to `end` (Unicode code points) of the transcript of a piece that has `length` of them."""

    piece: str
    start: int
    end: int
    length: int

    @property
    def is_whole(self) -> bool:
        return self.end - self.start == self.length


@dataclass(frozen=True)
class Block:
    """What one call summarises, in order, and at most how many tokens its text takes."""

    parts: tuple[Part, ...]
    tokens: int


def carried_limit(limit: int, *, overhead: int, target: int) -> int:
    """Tokens of the summary so far in a block's request, from B = `limit`, its prompts' `overhead` and T.

    Twice T where that leaves room for a block, since a model may write more than it was asked for; never less than T. A
    summary to begin with that is longer becomes material itself (`transcripts.earlier_summary`).
    """
    return max(target, min(2 * target, limit - overhead - LEAST_ROOM))


def block_room(limit: int, *, overhead: int, target: int) -> int:
    """Tokens of a block's text, from the summarising model's B = `limit`, its prompts' `overhead` and T.

    Raises ConfigurationInvalidError if no useful block is left (SPEC K3).
    """
    room = limit - overhead - carried_limit(limit, overhead=overhead, target=target)
    if room < LEAST_ROOM:
        raise ConfigurationInvalidError(
            "The summarising model's window has no room for a block of material.",
            input_limit=limit,
            summary_tokens=target,
            prompt_tokens=overhead,
            room=room,
        )
    return room


def carried(summary: str, limit: int, measure: Measure) -> str:
    """The summary so far as the next block's request may hold it: whole, or cut visibly to `limit` tokens."""
    neutral = neutralised(summary)
    if measure(neutral) <= limit:
        return summary
    mark = CUT_MARK if limit > 4 * measure(CUT_MARK) else ""
    end, _ = _Reach(neutral, 0, limit - measure(mark) - SEAM, measure).furthest()
    return neutral[:end] + mark


def plan_blocks(groups: Iterable[Sequence[Source]], *, room: int, measure: Measure) -> Iterator[Block]:
    """The blocks for groups of sources in history order, each of at most `room` tokens.

    Raises ConfigurationInvalidError if not even one character of a source fits into a block.
    """
    packing = _Packing(room, measure)
    for group in groups:
        packing.add(group)
        yield from packing.take_full()
    packing.flush()
    yield from packing.take_full()


def part_text(source: Source, part: Part) -> str:
    """A part as it stands in a block: a heading with its name and range, then its characters."""
    return f"{_heading(source, part)}\n{neutralised_span(source.text, part.start, part.end)}"


def block_text(block: Block, sources: Mapping[str, Source]) -> str:
    """The text of a block, from the sources of its pieces; the same plan and sources always give the same text."""
    return "\n\n".join(part_text(sources[part.piece], part) for part in block.parts)


def _heading(source: Source, part: Part) -> str:
    span = "" if part.is_whole else f", characters {part.start} to {part.end} of {part.length}"
    return heading(f"{source.piece}, {source.label}{span}")


def _whole(source: Source) -> Part:
    return Part(source.piece, 0, len(source.text), len(source.text))


@dataclass
class _Packing:
    """The block being filled, and those that are full."""

    room: int
    measure: Measure
    parts: list[Part] = field(default_factory=list)
    used: int = 0
    full: list[Block] = field(default_factory=list)

    @property
    def left(self) -> int:
        return self.room - self.used

    def take_full(self) -> list[Block]:
        full, self.full = self.full, []
        return full

    def flush(self) -> None:
        if self.parts:
            self.full.append(Block(tuple(self.parts), self.used))
        self.parts, self.used = [], 0

    def add(self, group: Sequence[Source]) -> None:
        """A group that fits into a block stays in one; another is spread, starting with a block of its own."""
        costs = [self._cost(source, _whole(source)) for source in group]
        if sum(costs) > self.left:
            self.flush()
        if sum(costs) <= self.room:
            for source, cost in zip(group, costs, strict=True):
                self._put(_whole(source), cost)
            return
        for source, cost in zip(group, costs, strict=True):
            self._spread(source, cost)

    def _spread(self, source: Source, cost: int) -> None:
        if self.left < cost <= self.room:
            self.flush()
        if cost <= self.left:
            self._put(_whole(source), cost)
        else:
            self._cut(source)

    def _cut(self, source: Source) -> None:
        start, length, neutral = 0, len(source.text), neutralised(source.text)
        while start < length:
            if self.left < self.room // 4:
                self.flush()
            frame = self.measure(_heading(source, Part(source.piece, length, length, length + 1))) + 2 * SEAM
            reach = _Reach(neutral, start, self.left - frame, self.measure)
            end, cost = reach.furthest()
            if end > start:
                self._put(Part(source.piece, start, end, length), cost + frame)
            elif not self.parts:
                raise ConfigurationInvalidError("The summarising model's window is too small for any material.")
            start = end
            if start < length:
                self.flush()

    def _put(self, part: Part, cost: int) -> None:
        self.parts.append(part)
        self.used += cost

    def _cost(self, source: Source, part: Part) -> int:
        # Heading and text are counted apart, as fragments are, so that a record counted whole is never cheaper by luck.
        return self.measure(_heading(source, part)) + self.measure(neutralised(source.text)) + 2 * SEAM


@dataclass(frozen=True)
class _Reach:
    """How far a neutralised text goes from `start` within `room` tokens, counted slice after slice in linear time."""

    text: str
    start: int
    room: int
    measure: Measure

    def furthest(self) -> tuple[int, int]:
        """The position reached, and the tokens counted up to it."""
        end, used = self.start, 0
        step = max(1, min(self.room // 4, _LONGEST_SLICE))
        while end < len(self.text):
            cost = self.measure(self.text[end : end + step])
            if used + cost <= self.room:
                end, used = min(end + step, len(self.text)), used + cost
            elif step == 1 or (step <= _SHORTEST_SLICE and end > self.start):
                break
            else:
                step = max(1, step // 4)
        return end, used

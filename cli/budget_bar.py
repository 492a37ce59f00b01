"""The budget bar of a request: where the model's window goes, part by part, as letters that need no colours (SPEC B1).

Letters and numbers only; it never sees a text.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

WIDTH = 72
STYLES = {
    "S": "magenta",
    "T": "blue",
    "C": "yellow",
    "H": "cyan",
    "I": "green",
    "X": "bright_black",
    ".": "dim",
    "R": "red",
    "-": "dim red",
}


@dataclass(frozen=True)
class Part:
    """One part of the window: its letter in the bar, its name, its tokens."""

    mark: str
    name: str
    tokens: int


def parts_of(manifest: Mapping[str, Any]) -> list[Part]:
    """The whole window of a request in the order it is sent, each token in one part.

    What the estimate has beyond the messages are the schemas of the tools and the protocol around them.
    """
    items, budget = manifest["items"], manifest["budget"]
    used = max(0, manifest["estimated_input_tokens"])
    messages = sum(item["tokens"] for item in items)
    return [
        Part("S", "system", _sum(items, placement="system")),
        Part("T", "tools and protocol", max(0, used - messages)),
        Part("C", "summary", _sum(items, kind="summary")),
        Part("H", "history", _sum(items, placement="history") - _sum(items, kind="summary")),
        Part("I", "inputs", _sum(items, placement="protected")),
        Part("X", "state and reference", _sum(items, placement="state") + _sum(items, placement="reference")),
        Part(".", "free", max(0, manifest["input_limit"] - used)),
        Part("R", "output reserve", budget["output_reserve"]),
        Part("-", "safety margin", budget["safety_margin"]),
    ]


def bar_line(parts: Sequence[Part], width: int = WIDTH) -> Text:
    """The parts side by side in a frame, each as wide as its share; one that has a token has a letter."""
    line = Text("[")
    for part, count in zip(parts, cells([part.tokens for part in parts], width), strict=True):
        line.append(part.mark * count, style=STYLES.get(part.mark, ""))
    return line.append("]")


def cells(tokens: Sequence[int], width: int) -> list[int]:
    """How many of `width` cells each count gets: at least one if it is any, the rest by share, largest remainder first.

    There are at least as many cells as counts.
    """
    total = sum(tokens)
    if not total:
        return [0] * len(tokens)
    some = [int(count > 0) for count in tokens]
    room = width - sum(some)
    shares = [count * room for count in tokens]
    given = [one + share // total for one, share in zip(some, shares, strict=True)]
    for at in _largest_remainders(shares, total)[: width - sum(given)]:
        given[at] += 1
    return given


def _largest_remainders(shares: Sequence[int], total: int) -> list[int]:
    return sorted(range(len(shares)), key=lambda at: (-(shares[at] % total), at))


def legend_rows(parts: Iterable[Part], window: int) -> list[tuple[Text, str, int, str]]:
    """A row for each part that there is: letter, name, tokens, share of the window."""
    return [
        (Text(part.mark, style=STYLES.get(part.mark, "")), part.name, part.tokens, f"{part.tokens / window:.1%}")
        for part in parts
        if part.tokens
    ]


def headline(manifest: Mapping[str, Any]) -> str:
    """The numbers of the budget in one line."""
    budget, used, limit = manifest["budget"], manifest["estimated_input_tokens"], manifest["input_limit"]
    method = manifest["counting_method"] + ("" if manifest["exact"] else ", estimated")
    trigger = "" if budget["trigger"] is None else f" · compaction from {budget['trigger']}"
    share = used / limit if limit > 0 else 1.0
    reported = manifest["reported_input_tokens"]
    said = "" if reported is None else f" · {reported} by the provider's count"
    size = "not measured" if used < 0 else f"{used} of B {limit} tokens ({share:.0%})"
    window = f"window {budget['context_window']} · input {size}"
    return f"{window}{trigger} · {method}{said}"


def _sum(items: Iterable[Mapping[str, Any]], **matching: str) -> int:
    return sum(item["tokens"] for item in items if all(item[name] == value for name, value in matching.items()))

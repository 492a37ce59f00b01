"""Finds what a text says about some words, by counting. The demo model's only way to understand; it invents nothing."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]{2,}|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+|(?<=[。！？；])|\n{2,}|\n(?=[-*|#]|\d+\.)")
_MARKUP = re.compile(r"[`*|]+|(?m:^[#> ]+)|\[(?=[^\]]{0,300}\]\()|\]\([^)]{0,300}\)")
_SHORTEST, _LONGEST = 25, 320
_STOP_TEXT = """
about after again also and any are because been before being but can could did does done down each for from had has
have how into its just like make many more most much not off once only other our out over own please same should
some such tell than that the their them then there these they this those through too under until very was way were
what when where which while who whom whose why will with would you your explain describe happen happens file files
agentloom
"""
_STOP_WORDS = frozenset(_STOP_TEXT.split())


@dataclass(frozen=True, slots=True)
class Finding:
    """A sentence and the source it stands in."""

    source: str
    sentence: str


def keywords(text: str, *, limit: int = 8) -> list[str]:
    """The words a question is about, longest first; of CJK runs their pairs of characters."""
    found: list[str] = []
    for word in _WORD.findall(text):
        found += [word[i : i + 2] for i in range(len(word) - 1)] if ord(word[0]) > 0x2FFF else [word.lower()]
    counted = Counter(word for word in found if word not in _STOP_WORDS)
    return sorted(counted, key=lambda word: (-counted[word], -len(word), word))[:limit]


def findings(sources: Iterable[tuple[str, str]], words: Sequence[str], *, limit: int) -> list[Finding]:
    """The sentences of `(name, text)` sources that say most about the words, best first, each once.

    A word that few sentences have says more than one that many have.
    """
    sentences = [(name, sentence) for name, text in sources for sentence in sentences_of(text)]
    matches = [(name, sentence, _matched(sentence, words)) for name, sentence in sentences]
    spread = Counter(word for _, _, matched in matches for word in matched)
    scored = [(sum(1 / spread[word] for word in matched), name, sentence) for name, sentence, matched in matches]
    best = sorted((row for row in scored if row[0] > 0), key=lambda row: -row[0])
    distinct = {sentence: name for _, name, sentence in reversed(best)}
    return [Finding(name, sentence) for sentence, name in reversed(distinct.items())][:limit]


def sentences_of(text: str) -> list[str]:
    """The sentences of a text without markup; those too short or too long to quote are left out."""
    cleaned = (" ".join(_MARKUP.sub("", part).split()) for part in _SENTENCE_END.split(text))
    return [part for part in cleaned if _SHORTEST <= len(part) <= _LONGEST]


def mentions(text: str, words: Sequence[str]) -> int:
    """How often the words occur, each counted at most five times."""
    lowered = text.lower()
    return sum(min(lowered.count(_stem(word)), 5) for word in words)


def _matched(sentence: str, words: Sequence[str]) -> list[str]:
    lowered = sentence.lower()
    return [word for word in words if _stem(word) in lowered]


def _stem(word: str) -> str:
    """`crashes` finds `crash`, `survives` finds `survive`."""
    for ending in ("es", "s", "ing", "ed"):
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word.removesuffix(ending)
    return word

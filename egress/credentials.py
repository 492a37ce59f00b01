"""Replaces known credentials in what comes back from outside, before anything is stored of it (SPEC L6, Y3).

It knows only the values it is given. It finds them whole, as they are and as JSON text may spell them; a caller that
reads an answer in pieces joins them first.
"""

import json
import re
from collections.abc import Iterable
from functools import lru_cache

REMOVED = "[credential removed]"
_BACKSLASHES = r"\\{1,8}"
_SHORTEST = 8  # shorter values, such as the dummy keys of local servers, are words that occur in ordinary text


class Credentials:
    """The credentials known in one place."""

    def __init__(self, values: Iterable[str]) -> None:
        # Longest first, so that a credential that contains another one is replaced whole.
        known = sorted({value for value in values if len(value) >= _SHORTEST}, key=lambda one: (-len(one), one))
        self._forms = list(dict.fromkeys(form for value in known for form in _plain_forms(value)))
        self._raw_forms = [_bytes(form) for form in self._forms]
        self._spelt = _Spelt.of(tuple(known)) if known else None

    def occur_in(self, text: str) -> bool:
        return any(form in text for form in self._forms) or (self._spelt is not None and self._spelt.occurs_in(text))

    def removed_from(self, text: str) -> str:
        for form in self._forms:
            text = text.replace(form, REMOVED)
        return self._spelt.removed_from(text) if self._spelt else text

    def removed_from_bytes(self, body: bytes) -> bytes:
        for form in self._raw_forms:
            body = body.replace(form, REMOVED.encode())
        return self._spelt.removed_from_bytes(body) if self._spelt else body


class _Spelt:
    """The values with any of their characters as `\\uXXXX`.

    Hardly any text has one of these characters in that form, and one that has none is looked at for nothing more.
    """

    def __init__(self, values: tuple[str, ...]) -> None:
        hint = rf"\\u(?:{'|'.join(sorted({_code(unit) for value in values for unit in _units(value)}))})"
        whole = "|".join("".join(map(_spellings, value)) for value in values)
        self._hint, self._raw_hint = re.compile(hint), re.compile(hint.encode())
        self._whole, self._raw_whole = re.compile(whole), re.compile(_bytes(whole))

    @classmethod
    @lru_cache(maxsize=64)
    def of(cls, values: tuple[str, ...]) -> "_Spelt":
        """The one for these values; making it takes milliseconds."""
        return cls(values)

    def occurs_in(self, text: str) -> bool:
        return self._hint.search(text) is not None and self._whole.search(text) is not None

    def removed_from(self, text: str) -> str:
        return self._whole.sub(REMOVED, text) if self._hint.search(text) else text

    def removed_from_bytes(self, body: bytes) -> bytes:
        return self._raw_whole.sub(REMOVED.encode(), body) if self._raw_hint.search(body) else body


def _plain_forms(value: str) -> tuple[str, ...]:
    return value, json.dumps(value)[1:-1], value.replace("/", "\\/")


def _spellings(character: str) -> str:
    """A pattern of one character, however JSON text writes it; JSON within JSON doubles each backslash."""
    escaped = json.dumps(character)[1:-1]
    short = rf"{_BACKSLASHES}{re.escape(escaped[1:])}" if escaped[0] == "\\" and escaped[1] != "u" else None
    slash = rf"{_BACKSLASHES}/" if character == "/" else None
    coded = "".join(rf"{_BACKSLASHES}u{_code(unit)}" for unit in _units(character))
    return f"(?:{'|'.join(filter(None, (re.escape(character), short, slash, coded)))})"


def _units(text: str) -> list[int]:
    """The UTF-16 units, of which JSON's escapes are made."""
    body = text.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(body[at : at + 2], "big") for at in range(0, len(body), 2)]


def _code(unit: int) -> str:
    """A pattern of four digits, in either case."""
    return "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in f"{unit:04x}")


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")

"""Follows a JSON object that comes in pieces and tells when its last bracket has closed; linear in what comes.

It knows strings, escapes and brackets only: a text that it calls closed may still be no JSON, one that it doesn't is
none for sure. Asking a parser after every piece instead took seconds for arguments of some hundred kilobytes.
"""

import re

_IN_STRING = re.compile(r'["\\]')
_OUTSIDE = re.compile(r'["{}\[\]]')
_BLANK = " \t\r\n"


class ObjectScan:
    """Feed it the pieces as they come."""

    __slots__ = ("_depth", "_escaped", "_in_string", "_started", "_stray")

    def __init__(self) -> None:
        self._depth = 0
        self._started = False
        self._in_string = False
        self._escaped = False  # the last piece ended in a backslash
        self._stray = False  # something stands before or behind the object

    @property
    def is_closed(self) -> bool:
        """Whether exactly one object has begun and ended."""
        return self._started and self._depth == 0 and not self._stray

    def feed(self, piece: str) -> None:
        place = 1 if self._escaped and piece else 0
        self._escaped = self._escaped and not piece
        while place < len(piece) and not self._stray:
            place = self._within(piece, place) if self._depth else self._around(piece, place)

    def _around(self, piece: str, place: int) -> int:
        """Before and behind the object only blanks may stand."""
        rest = piece[place:].lstrip(_BLANK)
        self._stray = bool(rest) and (self._started or rest[0] != "{")
        if rest and not self._stray:
            self._started, self._depth = True, 1
        return len(piece) - len(rest) + 1 if rest else len(piece)

    def _within(self, piece: str, place: int) -> int:
        found = (_IN_STRING if self._in_string else _OUTSIDE).search(piece, place)
        if found is None:
            return len(piece)
        mark = found[0]
        if mark == "\\":
            self._escaped = found.end() == len(piece)
            return found.end() + 1
        if mark == '"':
            self._in_string = not self._in_string
        else:
            self._depth += 1 if mark in "{[" else -1
        return found.end()

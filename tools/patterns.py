"""Regular expressions of other people, matched in time that grows with the text alone.

Python's own engine can take for ever, and holds the whole process meanwhile; RE2 has neither look-around nor
back-references, and can't (decision 0082).
"""

import re
from typing import Any, Protocol

import re2

_ESCAPES = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)
_OPTIONS = re2.Options()
_OPTIONS.log_errors = False


class Pattern(Protocol):
    """A compiled expression; matching costs at most `programsize` for each byte of the text."""

    programsize: int

    def search(self, text: str) -> Any: ...


def compiled(pattern: str) -> Pattern | None:
    """The expression, or None if it has no form whose time is linear, or is none at all."""
    try:
        found: Pattern = re2.compile(_ESCAPES.sub(_code_point, pattern), _OPTIONS)
    except (re2.error, UnicodeEncodeError):
        return None
    return found


def _code_point(escape: "re.Match[str]") -> str:
    """`\\u00e9`, which JSON schemas may use and RE2 writes in another way."""
    digits = escape.group(1)
    return rf"\x{{{digits}}}" if digits else escape.group()

"""The text of one member of a JSON object, character for character as it stands there. It reads only valid JSON."""

import re
from json import JSONDecoder

_GAP = re.compile(r"[\s,:{]*")
_DECODER = JSONDecoder()


def member_text(text: str, name: str) -> str:
    """The value of a member of the object as it is written. Raises KeyError if it has none of that name."""
    place = _after_gap(text, 0)
    while text[place] != "}":
        key, place = _DECODER.raw_decode(text, place)
        start = _after_colon(text, place)
        _, end = _DECODER.raw_decode(text, start)
        if key == name:
            return text[start:end]
        place = _after_gap(text, end)
    raise KeyError(name)


def _after_gap(text: str, place: int) -> int:
    """Where the next name or the closing brace is."""
    found = _GAP.match(text, place)
    return found.end() if found else place


def _after_colon(text: str, place: int) -> int:
    """Where the value begins; its own opening brace is no gap."""
    place = text.index(":", place) + 1
    while text[place].isspace():
        place += 1
    return place

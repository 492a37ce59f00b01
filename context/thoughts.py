"""Reasoning that stands in a text between tags, where a server has no parser for it (decisions 0100, 0102).

Pure; it says what is left of a text, and changes no record.
"""

import re

_THOUGHT = "(?:think|thinking|thought|reasoning)>"
_THOUGHT_BEGINS = re.compile(rf"\s*<{_THOUGHT}", re.IGNORECASE)
_THOUGHT_ENDS = re.compile(rf"</{_THOUGHT}", re.IGNORECASE)
_ENDS_ALONE = re.compile(rf"^[ \t]*</{_THOUGHT}[ \t]*$", re.IGNORECASE | re.MULTILINE)


def behind_thoughts(text: str) -> str:
    """The text behind reasoning between tags, which servers without a parser for it send as content.

    A tag opens it at the very beginning only, and one that is never closed leaves nothing. Some chat templates write
    the opening tag into the prompt: then the closing one stands alone in its line.
    """
    place = 0
    while begin := _THOUGHT_BEGINS.match(text, place):
        end = _THOUGHT_ENDS.search(text, begin.end())
        if end is None:
            return ""
        place = end.end()
    if place == 0 and (end := _ENDS_ALONE.search(text)):
        place = end.end()
    return text[place:]

"""Conversation as data inside a message: records as labelled text, and boundaries that nothing inside can close.

Text from tools, files and summaries never reaches a model as instructions or as tool messages of its own (SPEC A3, K5).
What looks like our boundary or one of our headings is neutralised; nothing else is changed.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from context.material import piece_of
from context.messages import ChatMessage
from context.tokens import TokenCounter
from context.views import ViewItem

OPENING = "<session_context_data>"
CLOSING = "</session_context_data>"
# Bounded repetition: an unbounded one takes quadratic time on long runs of spaces.
_BOUNDARY = re.compile(r"<(?=\s{0,8}/?\s{0,8}session_context_data)", re.IGNORECASE)
_HEADING = re.compile(r"(?:^|(?<=[\r\x0b\x0c\x85\u2028\u2029]))=(?=== )", re.MULTILINE)
_NEUTRAL = "‹"
_LOOK_AHEAD = 64  # more characters than a boundary has
_NOT_IN_A_LABEL = re.compile(r"[^\w.:-]+", re.ASCII)
_LONGEST_NAME = 64
_SPEAKERS = {"input": "user", "assistant": "assistant", "marker": "note", "feedback": "note"}


@dataclass(frozen=True)
class Source:
    """One record as transcript text. `label` says who speaks; for a tool result, `text` is its content exactly."""

    piece: str
    label: str
    text: str = field(repr=False)


def source_of(item: ViewItem, message: ChatMessage) -> Source:
    """The transcript of an item. Calls become text; reasoning, which was said to nobody, is left out."""
    if message.role == "tool":
        status = f", {message.status}" if message.status else ""
        return Source(piece_of(item), f"result of {safe_name(message.name)}{status}", message.content or "")
    calls = (f"[calls {safe_name(call.name)} with {call.arguments}]" for call in message.tool_calls)
    text = "\n".join(part for part in (message.content, *calls) if part)
    return Source(piece_of(item), _SPEAKERS.get(item.kind, message.role), text)


def earlier_summary(piece: str, text: str) -> Source:
    """A summary that is material itself, because it is too long to be carried from block to block."""
    return Source(piece, "earlier summary", text)


def safe_name(name: str | None) -> str:
    """A tool's name as it may stand in a heading; models sometimes make up whole sentences."""
    return _NOT_IN_A_LABEL.sub("_", name or "a tool")[:_LONGEST_NAME]


def heading(text: str) -> str:
    """One of our own headings, which no content can imitate."""
    return f"=== {text} ==="


def neutralised(text: str) -> str:
    """The text without anything that could pass for our boundary or headings. Linear, and does nothing twice."""
    return _HEADING.sub(_NEUTRAL, _BOUNDARY.sub(_NEUTRAL, text))


def neutralised_span(text: str, start: int, end: int) -> str:
    """Characters `start` to `end` of the neutralised text, also safe by themselves, without looking at all of it.

    A boundary that `end` cuts is neutral as it is in the whole text; positions are those of the text itself, since one
    character takes the place of one.
    """
    lead = max(0, start - 1)
    window = neutralised(text[lead : end + _LOOK_AHEAD])
    return neutralised(window[start - lead : end - lead])


def data_block(sections: Sequence[str]) -> str:
    """The sections between one opening and one closing boundary, the closing one at the very end.

    Sections are `neutralised` already, apart from headings of our own.
    """
    return "\n".join((OPENING, *sections, CLOSING))


class TextMeasure:
    """Tokens that a text adds to a message, escapes of the wire form included."""

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._letter = self._whole("x")
        self._frame = self._letter - counter.count_text("x")

    def __call__(self, text: str) -> int:
        if not text.strip():  # a message of nothing else is not sent, and counts nothing
            return self._whole("x" + text) - self._letter
        return max(0, self._whole(text) - self._frame)

    def _whole(self, text: str) -> int:
        return self._counter.count_message(ChatMessage(role="user", content=text))

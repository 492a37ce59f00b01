"""Folds what a chat-completions server sends into one ModelReply, or says by name why it can't (SPEC L1, A5).

An answer is complete when a finish reason or `[DONE]` has come; anything that ends before is a failed attempt whose
text is at most a fragment. A finish reason by which a server reports its own breakdown is a failure too. Where reason
and content disagree, content decides: calls under `stop` are calls, `tool_calls` without calls is a text.
"""

import json
import re
from collections.abc import Callable
from typing import Any

from context.errors import ModelCallError
from context.messages import without_lone_surrogates
from context.replies import FinishReason, ModelReply, ReplyCall, Usage
from providers import finish_reasons
from providers.call_slots import CallSlots
from providers.errors import IncompleteAnswerError, MalformedAnswerError, classify_embedded
from providers.failure_shapes import reported_failure, says_something
from providers.usage import read_usage

DONE = "[DONE]"

_DECODER = json.JSONDecoder()
_BLANKS = re.compile(r"\s*")


class ReplyAssembler:
    """Takes the data of events, or one whole body; gives the reply at the end."""

    def __init__(self) -> None:
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._refusal: list[str] = []
        self._slots = CallSlots()
        self._finish: str | None = None
        self.usage = Usage()
        self._model: str | None = None
        self._id: str | None = None
        self.is_done = False
        """Whether the server said `[DONE]`; nothing of interest follows."""
        self.is_normalised = False
        """Whether the reply that was built last lost something to make it encode as UTF-8 (lone surrogates)."""

    @property
    def has_output(self) -> bool:
        """Whether text, reasoning or a call has come (the evidence of SPEC S6)."""
        return bool(self._content or self._reasoning or self._refusal or self._slots)

    @property
    def is_complete(self) -> bool:
        """Whether the answer may be taken as a whole."""
        return self._finish is not None or (self.is_done and self.has_output)

    def take_event(self, data: str, *, is_error: bool = False) -> None:
        """One event of a stream. Raises ModelCallError: malformed, or what the server reported (`is_error`: only that).

        Once the answer may be whole, what is no document says nothing any more.
        """
        text = data.strip()
        if not text or self.is_done:
            return
        if is_error:
            raise classify_embedded(_document_or_text(text))
        body, self.is_done = _without_done(text)
        if self.is_complete and body[:1] != "{":
            return
        for document in _documents(body):
            self._take_document(document)

    def take_body(self, text: str) -> None:
        """A whole answer from a server that does not stream."""
        document = _parsed(text)
        if isinstance(document, list) and len(document) == 1:
            document = document[0]
        self._take_document(document)
        self.is_done = True

    def reply(self) -> ModelReply:
        """The complete answer. Raises IncompleteAnswerError if it isn't, MalformedAnswerError if there is none."""
        if not self.is_complete:
            raise MalformedAnswerError if self.is_done else IncompleteAnswerError
        return self._build(
            finish_reasons.finish_reason(self._finish, has_calls=bool(self._slots), has_text=bool(self._text()))
        )

    def fragment(self) -> ModelReply | None:
        """What has come so far, for the record of a failed attempt or while it comes; None if nothing has."""
        return self._build("other") if self.has_output else None

    def _build(self, finish: FinishReason) -> ModelReply:
        self.is_normalised = False  # an earlier look may have met half of a pair
        return ModelReply(
            content=self._clean(self._text()) or None,
            reasoning_content=self._clean("".join(self._reasoning)) or None,
            refused=bool(self._refusal),
            calls=tuple(self._clean_call(call) for call in self._slots.calls()),
            finish_reason=finish,
            provider_finish_reason=self._clean(self._finish or "") or None,
            usage=self.usage,
            provider_model=self._clean(self._model or "") or None,
            provider_request_id=self._clean(self._id or "") or None,
        )

    def _clean_call(self, call: ReplyCall) -> ReplyCall:
        provider_id = None if call.provider_id is None else self._clean(call.provider_id)
        return ReplyCall(provider_id=provider_id, name=self._clean(call.name), arguments=self._clean(call.arguments))

    def _clean(self, text: str) -> str:
        clean = without_lone_surrogates(text)
        # A pair whose halves came in two deltas is whole again and no loss.
        self.is_normalised = self.is_normalised or clean.count("\ufffd") > text.count("\ufffd")
        return clean

    def _text(self) -> str:
        return "".join(self._content) or "".join(self._refusal)

    def _take_document(self, document: object) -> None:
        if not isinstance(document, dict):
            raise MalformedAnswerError
        if (failure := reported_failure(document, is_complete=self.is_complete)) is not None:
            raise classify_embedded(failure)
        self._model = _text_of(document.get("model")) or self._model
        self._id = _text_of(document.get("id")) or self._id
        self._take_usage(document)
        choices, is_first = document.get("choices"), not self.has_output
        for choice in choices if isinstance(choices, list) else []:
            self._take_choice(choice, is_first=is_first)

    def _take_usage(self, place: dict[str, Any]) -> None:
        """Usage stands in the document, in its choice (Moonshot), or under a name of the server's own (Groq)."""
        for value in (place.get("usage"), *(place[key].get("usage") for key in ("x_groq",) if _is_group(place, key))):
            self.usage = read_usage(value, before=self.usage)

    def _take_choice(self, choice: object, *, is_first: bool) -> None:
        """One choice; `is_first`: nothing was said before its document. Some servers give text and calls one each."""
        if not isinstance(choice, dict):
            raise MalformedAnswerError
        if choice.get("index") not in (None, 0, "0"):
            return
        if says_something(choice.get("error")):
            raise classify_embedded(choice)
        self._take_usage(choice)
        delta, message = choice.get("delta"), choice.get("message")
        if isinstance(delta, dict):
            self._take_delta(delta, add_call=self._slots.add)
        elif isinstance(message, dict) and is_first:  # after deltas a message only repeats them
            self._take_delta(message, add_call=self._slots.add_whole)
        self._take_finish(choice.get("finish_reason"))

    def _take_finish(self, reason: object) -> None:
        if not isinstance(reason, str) or not finish_reasons.is_reason(reason):
            return
        meaning = finish_reasons.meaning_of(reason)
        if meaning == "breakdown":
            raise ModelCallError("model_unavailable", retryable=True, status=200)
        if meaning == "overflow":
            raise ModelCallError("context_length", retryable=False, status=200)
        self._finish = finish_reasons.later_reason(self._finish, reason)

    def _take_delta(self, delta: dict[str, Any], *, add_call: Callable[[object], None]) -> None:
        self._take_content(delta.get("content"))
        self._take_reasoning(delta.get("reasoning_content") or delta.get("reasoning"))
        self._take_refusal(delta.get("refusal"))
        calls = delta.get("tool_calls")
        if calls is not None and not isinstance(calls, list):
            raise MalformedAnswerError
        for call in calls or []:
            add_call(call)
        if function := delta.get("function_call"):
            self._slots.add({"index": 0, "function": function})

    def _take_reasoning(self, reasoning: object) -> None:
        if isinstance(reasoning, str) and reasoning:  # an empty one is no output
            self._reasoning.append(reasoning)

    def _take_refusal(self, refusal: object) -> None:
        if text := _text_of(refusal):
            self._refusal.append(text)

    def _take_content(self, content: object) -> None:
        if isinstance(content, str):
            if content:
                self._content.append(content)
        elif isinstance(content, list):
            for part in content:
                self._take_part(part)
        elif content is not None:
            raise MalformedAnswerError

    def _take_part(self, part: object) -> None:
        """Content in parts, as some servers send it."""
        if isinstance(part, str):
            self._take_content(part)
        elif isinstance(part, dict) and isinstance(part.get("text"), str | None) and "text" in part:
            self._take_content(part["text"])
        elif isinstance(part, dict) and part.get("type") == "refusal":
            self._take_refusal(part.get("refusal"))
        elif isinstance(part, dict) and part.get("type") == "thinking":
            self._take_reasoning(_thinking(part.get("thinking")))
        else:
            raise MalformedAnswerError


def _is_group(place: dict[str, Any], key: str) -> bool:
    return isinstance(place.get(key), dict)


def _thinking(value: object) -> str:
    if isinstance(value, str):
        return value
    parts = value if isinstance(value, list) else []
    return "".join(part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str))


def _without_done(text: str) -> tuple[str, bool]:
    """The event without the mark that nothing follows, and whether it had one; some quote it, or write it small."""
    if text.strip('"').upper() == DONE:
        return "", True
    return text.removesuffix(DONE).rstrip(), text.endswith(DONE)


def _document_or_text(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _documents(text: str) -> list[object]:
    """The JSON documents of one event: one, or several from servers that forget the blank line between events."""
    documents: list[object] = []
    place = 0
    try:
        while place < len(text):
            document, place = _DECODER.raw_decode(text, place)
            documents.append(document)
            place = _BLANKS.match(text, place).end()  # type: ignore[union-attr] # it matches nothing, too
    except (ValueError, RecursionError):
        raise MalformedAnswerError from None
    return documents


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise MalformedAnswerError from None


def _text_of(value: object) -> str | None:
    return value if isinstance(value, str) and value else None

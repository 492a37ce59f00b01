"""What servers mean by the word they end an answer with (SPEC L1), whoever stands behind a compatible one.

A table of facts. A word that nobody knows is `other`, and the content decides; a word for "not yet" is none.
"""

import re
from typing import Literal

from context.replies import FinishReason

Meaning = FinishReason | Literal["breakdown", "overflow"]
"""What a word means. `breakdown` is a server's report that it failed in the middle of an answer, `overflow` that its
window was full.
"""

_SEPARATORS = re.compile(r"[^a-z0-9_]+")

_MEANINGS: dict[str, Meaning] = {
    **dict.fromkeys(("stop", "end", "eos", "eos_token", "end_turn", "stop_sequence", "complete", "completed"), "stop"),
    **dict.fromkeys(("tool_calls", "tool_call", "tool_use", "function_call"), "tool_calls"),
    **dict.fromkeys(
        (
            *("length", "max_tokens", "model_length", "max_length", "max_output_tokens", "max_completion_tokens"),
            *("error_limit", "incomplete"),
        ),
        "length",
    ),
    **dict.fromkeys(
        (
            *("content_filter", "content_filtered", "safety", "sensitive", "refusal", "guardrail_intervened"),
            *("recitation", "prohibited_content", "blocklist", "spii", "image_safety", "error_toxic"),
        ),
        "content_filter",
    ),
    **dict.fromkeys(("malformed_function_call", "unexpected_tool_call", "function_call_filter"), "malformed_call"),
    **dict.fromkeys(
        ("model_context_window_exceeded", "context_window_exceeded", "context_length_exceeded"), "overflow"
    ),
    **dict.fromkeys(
        (
            *("error", "failed", "abort", "aborted", "cancelled", "canceled", "timeout"),
            *("insufficient_system_resource", "network_error", "server_error", "internal_error"),
        ),
        "breakdown",
    ),
}
_NOT_YET = frozenset({"", "null", "none", "undefined", "in_progress", "finish_reason_unspecified"})
_FINAL: frozenset[Meaning] = frozenset({"length", "content_filter", "malformed_call"})


def is_reason(word: object) -> bool:
    """Whether a server says by this that the answer has ended; some write the absence of a reason as a word."""
    return isinstance(word, str) and word.strip().lower() not in _NOT_YET


def meaning_of(word: str) -> Meaning:
    """What the word means. Words come in any case, behind an enumeration's name or a category (`a.B`, `a: B`)."""
    parts = [part for part in _SEPARATORS.split(word.lower()) if part]
    known = [_MEANINGS[part] for part in ("_".join(parts), *reversed(parts)) if part in _MEANINGS]
    return known[0] if known else "other"


def later_reason(known: str | None, word: str) -> str:
    """The word that counts, once this one came: a plain stop takes back no cut, filter or unreadable call."""
    takes_back = known is not None and meaning_of(known) in _FINAL and meaning_of(word) in {"stop", "tool_calls"}
    return known if known is not None and takes_back else word


def finish_reason(word: str | None, *, has_calls: bool, has_text: bool) -> FinishReason:
    """How the answer ended. Where word and content disagree on whether there are calls, the content is right."""
    meant = meaning_of(word) if word else "stop"
    if has_calls and meant == "stop":
        return "tool_calls"
    if meant == "tool_calls" and not has_calls and has_text:
        return "stop"
    return "other" if meant == "breakdown" or meant == "overflow" else meant

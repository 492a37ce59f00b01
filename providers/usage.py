"""Reads the tokens a provider reports (SPEC L5). What it does not say, or says impossibly, is unknown, never zero."""

from typing import Any

from context.replies import Usage

_MOST = 10**12
"""More tokens than this are a mistake of the server, not a count."""
_NAMES = (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens"))


def read_usage(value: object, *, before: Usage) -> Usage:
    """The usage after a `usage` field: the newest report wins, one that says nothing changes nothing.

    No request has zero input tokens, so a report of zeros is a server that does not count.
    """
    if not isinstance(value, dict):
        return before
    given, written = (_count(value.get(name, value.get(other))) for name, other in _NAMES)
    input_tokens = given or None
    output_tokens = _with_reasoning(value, written)
    if input_tokens is None and not output_tokens:
        return before
    return Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cached_tokens=_cached(value, known=before.cached_tokens if input_tokens == before.input_tokens else None),
        reasoning_tokens=_detail(value, "completion_tokens_details", "reasoning_tokens"),
    )


def _cached(value: dict[str, Any], *, known: int | None) -> int | None:
    """A later report that says nothing of the cache leaves what is known of the same input."""
    detailed = _detail(value, "prompt_tokens_details", "cached_tokens")
    others = (_count(value.get(key)) for key in ("prompt_cache_hit_tokens", "cached_tokens"))
    return detailed if detailed is not None else next((count for count in others if count is not None), known)


def _with_reasoning(value: dict[str, Any], written: int | None) -> int | None:
    """Some servers leave reasoning out of `completion_tokens`; the total then tells that it was paid for."""
    reasoning = _detail(value, "completion_tokens_details", "reasoning_tokens")
    given, total = _count(value.get("prompt_tokens")), _count(value.get("total_tokens"))
    if not reasoning or given is None or written is None or total != given + written + reasoning:
        return written
    return written + reasoning


def _detail(value: dict[str, Any], group: str, key: str) -> int | None:
    details = value.get(group)
    return _count(details.get(key)) if isinstance(details, dict) else None


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value <= _MOST and value == int(value) else None

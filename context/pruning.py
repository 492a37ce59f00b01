"""Old tool output shown as previews, and old long arguments cut, in the view only (SPEC T5).

Tried before summarising. No record changes, the two newest tool groups are never touched, and nothing is pruned until
enough can go, since every change of an old item costs the provider's prompt cache (SPEC A7).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from context.messages import ChatMessage, ToolCall, arguments_object, without_lone_surrogates
from context.pairing import RESULTS, GroupBorders
from context.policy import ResultSettings
from context.views import ViewItem

UNTOUCHED_GROUPS = 2
KEPT_OF_ARGUMENT = 20

Transform = Literal["tool_result_pruned", "args_truncated"]
PRUNED: Transform = "tool_result_pruned"
CUT: Transform = "args_truncated"


@dataclass(frozen=True)
class Shorter:
    """An item that could be shown shorter: its position, how, and the tokens it would then have."""

    position: int
    transform: Transform
    tokens: int


@dataclass(frozen=True)
class Prune:
    """These items are shown shorter from now on; `gain` tokens go."""

    items: tuple[Shorter, ...]
    gain: int


@dataclass(frozen=True)
class LeaveAll:
    """Too little could go to be worth a lost prompt cache; `gain` is what it would be."""

    gain: int


def candidates(items: Sequence[ViewItem], settings: ResultSettings) -> tuple[tuple[int, Transform], ...]:
    """The positions that may be shown shorter, and how, in order; whether it pays, `plan_pruning` decides.

    Results are candidates beyond the newest `protect_tokens` of tool output, assistant messages where argument cutting
    is on. What was shortened before is none again.
    """
    border = _border(items)
    results = [at for at, item in enumerate(items) if item.kind == "tool_result"]
    found: list[tuple[int, Transform]] = [
        (at, PRUNED) for at in _beyond(items, results, settings.protect_tokens) if at < border and _is_whole(items[at])
    ]
    if settings.max_argument_chars is not None:
        found += [(at, CUT) for at in _callers(items) if at < border and _is_whole(items[at])]
    return tuple(sorted(found))


def plan_pruning(items: Sequence[ViewItem], shorter: Sequence[Shorter], settings: ResultSettings) -> Prune | LeaveAll:
    """Whether to show these candidates shorter; `shorter` has them measured. Those that gain nothing are left."""
    useful = tuple(one for one in shorter if one.tokens < items[one.position].tokens)
    gain = sum(items[one.position].tokens - one.tokens for one in useful)
    return Prune(useful, gain) if useful and gain >= settings.prune_tokens else LeaveAll(gain)


def pruned_result(message: ChatMessage, *, result_ref: str, preview_chars: int) -> ChatMessage:
    """The result as head and tail with what is left out and where all of it is; itself if it is short.

    Characters are Unicode code points. The same message always gives the same preview.
    """
    content = message.content or ""
    total = len(content)
    if total <= 2 * preview_chars:
        return message
    spans = [(0, preview_chars), (total - preview_chars, total)]
    notice = {
        "truncated": True,
        "result_ref": result_ref,
        "total_chars": total,
        "shown_ranges": spans,
        "hint": "Older output, shown in part. Read any part with result_read(result_ref, offset, limit).",
    }
    parts = (f"--- characters {start} to {end} ---\n{content[start:end]}" for start, end in spans)
    return message.model_copy(update={"content": "\n".join((json.dumps(notice, ensure_ascii=False), *parts))})


def cut_arguments(message: ChatMessage, *, longest: int) -> ChatMessage:
    """The message with every argument of more than `longest` characters cut to its first 20 and a notice.

    Arguments stay a JSON object; broken ones, which are shown as an error anyway, are left as they are (SPEC A11).
    """
    calls = tuple(_cut_call(call, longest) for call in message.tool_calls)
    return message if calls == message.tool_calls else message.model_copy(update={"tool_calls": calls})


def applied(items: Sequence[ViewItem], shown: Mapping[int, ViewItem]) -> tuple[ViewItem, ...]:
    """The view with the shorter items in place of the whole ones; everything else is the same item."""
    return tuple(shown.get(at, item) for at, item in enumerate(items))


def _cut_call(call: ToolCall, longest: int) -> ToolCall:
    if len(call.arguments) <= longest:
        return call
    arguments = arguments_object(call.arguments)
    if arguments is None:
        return call
    short = {name: _cut_value(value, longest) for name, value in arguments.items()}
    if short == arguments:
        return call
    # An escaped half of a surrogate pair comes out of the parser as one that no encoding takes.
    text = without_lone_surrogates(json.dumps(short, ensure_ascii=False))
    return call.model_copy(update={"arguments": text})


def _cut_value(value: Any, longest: int) -> Any:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if len(text) <= longest:
        return value
    return f"{text[:KEPT_OF_ARGUMENT]}… [AgentLoom: cut here, {len(text)} characters in all]"


def _border(items: Sequence[ViewItem]) -> int:
    """Where the two newest tool groups begin; nothing from there on is touched."""
    groups = [group for group in GroupBorders([item.kind for item in items]).groups() if _is_tool_group(items, group)]
    newest = groups[-UNTOUCHED_GROUPS:]
    return newest[0].start if newest else 0


def _is_tool_group(items: Sequence[ViewItem], group: range) -> bool:
    return any(items[at].kind in RESULTS for at in group)


def _callers(items: Sequence[ViewItem]) -> list[int]:
    groups = GroupBorders([item.kind for item in items]).groups()
    return [group.start for group in groups if _is_tool_group(items, group) and items[group.start].kind == "assistant"]


def _beyond(items: Sequence[ViewItem], results: Sequence[int], protect: int) -> list[int]:
    """Results with at least `protect` tokens of tool output after them; one that crosses the line is protected."""
    newer = 0
    beyond = []
    for at in reversed(results):
        if newer >= protect:
            beyond.append(at)
        newer += items[at].tokens
    return beyond


def _is_whole(item: ViewItem) -> bool:
    return item.transform is None

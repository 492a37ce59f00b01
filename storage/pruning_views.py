"""Old tool output shown as previews, and old long arguments cut: content is read only once enough can go (SPEC T5)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from sqlalchemy import text

from context.messages import ChatMessage, message_from_bytes
from context.policy import ResultSettings
from context.pruning import (
    PRUNED,
    Prune,
    Shorter,
    Transform,
    applied,
    candidates,
    cut_arguments,
    plan_pruning,
    pruned_result,
)
from context.views import ViewItem
from storage.database import fetch_all
from storage.measuring import Measuring

# A result of an earlier Run that no request carried is shown by its Operation, every other one by its record.
OPERATIONS = text("SELECT record_id, operation_id FROM context_records WHERE record_id = ANY(:ids)")


async def pruned(
    measuring: Measuring, items: Sequence[ViewItem], settings: ResultSettings
) -> tuple[ViewItem, ...] | None:
    """The list with its older output shown shorter, or None if too little would go."""
    found = candidates(items, settings)
    if sum(items[at].tokens for at, _ in found) < settings.prune_tokens:
        return None
    shorter = await _shorter(measuring, items, found, settings)
    sizes = [Shorter(at, _transform(item), item.tokens) for at, item in shorter.items()]
    plan = plan_pruning(items, sizes, settings)
    if not isinstance(plan, Prune):
        return None
    return applied(items, {one.position: shorter[one.position] for one in plan.items})


async def _shorter(
    measuring: Measuring, items: Sequence[ViewItem], found: Sequence[tuple[int, Transform]], settings: ResultSettings
) -> dict[int, ViewItem]:
    contents = await measuring.contents([items[at].payload_id for at, _ in found])
    refs = await _operations(measuring, [items[at] for at, _ in found])
    shorter = {}
    for at, transform in found:
        message = message_from_bytes(contents[items[at].payload_id])
        short = _shortened(message, transform, settings, refs.get(items[at].source_id) or items[at].source_id)
        payload_id, tokens = await measuring.own(short)
        shorter[at] = replace(items[at], payload_id=payload_id, tokens=tokens, transform=transform)
    return shorter


def _shortened(
    message: ChatMessage, transform: Transform, settings: ResultSettings, source: UUID | None
) -> ChatMessage:
    if transform == PRUNED:
        return pruned_result(message, result_ref=str(source), preview_chars=settings.preview_chars)
    return cut_arguments(message, longest=settings.max_argument_chars or 0)


async def _operations(measuring: Measuring, items: Sequence[ViewItem]) -> Mapping[UUID | None, UUID]:
    ids = [item.source_id for item in items if item.kind == "tool_result"]
    rows = await fetch_all(measuring.connection, OPERATIONS, ids=ids) if ids else []
    return {row["record_id"]: row["operation_id"] for row in rows}


def _transform(item: ViewItem) -> Transform:
    return "tool_result_pruned" if item.transform == PRUNED else "args_truncated"

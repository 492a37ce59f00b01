"""The ContextManifest of each request of a Run (SPEC A8): what it contained, of what size, and whether it was in order.

Nothing is copied when a request is made: its items are the beginning of its view, up to its length, and its own tail.
Content is named by its hash only.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.budget import plan_budget
from context.policy import Release
from context.summariser import summarising
from storage.database import fetch_all
from storage.reads.owned import check_run
from storage.reads.pages import Page, clamped, cursor_made_no, page_of
from storage.reads.releases import release
from storage.store import Store

# Where an item stands in the request (SPEC A1); what is not named here is history.
PLACEMENTS = {"system": "system", "state": "state", "reference": "reference"}


@dataclass(frozen=True)
class ManifestItem:
    """One message of the request. `content_hash` is the SHA-256 of the message's canonical form, in hexadecimal."""

    kind: str
    source_id: UUID | None
    run_no: int | None
    revision: int | None
    content_hash: str
    placement: str
    tokens: int
    transform: str | None


@dataclass(frozen=True)
class ManifestBudget:
    """Where the rest of the window goes (SPEC B1); `trigger` is None for a request that never starts a compaction."""

    context_window: int
    output_reserve: int
    safety_margin: int
    trigger: int | None


@dataclass(frozen=True)
class ManifestRow:
    """What one request contained; `items` in the order they were sent.

    `reported_input_tokens`: what the provider counted, None as long as it has not said (SPEC B5).
    """

    operation_id: UUID
    purpose: str
    model: str
    estimated_input_tokens: int
    reported_input_tokens: int | None
    input_limit: int
    counting_method: str
    exact: bool
    budget: ManifestBudget
    items: tuple[ManifestItem, ...]
    transforms: tuple[str, ...]
    validation: str
    notes: tuple[str, ...]
    created_at: datetime


PAGE = text("""
    SELECT o.operation_id, o.made_no, o.purpose, o.name AS model, o.view_id, o.view_length, o.tail,
           m.estimated_input_tokens, m.input_limit, m.counting_method, m.exact, m.transforms, m.validation,
           m.notes, m.created_at, coalesce(e.release_id, r.release_id) AS release_id,
           (SELECT CAST(a.usage ->> 'input_tokens' AS bigint) FROM attempts a
            WHERE a.operation_id = o.operation_id AND NOT CAST(a.usage ->> 'estimated' AS boolean)
            ORDER BY a.attempt_no DESC LIMIT 1) AS reported_input_tokens,
           (SELECT w.cause FROM request_views w
            WHERE w.view_id = o.view_id AND w.cause IN ('mutation', 'unfolding', 'withdrawal')
              AND NOT EXISTS (SELECT 1 FROM operations p WHERE p.run_id = o.run_id AND p.view_id = o.view_id
                                AND p.made_no < o.made_no)) AS broken_by
    FROM operations o JOIN manifests m USING (operation_id) JOIN sessions s USING (session_id)
      JOIN runs r ON r.run_id = o.run_id LEFT JOIN idle_blocks b ON b.operation_id = o.operation_id
      LEFT JOIN compaction_episodes e ON e.episode_id = b.episode_id
    WHERE s.owner_id = :owner_id AND o.run_id = :run_id
      AND (CAST(:operation_id AS uuid) IS NULL OR o.operation_id = :operation_id)
      AND o.made_no > :after ORDER BY o.made_no LIMIT :limit
""")
ITEMS = text("""
    SELECT v.view_id, v.kind, v.source_id, v.run_no, v.revision, v.tokens, v.transform,
           encode(p.digest, 'hex') AS content_hash
    FROM view_items v JOIN payloads p USING (payload_id)
    WHERE v.view_id = ANY(:views) AND v.pos < :length ORDER BY v.view_id, v.pos
""")
DIGESTS = text(
    "SELECT encode(payload_id, 'hex') AS id, encode(digest, 'hex') AS digest FROM payloads WHERE payload_id = ANY(:ids)"
)
SAME = (
    "operation_id",
    "purpose",
    "model",
    "estimated_input_tokens",
    "reported_input_tokens",
    "input_limit",
    "counting_method",
    "exact",
)


async def manifests(
    store: Store,
    run_id: UUID,
    owner_id: UUID,
    *,
    operation_id: UUID | None = None,
    limit: int = 20,
    cursor: str | None = None,
) -> Page[ManifestRow]:
    """The manifests of a Run, or of one of its calls, in the order of its requests. Raises NotFoundError."""
    limit, after = clamped(limit), cursor_made_no(cursor)
    binds = {"run_id": run_id, "owner_id": owner_id, "operation_id": operation_id}
    async with store.reading() as connection:
        rows = await fetch_all(connection, PAGE, **binds, after=after, limit=limit + 1)
        if not rows:
            await check_run(connection, run_id, owner_id)
        page = page_of(rows, limit, lambda row: str(row["made_no"]))
        listed = await _view_items(connection, page.items)
        tails = await _digests(connection, page.items)
    releases = {one: await release(store, one) for one in {row["release_id"] for row in page.items}}
    made = [
        _row(row, _budget(releases[row["release_id"]], row["purpose"]), listed[row["view_id"]], tails)
        for row in page.items
    ]
    return Page(made, page.next)


def _budget(of: Release, purpose: str) -> ManifestBudget:
    summary = purpose == "compaction"
    plan = plan_budget(summarising(of) if summary else of)
    return ManifestBudget(plan.window, plan.output_reserve, plan.safety, None if summary else plan.trigger)


async def _view_items(
    connection: AsyncConnection, rows: Sequence[Mapping[str, Any]]
) -> Mapping[UUID, list[ManifestItem]]:
    """The items of each view that the page needs, read once however many requests share it."""
    items: defaultdict[UUID, list[ManifestItem]] = defaultdict(list)
    views = {row["view_id"] for row in rows if row["view_id"]}
    length = max((row["view_length"] or 0 for row in rows), default=0)
    for row in await fetch_all(connection, ITEMS, views=list(views), length=length) if views else ():
        items[row["view_id"]].append(_item(row, row["content_hash"]))
    return items


async def _digests(connection: AsyncConnection, rows: Iterable[Mapping[str, Any]]) -> Mapping[str, str]:
    ids = {bytes.fromhex(item["payload_id"]) for row in rows for item in row["tail"] or ()}
    found = await fetch_all(connection, DIGESTS, ids=list(ids)) if ids else []
    return {row["id"]: row["digest"] for row in found}


def _row(
    row: Mapping[str, Any], budget: ManifestBudget, listed: Sequence[ManifestItem], digests: Mapping[str, str]
) -> ManifestRow:
    tail = [_item(item, digests[item["payload_id"]]) for item in row["tail"] or ()]
    items = (*listed[: row["view_length"] or 0], *tail)
    return ManifestRow(
        **{name: row[name] for name in SAME},
        budget=budget,
        items=items,
        transforms=_transforms(row["transforms"], items),
        validation=row["validation"],
        notes=(*row["notes"], *([f"prefix_broken:{row['broken_by']}"] if row["broken_by"] else ())),
        created_at=row["created_at"],
    )


def _transforms(noted: Sequence[str], items: Sequence[ManifestItem]) -> tuple[str, ...]:
    """Every form in which the request shows something, whether it or one before it was the first to do so."""
    return tuple(sorted({*noted, *(item.transform for item in items if item.transform)}))


def _item(item: Mapping[str, Any], content_hash: str) -> ManifestItem:
    source = item.get("source_id")
    return ManifestItem(
        kind=item["kind"],
        source_id=UUID(str(source)) if source else None,
        run_no=item.get("run_no"),
        revision=item.get("revision"),
        content_hash=content_hash,
        placement=_placement(item["kind"], item.get("run_no")),
        tokens=item["tokens"],
        transform=item.get("transform"),
    )


def _placement(kind: str, run_no: int | None) -> str:
    if kind == "input" and run_no is None:
        return "protected"
    return PLACEMENTS.get(kind, "history")

"""The list of a context after a change of what it shows or a summary stands for: the originals again (SPEC K9, K10).

A summary is taken back as a whole: its list gives way to the one before it and what came since, every piece in its
newest version. The old lists stay for the requests that were made from them.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.material import piece_of
from context.summary_view import unfolded
from context.views import ViewItem, total_tokens
from storage.database import fetch_all
from storage.view_lists import Switch, listed, write_items, write_switch
from storage.withdrawing import withdrawn_inputs
from storage.writes import WriteSet

# The pieces a snapshot adds, and whatever was folded from it on.
OUTDATED = text("""
    WITH RECURSIVE hit AS (
      SELECT s.snapshot_id, s.context_id FROM snapshots s JOIN snapshot_pieces p USING (snapshot_id)
      WHERE s.session_id = :session_id AND p.piece = ANY(CAST(:pieces AS text[]))
      UNION
      SELECT s.snapshot_id, s.context_id FROM snapshots s JOIN hit h ON s.previous_id = h.snapshot_id
      WHERE s.session_id = :session_id
    )
    SELECT snapshot_id, context_id FROM hit
""")
LISTS = text("""
    WITH RECURSIVE lists AS (
      SELECT view_id, context_id, before_view_id, before_length, inherited, 0 AS depth
      FROM request_views WHERE view_id = :view_id
      UNION ALL
      SELECT b.view_id, b.context_id, b.before_view_id, b.before_length, b.inherited, l.depth + 1
      FROM request_views b JOIN lists l ON b.view_id = l.before_view_id AND b.context_id = l.context_id
    )
    SELECT l.*, 0 < (SELECT count(*) FROM request_views b WHERE b.view_id = l.before_view_id
                       AND b.context_id = l.context_id) AS has_before,
           0 < (SELECT count(*) FROM view_items v WHERE v.view_id = l.view_id AND v.kind = 'summary'
                  AND v.source_id = ANY(CAST(:outdated AS uuid[]))) AS is_outdated
    FROM lists l ORDER BY l.depth
""")


@dataclass(frozen=True)
class ListHead:
    """The list of a context as it stands under the commit's lock."""

    context_id: UUID
    view_id: UUID
    length: int


@dataclass(frozen=True)
class Newest:
    """The newest version of a changed piece: its message, its tokens, the revision that brought it."""

    payload_id: bytes
    tokens: int
    revision: int

    def shown_by(self, item: ViewItem) -> ViewItem:
        """The item with this version: whole, however the one before was shortened."""
        content = replace(item, payload_id=self.payload_id, tokens=self.tokens)
        return replace(content, revision=self.revision, transform=None)


@dataclass(frozen=True)
class NewList:
    """The list that takes its place. `cause` is `unfolding` if a summary was taken back, else `mutation`."""

    head: ListHead
    cause: str
    items: tuple[ViewItem, ...]

    def write(self, writes: WriteSet, view_id: UUID) -> None:
        """Put it into the commit's writes; the head is up to the caller."""
        switch = Switch(view_id, self.cause, self.head.view_id, self.head.length, inherited=len(self.items))
        write_switch(writes, self.head.context_id, switch)
        write_items(writes, view_id, self.items)

    @property
    def tokens(self) -> int:
        return total_tokens(self.items)

    def active_snapshot(self, own: Set[UUID]) -> UUID | None:
        """The summary of this context that the list still shows; `own` are those it published."""
        shown = (item.source_id for item in self.items if item.kind == "summary")
        return next((one for one in shown if one in own), None)


async def new_list(
    connection: AsyncConnection, head: ListHead, outdated: Sequence[UUID], changed: Mapping[str, Newest]
) -> NewList | None:
    """The list without the summaries that no longer apply, and with what changed; None if it need not change.

    A list that began with an earlier Run's summary has none before it: that summary stands there until the Run's end.
    """
    chain: Any = await fetch_all(connection, LISTS, view_id=head.view_id, outdated=list(outdated))
    oldest = max((row["depth"] for row in chain if row["is_outdated"] and row["has_before"]), default=None)
    if oldest is None:
        items = await listed(connection, head.view_id, head.length)
        newest = _in_newest_version(items, changed)
        return NewList(head, "mutation", unfolded(items, (), inherited=0, changed=newest)) if newest else None
    before = await listed(connection, chain[oldest]["before_view_id"], chain[oldest]["before_length"])
    since = [item for depth in range(oldest, -1, -1) for item in await _added(connection, head, chain, depth)]
    gone = await withdrawn_inputs(connection, head.context_id)  # the list before may be older than the withdrawal
    before, since = _without(before, gone), list(_without(since, gone))
    newest = _in_newest_version((*before, *since), changed)
    return NewList(head, "unfolding", unfolded(before, since, inherited=0, changed=newest))


def _without(items: Sequence[ViewItem], inputs: Set[UUID]) -> tuple[ViewItem, ...]:
    return tuple(item for item in items if item.kind != "input" or item.source_id not in inputs)


def _in_newest_version(items: Sequence[ViewItem], changed: Mapping[str, Newest]) -> dict[str, ViewItem]:
    """The items that show something that changed, as they show it from now on: whole."""
    found = {}
    for item in items:
        if (newest := changed.get(piece_of(item))) is not None:
            found[piece_of(item)] = newest.shown_by(item)
    return found


async def _added(connection: AsyncConnection, head: ListHead, chain: Any, depth: int) -> tuple[ViewItem, ...]:
    """What was added to a list of the chain after it had been begun, up to the one that took its place."""
    end = head.length if depth == 0 else chain[depth - 1]["before_length"]
    items = await listed(connection, chain[depth]["view_id"], end)
    return items[chain[depth]["inherited"] or 0 :]

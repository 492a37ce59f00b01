"""The beginning of a Run's first request: system, then earlier Runs as SPEC P1 or P2 wants them.

Used by the first request itself, and by the compaction of an idle Session for the Run that is to come (SPEC K12).

Reads references, not content; only this request may cost more with the number of earlier Runs (SPEC P6).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.history import Fact, Own, project
from context.material import piece_of
from context.session_views import following, inherited, not_shown, piece_of_fact
from context.steps import RequestTerms
from context.views import ViewItem, total_tokens
from storage.covering import covered_among
from storage.database import fetch_all
from storage.heads import Heads
from storage.linking import breaks_pairs
from storage.measuring import Measuring
from storage.past_runs import past_runs, rest_of_runs
from storage.reusing import Older, with_reused
from storage.session_views import ReusableView, reusable_view
from storage.view_lists import Switch, listed

# What was sent and taken back before any model answered to it stays a fact, and is no part of a later conversation.
WITHDRAWN = text("""
    SELECT DISTINCT input_id FROM input_deliveries WHERE session_id = :session_id AND state = 'withdrawn'
""")


@dataclass(frozen=True)
class FirstView:
    """The items of a Run's first list, measured, and the saved view that it goes on from."""

    items: tuple[ViewItem, ...]
    goes_on_from: ReusableView | None = None
    inherited: int | None = None

    def switch(self, view_id: UUID) -> Switch:
        """The list that is begun with these items."""
        if self.goes_on_from is None:
            return Switch(view_id, "first_request", None, None, None)
        before = self.goes_on_from
        return Switch(view_id, "session_view", before.view_id, before.saved.length, self.inherited)


async def build_first_view(
    measuring: Measuring, heads: Heads, terms: RequestTerms, own_inputs: frozenset[UUID]
) -> FirstView:
    """System message and history as measured items."""
    system = await _system(measuring, terms)
    if heads.run_no == 1:
        return FirstView(system)
    hidden = own_inputs | await _withdrawn(measuring.connection, heads)
    saved = await reusable_view(measuring.connection, heads) if terms.whole_session else None
    if saved is not None:
        view = await _inherited(measuring, saved)
        rest = await _rest(measuring, heads, saved, view, hidden)
        inherits = (*system, *view, *rest)
        if not await breaks_pairs(measuring.connection, inherits):
            items = await _with_asked_for(measuring, heads, inherits)
            return FirstView(items, saved, len(view)) if items == inherits else FirstView(items)
    return FirstView(await _projected(measuring, heads, terms, system, hidden))


async def _system(measuring: Measuring, terms: RequestTerms) -> tuple[ViewItem, ...]:
    if terms.system is None:
        return ()
    payload_id, tokens = await measuring.own(terms.system)
    return (ViewItem("system", payload_id, tokens),)


async def _withdrawn(connection: AsyncConnection, heads: Heads) -> frozenset[UUID]:
    rows = await fetch_all(connection, WITHDRAWN, session_id=heads.session_id)
    return frozenset(row["input_id"] for row in rows)


async def _projected(
    measuring: Measuring, heads: Heads, terms: RequestTerms, system: tuple[ViewItem, ...], hidden: frozenset[UUID]
) -> tuple[ViewItem, ...]:
    """Earlier Runs as they are stored; with a summary in place of the older part where that would be too long."""
    whole = heads.run_no - 1 if terms.whole_session else terms.recent_runs
    runs = await past_runs(measuring.connection, heads, recent=whole)
    items = system + await _measured(measuring, project(runs, recent=whole, shown_elsewhere=hidden))
    # Below the trigger only what was asked for is looked for: the originals say more.
    asked_for = total_tokens(items) + terms.beside < terms.budget.trigger
    older = Older(heads.run_no - 1 - (0 if terms.whole_session else whole), terms.whole_session)
    return await _reusing(measuring, heads, items, older, asked_for=asked_for)


async def _with_asked_for(measuring: Measuring, heads: Heads, items: tuple[ViewItem, ...]) -> tuple[ViewItem, ...]:
    """An inherited list with the summary that somebody asked for since, if it stands for a part of it (SPEC K12)."""
    return await _reusing(measuring, heads, items, Older(heads.run_no - 1, whole=True), asked_for=True)


async def _reusing(
    measuring: Measuring, heads: Heads, items: tuple[ViewItem, ...], older: Older, *, asked_for: bool
) -> tuple[ViewItem, ...]:
    """The list with the best earlier summary in it, unless that would part a call from its results (SPEC A4)."""
    reused = await with_reused(measuring, heads, items, older, asked_for=asked_for)
    return items if reused != items and await breaks_pairs(measuring.connection, reused) else reused


async def _inherited(measuring: Measuring, saved: ReusableView) -> tuple[ViewItem, ...]:
    """The list that was saved, as this Run counts it."""
    items = inherited(await listed(measuring.connection, saved.view_id, saved.saved.length), saved.saved.run_no)
    if saved.estimator_id == measuring.counter.estimator_id:
        return items
    return tuple(await measuring.measure_stored(items))


async def _rest(
    measuring: Measuring, heads: Heads, saved: ReusableView, view: tuple[ViewItem, ...], hidden: frozenset[UUID]
) -> tuple[ViewItem, ...]:
    """What the saved list does not show."""
    connection = measuring.connection
    runs = await rest_of_runs(connection, heads, saved.saved)
    facts = following(runs, saved_by=saved.saved.run_no, hidden=hidden)
    shown = {piece_of(item) for item in view}
    unknown = [piece for piece in map(piece_of_fact, facts) if piece not in shown]
    for item in view:
        if item.kind == "summary" and item.source_id is not None:
            shown |= await covered_among(connection, item.source_id, unknown)
    return await _measured(measuring, not_shown(facts, shown))


async def _measured(measuring: Measuring, facts: Sequence[Fact]) -> tuple[ViewItem, ...]:
    drafts = [await _item(measuring, fact) for fact in facts]
    known = iter(await measuring.measure_stored([draft for draft in drafts if draft.tokens < 0]))
    return tuple(next(known) if draft.tokens < 0 else draft for draft in drafts)


async def _item(measuring: Measuring, fact: Fact) -> ViewItem:
    """The fact as an item; -1 tokens where they are still to be measured."""
    if isinstance(fact, Own):
        payload_id, tokens = await measuring.own(fact.message)
        return ViewItem(fact.kind, payload_id, tokens, fact.source_id, fact.run_no, fact.revision)
    return ViewItem(fact.kind, fact.payload_id, -1, fact.source_id, fact.run_no, transform=fact.transform)

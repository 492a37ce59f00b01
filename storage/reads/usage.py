"""Tokens and cost, added up from what each Run and each compaction of an idle Session recorded (SPEC L5).

Costs are added within one currency only: that of the release a call was made for.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import groupby
from operator import itemgetter
from typing import Any, ClassVar
from uuid import UUID

from sqlalchemy import text

from storage.database import fetch_all
from storage.reads.owned import check_session
from storage.reads.releases import release
from storage.store import Store

NOTHING = Decimal(0)

Row = Mapping[str, Any]


@dataclass(frozen=True)
class UsageTotals:
    """`unknown` counts attempts whose usage was not reported as a whole; `cost` is None if any price is unknown, which
    is not zero.
    """

    FIELDS: ClassVar = ("input_tokens", "output_tokens", "cached_tokens", "unknown", "cost")

    input_tokens: int
    output_tokens: int
    cached_tokens: int
    unknown: int
    cost: Decimal | None


@dataclass(frozen=True)
class UsageSum(UsageTotals):
    """Of several Runs: `costs` by currency, None where a price is unknown. `cost` is None if they are in several."""

    costs: Mapping[str, Decimal | None]


@dataclass(frozen=True)
class Used(UsageSum):
    """All of it, and by what the calls were for."""

    by_purpose: Mapping[str, UsageSum]


# A Run that called no model yet has no cost, which is not an unknown one. What an idle Session's compaction used is the
# Session's, and no Run's (SPEC K12).
TOTALS = """
    WITH used AS (
      SELECT r.release_id, r.input_tokens, r.output_tokens, r.cached_tokens, r.usage_unknown AS unknown, r.cost,
             r.cost IS NULL AND r.input_tokens + r.output_tokens > 0 AS cost_unknown
      FROM sessions s JOIN runs r ON r.session_id = s.session_id WHERE {which}
      UNION ALL
      SELECT e.release_id, coalesce((a.usage ->> 'input_tokens')::bigint, 0),
             coalesce((a.usage ->> 'output_tokens')::bigint, 0), coalesce((a.usage ->> 'cached_tokens')::bigint, 0),
             (a.usage ->> 'input_tokens' IS NULL OR a.usage ->> 'output_tokens' IS NULL
              OR a.usage @> '{{"estimated": true}}')::integer, a.cost,
             a.cost IS NULL
      FROM sessions s JOIN compaction_episodes e ON e.session_id = s.session_id AND e.operation_id IS NULL
           JOIN idle_blocks b USING (episode_id) JOIN attempts a ON a.operation_id = b.operation_id
      WHERE a.usage IS NOT NULL AND a.state <> 'calling' AND {which}
    )
    SELECT release_id, sum(input_tokens)::bigint AS input_tokens, sum(output_tokens)::bigint AS output_tokens,
           sum(cached_tokens)::bigint AS cached_tokens, sum(unknown)::bigint AS unknown,
           CASE WHEN bool_or(cost_unknown) THEN NULL ELSE coalesce(sum(cost), 0) END AS cost
    FROM used GROUP BY release_id
"""
ALL = text(TOTALS.format(which="s.owner_id = :owner_id"))
OF_SESSION = text(TOTALS.format(which="s.owner_id = :owner_id AND s.session_id = :session_id"))


# By what each call was for, once it has ended; the same attempts that the sums of Runs were made of.
BY_PURPOSE = """
    SELECT o.purpose, coalesce(e.release_id, r.release_id) AS release_id,
           sum(coalesce((a.usage ->> 'input_tokens')::bigint, 0))::bigint AS input_tokens,
           sum(coalesce((a.usage ->> 'output_tokens')::bigint, 0))::bigint AS output_tokens,
           sum(coalesce((a.usage ->> 'cached_tokens')::bigint, 0))::bigint AS cached_tokens,
           count(*) FILTER (WHERE a.usage ->> 'input_tokens' IS NULL OR a.usage ->> 'output_tokens' IS NULL
                                  OR a.usage @> '{{"estimated": true}}') AS unknown,
           CASE WHEN bool_or(a.cost IS NULL) THEN NULL ELSE sum(a.cost) END AS cost
    FROM sessions s JOIN operations o USING (session_id) JOIN attempts a USING (operation_id)
         JOIN runs r ON r.run_id = o.run_id
         LEFT JOIN idle_blocks b ON b.operation_id = o.operation_id
         LEFT JOIN compaction_episodes e ON e.episode_id = b.episode_id
    WHERE a.usage IS NOT NULL AND a.state <> 'calling' AND {which}
    GROUP BY 1, 2 ORDER BY 1
"""
ALL_BY_PURPOSE = text(BY_PURPOSE.format(which="s.owner_id = :owner_id"))
SESSION_BY_PURPOSE = text(BY_PURPOSE.format(which="s.owner_id = :owner_id AND s.session_id = :session_id"))


async def usage(store: Store, owner_id: UUID) -> Used:
    """Everything the owner's Runs and Sessions used."""
    async with store.snapshot() as connection:
        totals = await fetch_all(connection, ALL, owner_id=owner_id)
        purposes = await fetch_all(connection, ALL_BY_PURPOSE, owner_id=owner_id)
    return await _used(store, totals, purposes)


async def session_usage(store: Store, session_id: UUID, owner_id: UUID) -> Used:
    """Everything that a session and its Runs used. Raises NotFoundError."""
    binds = {"owner_id": owner_id, "session_id": session_id}
    async with store.snapshot() as connection:
        await check_session(connection, session_id, owner_id)
        totals = await fetch_all(connection, OF_SESSION, **binds)
        purposes = await fetch_all(connection, SESSION_BY_PURPOSE, **binds)
    return await _used(store, totals, purposes)


async def _used(store: Store, totals: list[Row], purposes: list[Row]) -> Used:
    ids = {row["release_id"] for row in (*totals, *purposes) if _is_anything(row)}
    currencies = {one: (await release(store, one)).definition.currency for one in ids}
    by_purpose = {name: _sum(rows, currencies) for name, rows in groupby(purposes, itemgetter("purpose"))}
    whole = _sum(totals, currencies)
    return Used(**vars(whole), by_purpose=by_purpose)


def _sum(rows: Iterable[Row], currencies: Mapping[UUID, str]) -> UsageSum:
    counts, costs = dict.fromkeys(UsageTotals.FIELDS[:-1], 0), dict[str, Decimal | None]()
    for row in filter(_is_anything, rows):
        counts = {name: count + row[name] for name, count in counts.items()}
        currency = currencies[row["release_id"]]
        costs[currency] = _added(costs.get(currency, NOTHING), row["cost"])
    cost = _added(NOTHING, *costs.values()) if len(costs) < 2 else None
    return UsageSum(**counts, cost=cost, costs=dict(sorted(costs.items())))


def _added(*costs: Decimal | None) -> Decimal | None:
    known = [cost for cost in costs if cost is not None]
    return sum(known, NOTHING) if len(known) == len(costs) else None


def _is_anything(row: Row) -> bool:
    return any(row[name] != 0 for name in UsageTotals.FIELDS)

"""Tokens and cost, added up from what each Run and each compaction of an idle Session recorded (SPEC L5)."""

from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar
from uuid import UUID

from sqlalchemy import text

from storage.database import fetch_all, fetch_one
from storage.reads.owned import check_session
from storage.reads.pages import found
from storage.store import Store


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


# A Run that called no model yet has no cost, which is not an unknown one. What an idle Session's compaction used is the
# Session's, and no Run's (SPEC K12).
TOTALS = """
    WITH used AS (
      SELECT r.input_tokens, r.output_tokens, r.cached_tokens, r.usage_unknown AS unknown, r.cost,
             r.cost IS NULL AND r.input_tokens + r.output_tokens > 0 AS cost_unknown
      FROM sessions s JOIN runs r ON r.session_id = s.session_id WHERE {which}
      UNION ALL
      SELECT coalesce((a.usage ->> 'input_tokens')::bigint, 0), coalesce((a.usage ->> 'output_tokens')::bigint, 0),
             coalesce((a.usage ->> 'cached_tokens')::bigint, 0),
             (a.usage ->> 'input_tokens' IS NULL OR a.usage ->> 'output_tokens' IS NULL
              OR a.usage @> '{{"estimated": true}}')::integer, a.cost,
             a.cost IS NULL
      FROM sessions s JOIN compaction_episodes e ON e.session_id = s.session_id AND e.operation_id IS NULL
           JOIN idle_blocks b USING (episode_id) JOIN attempts a ON a.operation_id = b.operation_id
      WHERE a.usage IS NOT NULL AND {which}
    )
    SELECT coalesce(sum(input_tokens), 0)::bigint AS input_tokens,
           coalesce(sum(output_tokens), 0)::bigint AS output_tokens,
           coalesce(sum(cached_tokens), 0)::bigint AS cached_tokens, coalesce(sum(unknown), 0)::bigint AS unknown,
           CASE WHEN bool_or(cost_unknown) THEN NULL ELSE coalesce(sum(cost), 0) END AS cost
    FROM used
"""
ALL = text(TOTALS.format(which="s.owner_id = :owner_id"))
OF_SESSION = text(TOTALS.format(which="s.owner_id = :owner_id AND s.session_id = :session_id"))


# By what each call was for; the same attempts that the sums of Runs were made of.
BY_PURPOSE = """
    SELECT o.purpose, sum(coalesce((a.usage ->> 'input_tokens')::bigint, 0))::bigint AS input_tokens,
           sum(coalesce((a.usage ->> 'output_tokens')::bigint, 0))::bigint AS output_tokens,
           sum(coalesce((a.usage ->> 'cached_tokens')::bigint, 0))::bigint AS cached_tokens,
           count(*) FILTER (WHERE a.usage ->> 'input_tokens' IS NULL OR a.usage ->> 'output_tokens' IS NULL
                                  OR a.usage @> '{{"estimated": true}}') AS unknown,
           CASE WHEN bool_or(a.cost IS NULL) THEN NULL ELSE sum(a.cost) END AS cost
    FROM sessions s JOIN operations o USING (session_id) JOIN attempts a USING (operation_id)
    WHERE a.usage IS NOT NULL AND {which}
    GROUP BY o.purpose ORDER BY o.purpose
"""
ALL_BY_PURPOSE = text(BY_PURPOSE.format(which="s.owner_id = :owner_id"))
SESSION_BY_PURPOSE = text(BY_PURPOSE.format(which="s.owner_id = :owner_id AND s.session_id = :session_id"))


async def usage_by_purpose(store: Store, owner_id: UUID, session_id: UUID | None = None) -> dict[str, UsageTotals]:
    """What calls of each purpose used, all of the owner's or those of one Session. Raises NotFoundError."""
    async with store.reading() as connection:
        if session_id is None:
            rows = await fetch_all(connection, ALL_BY_PURPOSE, owner_id=owner_id)
        else:
            await check_session(connection, session_id, owner_id)
            rows = await fetch_all(connection, SESSION_BY_PURPOSE, owner_id=owner_id, session_id=session_id)
    return {row["purpose"]: UsageTotals(**{name: row[name] for name in UsageTotals.FIELDS}) for row in rows}


async def usage(store: Store, owner_id: UUID) -> UsageTotals:
    """Everything the owner's Runs and Sessions used."""
    async with store.reading() as connection:
        return UsageTotals(**found(await fetch_one(connection, ALL, owner_id=owner_id), "user", owner_id))


async def session_usage(store: Store, session_id: UUID, owner_id: UUID) -> UsageTotals:
    """Everything that a session and its Runs used. Raises NotFoundError."""
    async with store.reading() as connection:
        await check_session(connection, session_id, owner_id)
        return UsageTotals(
            **found(
                await fetch_one(connection, OF_SESSION, owner_id=owner_id, session_id=session_id), "session", session_id
            )
        )

"""Tokens and cost, added up from what each Run recorded (SPEC L5)."""

from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar
from uuid import UUID

from sqlalchemy import text

from storage.database import fetch_one
from storage.reads.owned import check_session
from storage.reads.pages import found
from storage.store import Store


@dataclass(frozen=True)
class UsageTotals:
    """`unknown` counts attempts without reported usage; `cost` is None if any price is unknown, which is not zero."""

    FIELDS: ClassVar = ("input_tokens", "output_tokens", "cached_tokens", "unknown", "cost")

    input_tokens: int
    output_tokens: int
    cached_tokens: int
    unknown: int
    cost: Decimal | None


# A Run that called no model yet has no cost, which is not an unknown one.
TOTALS = """
    SELECT coalesce(sum(r.input_tokens), 0)::bigint AS input_tokens,
           coalesce(sum(r.output_tokens), 0)::bigint AS output_tokens,
           coalesce(sum(r.cached_tokens), 0)::bigint AS cached_tokens,
           coalesce(sum(r.usage_unknown), 0)::bigint AS unknown,
           CASE WHEN bool_or(r.cost IS NULL AND r.input_tokens + r.output_tokens + r.usage_unknown > 0) THEN NULL
                ELSE coalesce(sum(r.cost), 0) END AS cost
    FROM sessions s JOIN runs r ON r.session_id = s.session_id
    WHERE s.owner_id = :owner_id
"""
ALL = text(TOTALS)
OF_SESSION = text(f"{TOTALS} AND s.session_id = :session_id")


async def usage(store: Store, owner_id: UUID) -> UsageTotals:
    """Everything the owner's Runs used."""
    async with store.reading() as connection:
        return UsageTotals(**found(await fetch_one(connection, ALL, owner_id=owner_id)))


async def session_usage(store: Store, session_id: UUID, owner_id: UUID) -> UsageTotals:
    """Everything the Runs of a session used. Raises NotFoundError."""
    async with store.reading() as connection:
        await check_session(connection, session_id, owner_id)
        return UsageTotals(**found(await fetch_one(connection, OF_SESSION, owner_id=owner_id, session_id=session_id)))

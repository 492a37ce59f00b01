"""Whether a Run has used up its tokens or its money (SPEC L5)."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal


@dataclass(frozen=True)
class Spent:
    """The limit that is reached, and what was used of it: tokens, or money in the currency of the price."""

    budget: Literal["tokens", "cost"]
    limit: int | Decimal
    used: int | Decimal

    @property
    def numbers(self) -> dict[str, int | str]:
        """As an error shows it; money as a decimal in text."""
        limit, used = (one if isinstance(one, int) else f"{one:f}" for one in (self.limit, self.used))
        return {"budget": self.budget, "limit": limit, "used": used}


def spent(*, tokens: int, cost: Decimal | None, max_total_tokens: int | None, max_cost: Decimal | None) -> Spent | None:
    """The limit that this use reaches, tokens first; None while there is something left. Unknown cost is not over."""
    if max_total_tokens is not None and tokens >= max_total_tokens:
        return Spent("tokens", max_total_tokens, tokens)
    if max_cost is not None and cost is not None and cost >= max_cost:
        return Spent("cost", max_cost, cost)
    return None

"""When a Run has used up a limit, and in which numbers it is told (SPEC L5)."""

from decimal import Decimal
from typing import Any

import pytest

from context.spending import spent

TOKENS: dict[str, Any] = {"max_total_tokens": 60, "max_cost": None}
MONEY: dict[str, Any] = {"max_total_tokens": None, "max_cost": Decimal("0.01")}


@pytest.mark.parametrize(
    ("limits", "tokens", "cost", "numbers"),
    [
        (TOKENS, 60, None, {"budget": "tokens", "limit": 60, "used": 60}),
        (MONEY, 7, Decimal("0.0100"), {"budget": "cost", "limit": "0.01", "used": "0.0100"}),
        (MONEY | {"max_cost": Decimal("1E-7")}, 7, Decimal(1), {"budget": "cost", "limit": "0.0000001", "used": "1"}),
        (TOKENS | {"max_cost": Decimal(1)}, 61, Decimal(2), {"budget": "tokens", "limit": 60, "used": 61}),
    ],
)
def test_a_limit_that_is_reached_is_told_in_numbers(
    limits: dict[str, Any], tokens: int, cost: Decimal | None, numbers: dict[str, int | str]
) -> None:
    """SPEC L5: which limit, how much it is, what was used; money as a decimal in text."""
    found = spent(tokens=tokens, cost=cost, **limits)
    assert found is not None
    assert found.numbers == numbers


@pytest.mark.parametrize("limits", [TOKENS, MONEY, {"max_total_tokens": None, "max_cost": None}])
@pytest.mark.parametrize("cost", [None, Decimal("0.0099")])
def test_what_is_below_its_limit_or_unknown_is_not_used_up(limits: dict[str, Any], cost: Decimal | None) -> None:
    """SPEC L5: an unknown cost is no cost over the limit."""
    assert spent(tokens=59, cost=cost, **limits) is None

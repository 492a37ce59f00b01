"""What a call reported that it used, as the numbers that are added to a Run's totals (SPEC L5)."""

from decimal import Decimal
from typing import Any

from context.replies import Usage


def usage_numbers(usage: Usage, cost: Decimal | None) -> dict[str, Any]:
    """The binds of a statement that counts it; a figure that was not reported is counted as unknown."""
    return {
        "input_tokens": usage.input_tokens or 0,
        "output_tokens": usage.output_tokens or 0,
        "cached_tokens": usage.cached_tokens or 0,
        "usage_unknown": int(usage.input_tokens is None or usage.output_tokens is None),
        "cost": cost,
    }

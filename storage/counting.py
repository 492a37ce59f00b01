"""What a call reported that it used, as the numbers that are added to a Run's totals (SPEC L5)."""

from decimal import Decimal
from typing import Any

from context.replies import Usage
from context.usage import is_reported

_ADD = """
    input_tokens = runs.input_tokens + {0}input_tokens, output_tokens = runs.output_tokens + {0}output_tokens,
    cached_tokens = runs.cached_tokens + {0}cached_tokens, usage_unknown = runs.usage_unknown + {0}usage_unknown,
    cost = CASE WHEN CAST({0}cost AS numeric) IS NULL THEN NULL
                WHEN runs.cost IS NULL AND runs.input_tokens + runs.output_tokens > 0 THEN NULL
                ELSE coalesce(runs.cost, 0) + {0}cost END
"""
ADD_USAGE = _ADD.format(":")
"""Assignments of an update of `runs`. One call of unknown cost makes the cost of the Run unknown for good."""
ADD_LOST = _ADD.format("total.")
"""The same from a row `total`."""


def usage_numbers(usage: Usage, cost: Decimal | None) -> dict[str, Any]:
    """The binds of a statement that counts it. `usage_unknown` counts calls that were not reported as a whole."""
    return {
        "input_tokens": usage.input_tokens or 0,
        "output_tokens": usage.output_tokens or 0,
        "cached_tokens": usage.cached_tokens or 0,
        "usage_unknown": int(usage.estimated or not is_reported(usage)),
        "cost": cost,
    }


def cost_after(used_tokens: int, before: Decimal | None, cost: Decimal | None) -> Decimal | None:
    """The cost of a Run after one more call, as `ADD_USAGE` counts it. `used_tokens` are those before the call."""
    if cost is None or (before is None and used_tokens > 0):
        return None
    return (before or Decimal(0)) + cost

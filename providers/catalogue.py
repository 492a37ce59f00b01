"""What is known about official models (SPEC B3, L3a, L5): windows and output limits by exact id, and prices.

A small table. The DeepSeek rows were compared with DeepSeek's own page, the OpenAI rows with published tables that
quote OpenAI's pages (docs/decisions/0023). It holds for the official addresses only: the same id elsewhere can be
another model. Unknown is None, never a guess by name.
"""

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from context.policy import Price
from context.replies import Usage
from providers.profiles import profile_for

_MILLION = Decimal(1_000_000)


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """One model. `checked` is the day of the look at `reference` (ISO date)."""

    context_window: int
    max_output_tokens: int
    encoding: str | None
    source: Literal["official_manifest", "platform_default"]
    reference: str
    checked: str


_OPENAI_PAGE = "https://platform.openai.com/docs/models"
_DEEPSEEK_PAGE = "https://api-docs.deepseek.com/quick_start/pricing"


def _openai(window: int, output: int, encoding: str = "o200k_base") -> CatalogueEntry:
    return CatalogueEntry(window, output, encoding, "official_manifest", _OPENAI_PAGE, "2026-11-30")


def _deepseek(window: int, output: int) -> CatalogueEntry:
    return CatalogueEntry(window, output, None, "official_manifest", _DEEPSEEK_PAGE, "2026-11-30")


_OFFICIAL = {
    "openai": {
        "gpt-4o": _openai(128_000, 16_384),
        "gpt-4o-2024-08-06": _openai(128_000, 16_384),
        "gpt-4o-2024-11-20": _openai(128_000, 16_384),
        "gpt-4o-mini": _openai(128_000, 16_384),
        "gpt-4o-mini-2024-07-18": _openai(128_000, 16_384),
        "gpt-4.1": _openai(1_047_576, 32_768),
        "gpt-4.1-2025-04-14": _openai(1_047_576, 32_768),
        "gpt-4.1-mini": _openai(1_047_576, 32_768),
        "gpt-4.1-mini-2025-04-14": _openai(1_047_576, 32_768),
        "gpt-4.1-nano": _openai(1_047_576, 32_768),
        "gpt-4.1-nano-2025-04-14": _openai(1_047_576, 32_768),
        "gpt-5": _openai(400_000, 128_000),
        "gpt-5-2025-08-07": _openai(400_000, 128_000),
        "gpt-5-mini": _openai(400_000, 128_000),
        "gpt-5-mini-2025-08-07": _openai(400_000, 128_000),
        "gpt-5-nano": _openai(400_000, 128_000),
        "gpt-5-nano-2025-08-07": _openai(400_000, 128_000),
        "gpt-5.1": _openai(400_000, 128_000),
        "gpt-5.2": _openai(400_000, 128_000),
        "gpt-5.4": _openai(1_050_000, 128_000),
        "o1": _openai(200_000, 100_000),
        "o3": _openai(200_000, 100_000),
        "o3-mini": _openai(200_000, 100_000),
        "o4-mini": _openai(200_000, 100_000),
    },
    # The page says 1M and 384K; taken as thousands, the smaller reading.
    "deepseek": {
        "deepseek-flash": _deepseek(1_000_000, 384_000),
        "deepseek-v4-flash": _deepseek(1_000_000, 384_000),
        "deepseek-v4-pro": _deepseek(1_000_000, 384_000),
    },
}

DEMO = CatalogueEntry(32_768, 4_096, None, "platform_default", "docs/agent-definition.md", "2026-11-30")
"""The offline demo model."""


def find(provider: str, model: str, base_url: str | None) -> CatalogueEntry | None:
    """The entry of exactly this model at its official address (no address means that one); None if there is none."""
    if provider == "demo":
        return DEMO
    if not _is_official(provider, base_url):
        return None
    return _OFFICIAL.get(provider, {}).get(model)


def _is_official(provider: str, base_url: str | None) -> bool:
    official = profile_for(provider).default_base_url
    return official is not None and (base_url or official).rstrip("/") in (official, official + "/v1")


def is_priced(provider: str, model: str, base_url: str | None) -> bool:
    """Whether a call of this model at this address has a public price."""
    return cost(provider, model, Usage(input_tokens=1, output_tokens=1), base_url=base_url) is not None


def cost(
    provider: str, model: str, usage: Usage, price: Price | None = None, *, base_url: str | None = None
) -> Decimal | None:
    """What a call cost, by the given price or else the public one, in that price's currency (public ones are USD).

    None if a price or a count that it needs is not known. Public prices hold at the official address only.
    """
    if price is not None:
        return _by_price(usage, price)
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    if provider not in _OFFICIAL or not _is_official(provider, base_url):
        return None
    return _public_price(provider, model, usage)


def _public_price(provider: str, model: str, usage: Usage) -> Decimal | None:
    # The table comes with a second HTTP library, which a process should not have to load before it can work.
    from genai_prices import Usage as PricedUsage
    from genai_prices import calc_price

    counted = PricedUsage(
        input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, cache_read_tokens=usage.cached_tokens
    )
    try:
        return calc_price(counted, model, provider_id=provider).total_price
    except (LookupError, ValueError):
        return None


def _by_price(usage: Usage, price: Price) -> Decimal | None:
    cached = min(usage.cached_tokens or 0, usage.input_tokens or 0) if price.cached is not None else 0
    fresh = None if usage.input_tokens is None else usage.input_tokens - cached
    parts = [
        _part(fresh, price.input),
        _part(usage.output_tokens, price.output),
        _part(cached, price.cached or Decimal(0)),
    ]
    known = [part for part in parts if part is not None]
    return sum(known, Decimal(0)) if len(known) == len(parts) else None


def _part(tokens: int | None, per_million: Decimal | None) -> Decimal | None:
    if tokens is None or per_million is None:
        return None
    return per_million * tokens / _MILLION

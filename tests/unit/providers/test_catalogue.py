"""What is known about official models, and what calls cost."""

from decimal import Decimal

import pytest

from context.policy import Price
from context.replies import Usage
from providers.catalogue import cost, find, is_priced

USAGE = Usage(input_tokens=1_000_000, output_tokens=100_000, cached_tokens=400_000)


@pytest.mark.parametrize(
    ("provider", "model", "window"), [("openai", "gpt-4o", 128_000), ("deepseek", "deepseek-v4-pro", 1_000_000)]
)
@pytest.mark.parametrize("slash", ["", "/"])
def test_an_official_model_is_known_at_its_official_address_only(
    provider: str, model: str, window: int, slash: str
) -> None:
    """SPEC B3, L3a."""
    official = {"openai": "https://api.openai.com/v1", "deepseek": "https://api.deepseek.com"}[provider]
    entry = find(provider, model, official + slash)
    assert entry == find(provider, model, None)
    assert entry is not None
    assert (entry.context_window, entry.source) == (window, "official_manifest")
    assert entry.max_output_tokens < window
    assert entry.checked
    assert find(provider, model, "https://gateway.test/v1") is None
    assert find(provider, model, official + ".evil.test") is None


def test_names_are_matched_exactly_never_by_their_beginning() -> None:
    """SPEC L3a: exact ids."""
    assert find("openai", "gpt-4o-my-finetune", None) is None
    assert find("openai_compatible", "gpt-4o", None) is None


def test_the_demo_model_is_known_wherever_it_listens() -> None:
    """SPEC B3."""
    entry = find("demo", "demo", "http://127.0.0.1:4711/v1")
    assert entry is not None
    assert (entry.context_window, entry.max_output_tokens) == (32_768, 4_096)


def test_a_given_price_goes_before_the_public_one() -> None:
    """SPEC L5: decimals, per million; cached input at its own price."""
    price = Price(input=Decimal("2"), output=Decimal("10"), cached=Decimal("0.5"))
    assert cost("openai", "gpt-4o", USAGE, price) == Decimal("2") * Decimal("0.6") + Decimal("0.2") + Decimal("1")


def test_cached_input_without_a_price_of_its_own_costs_as_much_as_any() -> None:
    """SPEC L5."""
    assert cost("demo", "demo", USAGE, Price(input=Decimal("2"), output=Decimal("10"))) == Decimal("3")


def test_a_public_price_is_found_by_provider_and_model() -> None:
    """SPEC L5."""
    found = cost("openai", "gpt-4o", Usage(input_tokens=1_000, output_tokens=10))
    assert found is not None
    assert found > 0


def test_a_public_price_holds_at_the_official_address_only() -> None:
    """SPEC L3a, L5: the same id elsewhere can be another model at another price."""
    assert cost("openai", "gpt-4o", USAGE, base_url="https://gateway.test/v1") is None
    assert cost("openai", "gpt-4o", USAGE, base_url="https://api.openai.com/v1/") == cost("openai", "gpt-4o", USAGE)
    assert is_priced("openai", "gpt-4o", None)
    assert not is_priced("openai", "gpt-4o", "https://gateway.test/v1")
    assert not is_priced("openai", "no-such-model", None)
    assert not is_priced("demo", "demo", None)


@pytest.mark.parametrize(
    ("provider", "model", "usage", "price"),
    [
        ("openai", "no-such-model", USAGE, None),
        ("openai_compatible", "gpt-4o", USAGE, None),
        ("demo", "demo", USAGE, Price(output=Decimal(1))),
        ("openai", "gpt-4o", Usage(), None),
        ("openai", "gpt-4o", Usage(input_tokens=5), None),
        ("demo", "demo", Usage(), Price(input=Decimal(1), output=Decimal(1))),
        ("demo", "demo", USAGE, Price(input=Decimal(1))),
    ],
)
def test_an_unknown_price_or_count_is_unknown_not_zero(
    provider: str, model: str, usage: Usage, price: Price | None
) -> None:
    """SPEC L5."""
    assert cost(provider, model, usage, price) is None

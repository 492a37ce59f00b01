"""The numbers of SPEC B1."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context.budget import (
    Budget,
    Fits,
    TooLarge,
    default_safety,
    floor_share,
    judge,
    output_reserve,
    plan_budget,
    request_output_limit,
)
from context.errors import ConfigurationInvalidError
from context.policy import Release
from tests.support.builders import release

VECTORS = [
    # W, O, S, B, trigger
    (131072, 8192, 1280, 121600, 97280),
    (32768, 4096, 1024, 27648, 22118),
    (131072, 65536, 1311, 64225, 51380),
]


@pytest.mark.parametrize(("window", "reserve", "safety", "limit", "trigger"), VECTORS)
def test_the_vectors_of_the_specification(window: int, reserve: int, safety: int, limit: int, trigger: int) -> None:
    """SPEC B1; case C053: reserve and margin count before the trigger does."""
    context = {"output_reserve_tokens": reserve, "safety_margin_tokens": safety}
    budget = plan_budget(release(window=window, context=context))
    assert (budget.input_limit, budget.trigger) == (limit, trigger)


@pytest.mark.parametrize(("window", "safety"), [(131072, 1311), (32768, 328), (25600, 256), (1, 256), (25601, 257)])
def test_the_default_margin_is_one_percent_rounded_up(window: int, safety: int) -> None:
    """SPEC B1: at least 256."""
    assert default_safety(window) == safety


@pytest.mark.parametrize(
    ("made", "reserve", "limit"),
    [
        (release(), 4096, 4096),
        (release(window=8192), 2048, 2048),
        (release(output_limit=1000), 1000, 1000),
        (release(output_limit=100_000), 8192, 8192),
        (release(model={"max_output_tokens": 700}), 700, 700),
        (release(model={"max_output_tokens": 700}, context={"output_reserve_tokens": 900}), 900, 700),
        (release(model={"max_output_tokens": 900}, output_limit=700), 900, 700),
        (release(context={"output_reserve_tokens": 500}), 500, 500),
    ],
)
def test_the_reserve_and_the_limit_sent_are_two_things(made: Release, reserve: int, limit: int) -> None:
    """SPEC B1, L4."""
    assert output_reserve(made) == reserve
    assert request_output_limit(made, plan_budget(made)) == limit


@pytest.mark.parametrize("reserve", [32768 - 328, 32768, 100_000])
def test_a_window_without_room_for_input_is_no_configuration(reserve: int) -> None:
    """SPEC B1: B must be positive; the error has the numbers."""
    with pytest.raises(ConfigurationInvalidError) as error:
        plan_budget(release(context={"output_reserve_tokens": reserve}))
    assert error.value.numbers["context_window"] == 32768
    assert plan_budget(release(context={"output_reserve_tokens": 32768 - 328 - 1})).input_limit == 1


def test_shares_are_exact() -> None:
    """SPEC B1: no binary floats: 57 % of 100 is 57."""
    assert floor_share(Decimal("0.57"), 100) == 57
    assert int(0.57 * 100) == 56


@given(st.integers(1, 10**9), st.integers(1, 10_000))
def test_a_share_is_the_integer_quotient(tokens: int, basis_points: int) -> None:
    """SPEC B1: against integer arithmetic, which has no rounding."""
    assert floor_share(Decimal(basis_points) / 10_000, tokens) == tokens * basis_points // 10_000


sizes = st.integers(0, 300_000)


@given(sizes, sizes)
def test_the_limit_is_the_last_size_that_fits(size: int, protected: int) -> None:
    """SPEC B1: B fits, B + 1 doesn't; I + O + S <= W."""
    budget = Budget(131072, 8192, 1280, Decimal("0.8"))
    verdict = judge(size, budget, protected=protected)
    fits = size + budget.output_reserve + budget.safety <= budget.window
    assert verdict == (Fits() if fits else TooLarge(protected=protected > 121600))


@pytest.mark.parametrize(
    ("size", "verdict"),
    [(121600, Fits()), (121601, TooLarge(protected=False))],
)
def test_the_borders_themselves(size: int, verdict: Fits | TooLarge) -> None:
    """SPEC B1."""
    assert judge(size, Budget(131072, 8192, 1280, Decimal("0.8")), protected=0) == verdict

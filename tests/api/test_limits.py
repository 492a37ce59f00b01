"""The token bucket of a key (SPEC Y1)."""

import pytest

from api.limits import KeyLimits, RateLimit
from context.errors import RateLimitedError


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_key_may_burst_and_is_then_told_when_to_come_back() -> None:
    """Y1."""
    limits = KeyLimits(RateLimit(per_second=0.5, burst=3), clock=Clock())
    for _ in range(3):
        limits.take(b"a")
    with pytest.raises(RateLimitedError) as caught:
        limits.take(b"a")
    assert caught.value.retry_after_s == 2


def test_waiting_as_long_as_told_is_enough() -> None:
    """Y1."""
    clock = Clock()
    limits = KeyLimits(RateLimit(per_second=0.5, burst=1), clock=clock)
    limits.take(b"a")
    clock.now += 2
    limits.take(b"a")


def test_one_key_does_not_use_up_another_ones_requests() -> None:
    """Y1."""
    limits = KeyLimits(RateLimit(per_second=1, burst=1), clock=Clock())
    limits.take(b"a")
    limits.take(b"b")


def test_an_idle_key_saves_no_more_than_a_burst() -> None:
    """Y1."""
    clock = Clock()
    limits = KeyLimits(RateLimit(per_second=10, burst=2), clock=clock)
    limits.take(b"a")
    clock.now += 3_600
    limits.take(b"a")
    limits.take(b"a")
    with pytest.raises(RateLimitedError):
        limits.take(b"a")

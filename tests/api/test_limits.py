"""The limits of requests and connections (SPEC Y1, S4)."""

import httpx
import pytest
from fastapi import FastAPI

from api.limits import KeyLimits, RateLimit
from api.serving import ApiServer
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


def test_the_server_keeps_an_idle_connection_longer_than_clients_do(app: FastAPI) -> None:
    """S4: else a request sent at that very moment is lost on the way, and its sender can't know whether it came."""
    kept_by_clients = httpx.Limits().keepalive_expiry
    assert kept_by_clients is not None
    assert ApiServer(app, host="127.0.0.1", port=0).config.timeout_keep_alive > 2 * kept_by_clients

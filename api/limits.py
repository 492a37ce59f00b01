"""How many requests one key may make: a token bucket per key, in the memory of this process (SPEC Y1)."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from context.errors import RateLimitedError

REMEMBERED_KEYS = 10_000


@dataclass(frozen=True)
class RateLimit:
    """`per_second` requests on average, and up to `burst` at once."""

    per_second: float = 200
    burst: int = 1_000


@dataclass
class _Bucket:
    tokens: float
    filled_at: float


class KeyLimits:
    """Takes one token per request. A key that was idle long enough is forgotten, which only fills its bucket."""

    def __init__(self, limit: RateLimit, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._buckets: OrderedDict[UUID | bytes, _Bucket] = OrderedDict()

    def take(self, key: UUID | bytes) -> None:
        """Raises RateLimitedError, with the whole seconds after which a token is there again."""
        bucket = self._filled(key)
        if bucket.tokens < 1:
            raise RateLimitedError(max(1, math.ceil((1 - bucket.tokens) / self._limit.per_second)))
        bucket.tokens -= 1

    def _filled(self, key: UUID | bytes) -> _Bucket:
        now = self._clock()
        bucket = self._buckets.pop(key, None) or _Bucket(self._limit.burst, now)
        bucket.tokens = min(self._limit.burst, bucket.tokens + (now - bucket.filled_at) * self._limit.per_second)
        bucket.filled_at = now
        self._buckets[key] = bucket
        if len(self._buckets) > REMEMBERED_KEYS:
            self._buckets.popitem(last=False)
        return bucket

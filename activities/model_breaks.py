"""What follows a try at a model call that broke: its failure is stored, then another try or the end (SPEC L2)."""

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING
from uuid import UUID

from activities.failures import try_again, until_stored
from context.errors import BudgetExhaustedError, ModelContextLengthError, ModelFailedError, UnavailableError
from context.policy import Limits, RetryPolicy
from context.spending import spent
from context.steps import Content, FailAttempt, Failures, ModelBroke, ModelVerdict

if TYPE_CHECKING:
    from storage.run_commits import RunCommits

_LONGEST_WISH_S = 366 * 86_400.0
"""A longer pause is no wish but a mistake, and is told to nobody."""


@dataclass(frozen=True)
class ModelTry:
    """A try at a call. `deadline_at` is when the Run's time is used up, in seconds since 1970."""

    operation_id: UUID
    attempt_no: int
    request_hash: bytes
    deadline_at: float | None


@asynccontextmanager
async def leaving_hash(commits: "RunCommits", operation_id: UUID, request_hash: bytes) -> AsyncIterator[None]:
    """A call that a stop, a deadline or the end of this process breaks off leaves the hash of what it sent (SPEC A9).

    What it used is counted by whoever closes its try (SPEC L5).
    """
    try:
        yield
    except asyncio.CancelledError:
        # Without a database nobody can be told; the cancellation goes on in any case.
        with suppress(UnavailableError):
            await commits.note_sent(operation_id, request_hash)
        raise


async def settle_break(
    commits: "RunCommits", policy: RetryPolicy, limits: Limits, tried: ModelTry, broke: ModelBroke
) -> ModelVerdict:
    """Store the failure; the verdict if it was the last try. Raises the failure that Temporal answers with another."""
    before = await until_stored(lambda: commits.failures(tried.operation_id))
    pause = broke.retry_after_s or 0
    out_of_tries = before.count + 1 >= policy.max_attempts or before.elapsed_s + pause > policy.max_elapsed_s
    too_late = tried.deadline_at is not None and time.time() + pause > tried.deadline_at
    final = not broke.retryable or out_of_tries or too_late
    verdict = _failure(broke) if final else _too_dear(limits, before, broke)
    failed = FailAttempt(
        operation_id=tried.operation_id,
        attempt_no=tried.attempt_no,
        request_hash=tried.request_hash,
        code=ModelFailedError.code,
        reason=broke.reason,
        status=broke.status,
        verdict=verdict,
        fragment=Content(broke.fragment) if broke.fragment else None,
        usage=broke.usage,
        cost=broke.cost,
    )
    await until_stored(lambda: commits.fail_attempt(failed))
    if verdict is None:
        raise try_again(broke, before.count)
    return verdict


async def spent_before(commits: "RunCommits", limits: Limits, tried: ModelTry) -> ModelVerdict | None:
    """The end, if what the tries before this one used reached a limit of the Run (SPEC L5): then it is not made."""
    if tried.attempt_no == 1 or (limits.max_total_tokens is None and limits.max_cost is None):
        return None
    before = await until_stored(lambda: commits.failures(tried.operation_id))
    if not _is_spent(limits, before.tokens, before.cost):
        return None
    verdict = _used_up()
    unmade = FailAttempt(
        operation_id=tried.operation_id,
        attempt_no=tried.attempt_no,
        request_hash=tried.request_hash,
        code=BudgetExhaustedError.code,
        reason=BudgetExhaustedError.end_reason,
        status=0,
        verdict=verdict,
    )
    await until_stored(lambda: commits.fail_attempt(unmade))
    return verdict


def _too_dear(limits: Limits, before: Failures, broke: ModelBroke) -> ModelVerdict | None:
    """The end if what broke took the Run over a limit (SPEC L5): another try would only add to it."""
    if broke.usage is None:
        return None
    tokens = before.tokens + (broke.usage.input_tokens or 0) + (broke.usage.output_tokens or 0)
    return _used_up() if _is_spent(limits, tokens, before.cost + (broke.cost or 0)) else None


def _is_spent(limits: Limits, tokens: int, cost: Decimal) -> bool:
    used = spent(tokens=tokens, cost=cost, max_total_tokens=limits.max_total_tokens, max_cost=limits.max_cost)
    return used is not None


def _used_up() -> ModelVerdict:
    over = BudgetExhaustedError
    return ModelVerdict(kind="failed", end_reason=over.end_reason, code=over.code, over_budget=True)


def _failure(broke: ModelBroke) -> ModelVerdict:
    """The end of a model call that can't be made: the provider's own overflow has its own code (SPEC B7, L2)."""
    if broke.reason == "context_length":
        overflow = ModelContextLengthError
        return ModelVerdict(kind="failed", end_reason=overflow.end_reason, code=overflow.code, status=broke.status)
    code, pause = ModelFailedError.code, broke.retry_after_s or 0
    retry_at = math.ceil(time.time() + pause) if 0 < pause <= _LONGEST_WISH_S else 0
    return ModelVerdict(kind="failed", end_reason=broke.reason, code=code, status=broke.status, retry_at=retry_at)

"""The one place that turns a domain error into Temporal's terms: a type, a posture, and nothing of what was said.

Failures sent to Temporal hold code and numbers, never a foreign cause, message or stack trace (SPEC Y6).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TypeVar

from temporalio.exceptions import ApplicationError

from context.errors import (
    AgentLoomError,
    AttemptSupersededError,
    CorruptPayloadError,
    RefusedError,
    SupersededError,
    UnavailableError,
)
from context.steps import ModelBroke
from context.tool_answers import ToolLost

T = TypeVar("T")
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 2.0
FIRST_RETRY_S, LONGEST_RETRY_S = 0.5, 30.0
SOON = timedelta(seconds=1)  # a database that was away is back within seconds, or watched until it is


@asynccontextmanager
async def translated() -> AsyncIterator[None]:
    """Domain errors leave an activity as ApplicationError with their code as type and no cause."""
    try:
        yield
    except AgentLoomError as error:
        raise as_failure(error) from None


def as_failure(error: AgentLoomError) -> ApplicationError:
    """A lost database is worth another try of the same activity; most other failures would come again.

    So is a try that another one overtook: where tries overlap, the one that began last need not be the one that the
    server still waits for, and the next one finds out what became of the call.
    """
    final = isinstance(error, SupersededError | CorruptPayloadError | RefusedError)
    final = final and not isinstance(error, AttemptSupersededError)
    soon = SOON if isinstance(error, UnavailableError) else None
    return ApplicationError(error.sentence, error.numbers, type=error.code, non_retryable=final, next_retry_delay=soon)


def try_again(lost: ModelBroke | ToolLost, failed_before: int) -> ApplicationError:
    """A try that may be repeated: the provider's own wish for a pause goes before our back-off (SPEC L2)."""
    pause = lost.retry_after_s
    if pause is None:
        pause = min(LONGEST_RETRY_S, FIRST_RETRY_S * 2 ** min(failed_before, 10))
    name = "MODEL_ATTEMPT_FAILED" if isinstance(lost, ModelBroke) else "TOOL_ATTEMPT_FAILED"
    detail = f"{lost.reason}, HTTP {lost.status}" if lost.status else lost.reason
    return ApplicationError(
        f"Attempt failed ({detail}); it is tried again.", type=name, next_retry_delay=timedelta(seconds=pause)
    )


async def until_stored(commit: Callable[[], Awaitable[T]]) -> T:
    """Repeat a commit while the database is away: whoever holds a result stores it, and never calls again (SPEC 0)."""
    pause = FIRST_PAUSE_S
    while True:
        try:
            return await commit()
        except UnavailableError:
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE_S, pause * 2)

"""How code of other people is run: within a time limit, its exceptions as values, never in the way of a stop.

An exception of a tool ends here as a value. It is never raised again, chained or logged, since its words are content.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Token, copy_context
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from process_logs import FOREIGN
from tools.errors import ToolTimeoutError, ToolUnavailableError
from tools.port import Tool, ToolInvocation, ToolOutcome
from tools.threads import KeptThreads

_BEAT_S = 1.0
THREADS = KeptThreads()
_MOST_OF_A_GROUP = 5
T = TypeVar("T")


@dataclass(frozen=True)
class Returned:
    """Foreign code came back with a value."""

    value: Any


@dataclass(frozen=True)
class Raised:
    """Foreign code raised; only the type's name may leave the encrypted content."""

    error_type: str
    message: str


class Caught:
    """Takes whatever foreign code raises, `SystemExit` and `CancelledError` included (SPEC T9), and mutes its logging.

    A cancellation of ours reaches whoever waits for foreign code, outside of this. So what comes out here is the
    foreign code's own, or no longer awaited by anybody.
    """

    error: BaseException | None = None
    _mark: Token[bool]

    def __enter__(self) -> "Caught":
        self._mark = FOREIGN.set(True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        FOREIGN.reset(self._mark)
        self.error = error
        return True


def raised(error: BaseException) -> Raised:
    """The error as a value; a broken `__str__` of it costs the message, not the result."""
    message = ""
    with Caught():
        message = _group_words(error) if isinstance(error, BaseExceptionGroup) else str(error)
    return Raised(type(error).__name__, message)


def _group_words(group: BaseExceptionGroup[BaseException]) -> str:
    """A group's own words, and what is in it, which they don't name."""
    parts = [f"{one.error_type}: {one.message}" for one in map(raised, group.exceptions[:_MOST_OF_A_GROUP])]
    return "; ".join([str(group.message), *parts])


def attempted(start: Callable[[], Any]) -> Returned | Raised:
    """What foreign code that is no coroutine gives, here and now."""
    caught = Caught()
    with caught:
        return Returned(start())
    assert caught.error is not None
    return raised(caught.error)


async def run_within_limit(tool: Tool, call: ToolInvocation, *, on_progress: Callable[[], None]) -> ToolOutcome:
    """The tool's answer within its frozen time limit.

    Raises ToolTimeoutError after that time, and ToolUnavailableError as the tool does. A stop (cancellation) ends
    it at once, even if the tool ignores it (SPEC S8).
    """
    try:
        async with asyncio.timeout(tool.frozen.timeout_s):
            return await tool.run(call, on_progress=on_progress)
    except TimeoutError:
        raise ToolTimeoutError(may_have_run=call.delivery.has_begun) from None


async def unless_stopped(work: Coroutine[Any, Any, T]) -> T:
    """The result of the work, in a task of its own, so that a stop doesn't wait until the work has cleaned up."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(_seen)
    try:
        await asyncio.wait({task})
    finally:
        task.cancel()
    return task.result()


def _seen(task: asyncio.Task[Any]) -> None:
    """Looks at what nobody waits for any more, or asyncio would log it with its words."""
    if not task.cancelled():
        task.exception()


async def run_async(start: Callable[[], Awaitable[Any]], *, on_progress: Callable[[], None]) -> Returned | Raised:
    """What the coroutine function gives, in a task of its own: a stop doesn't wait for one that swallows it."""

    async def contained() -> Returned | Raised:
        caught = Caught()
        with caught:
            return Returned(await start())
        assert caught.error is not None
        return raised(caught.error)

    task = asyncio.ensure_future(contained())
    try:
        await _wait(task, on_progress)
    finally:
        task.cancel()
    # A tool that cancelled its own task and then returned.
    return Raised("CancelledError", "") if task.cancelled() else task.result()


async def run_in_thread(work: Callable[[], T], *, on_progress: Callable[[], None]) -> T:
    """What the work gives, in a daemon thread: one that never returns holds up neither a stop nor the exit.

    Foreign code in the work is `attempted` there. Raises ToolUnavailableError if there is no room for one more thread,
    or if the work itself breaks, as it may when memory is short.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Returned | Raised] = loop.create_future()
    surroundings = copy_context()

    def settle(result: Returned | Raised) -> None:
        if not answer.done():
            answer.set_result(result)

    def body() -> None:
        result = attempted(partial(surroundings.run, work))
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result)

    _start(body)
    await _wait(answer, on_progress)
    value: T = _value(answer.result())
    return value


def _value(result: Returned | Raised) -> Any:
    if isinstance(result, Raised):
        raise ToolUnavailableError("connection_lost", may_have_run=True)
    return result.value


def _start(body: Callable[[], None]) -> None:
    try:
        THREADS.run(body)
    except RuntimeError:
        raise ToolUnavailableError("not_started", may_have_run=False) from None


async def _wait(future: asyncio.Future[Any], on_progress: Callable[[], None]) -> None:
    while not (await asyncio.wait({future}, timeout=_BEAT_S))[0]:
        on_progress()

"""How code of other people is run: within a time limit, its exceptions as values, never in the way of a stop.

An exception of a tool ends here as a value. It is never raised again, chained or logged, since its words are content.
"""

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

from tools.errors import ToolTimeoutError
from tools.port import Tool, ToolInvocation, ToolOutcome

_BEAT_S = 1.0
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
    """Takes what foreign code raises, `SystemExit` included, so that a tool can't end the worker.

    What is not the tool's to raise goes on: a cancellation, an interrupt, a generator being closed.
    """

    error: BaseException | None = None

    def __enter__(self) -> "Caught":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is None or isinstance(error, asyncio.CancelledError | GeneratorExit | KeyboardInterrupt):
            return False
        self.error = error
        return True


def raised(error: BaseException) -> Raised:
    """The error as a value; a broken `__str__` of it costs the message, not the result."""
    message = ""
    with Caught():
        message = str(error)
    return Raised(type(error).__name__, message)


async def run_within_limit(tool: Tool, call: ToolInvocation, *, on_progress: Callable[[], None]) -> ToolOutcome:
    """The tool's answer within its frozen time limit.

    Raises ToolTimeoutError after that time, and ToolUnavailableError as the tool does. A stop (cancellation) ends
    it at once, even if the tool ignores it (SPEC S8).
    """
    try:
        async with asyncio.timeout(tool.frozen.timeout_s):
            return await tool.run(call, on_progress=on_progress)
    except TimeoutError:
        raise ToolTimeoutError from None


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
    return Raised("CancelledError", "") if task.cancelled() else task.result()


async def run_in_thread(start: Callable[[], Any], *, on_progress: Callable[[], None]) -> Returned | Raised:
    """What the function gives, in a daemon thread: one that never returns holds up neither a stop nor the exit."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Returned | Raised] = loop.create_future()
    surroundings = contextvars.copy_context()

    def settle(result: Returned | Raised) -> None:
        if not answer.done():
            answer.set_result(result)

    def body() -> None:
        result = _outcome_of(surroundings, start)
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result)

    threading.Thread(target=body, name="tool", daemon=True).start()
    await _wait(answer, on_progress)
    return answer.result()


def _outcome_of(surroundings: contextvars.Context, start: Callable[[], Any]) -> Returned | Raised:
    caught = Caught()
    with caught:
        return Returned(surroundings.run(start))
    assert caught.error is not None
    return raised(caught.error)


async def _wait(future: asyncio.Future[Any], on_progress: Callable[[], None]) -> None:
    while not (await asyncio.wait({future}, timeout=_BEAT_S))[0]:
        on_progress()

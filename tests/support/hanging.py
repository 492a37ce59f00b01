"""Says where every task stands if the end of a test takes too long: what is awaited is on no thread's stack."""

import asyncio
import gc
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

TOO_LONG_S = 20


@contextmanager
def told_if_it_hangs(within_s: float = TOO_LONG_S) -> Iterator[None]:
    """While the block runs in the event loop; what is told goes to standard error, which pytest shows."""
    telling = asyncio.get_running_loop().call_later(within_s, _tell)
    try:
        yield
    finally:
        telling.cancel()


def _tell() -> None:
    for task in asyncio.all_tasks():
        print(f"{task.get_name()}: {' > '.join(_awaited(task.get_coro()))}", file=sys.stderr)


def _awaited(awaitable: Any) -> Iterator[str]:
    """The places at which a coroutine, what it awaits, and so on, stand."""
    while awaitable is not None:
        if inspect.iscoroutine(awaitable):
            yield _place(awaitable.cr_code, awaitable.cr_frame)
            awaitable = awaitable.cr_await
        elif inspect.isasyncgen(awaitable):
            yield _place(awaitable.ag_code, awaitable.ag_frame)
            awaitable = awaitable.ag_await
        else:
            awaitable = next(iter(_behind(awaitable)), None)


def _place(code: CodeType, frame: FrameType | None) -> str:
    return f"{code.co_filename}:{frame.f_lineno if frame else '?'} {code.co_name}"


def _behind(step: Any) -> list[Any]:
    """The generator that a step of it (`__anext__` and the like) runs, which Python has no name for."""
    return [one for one in gc.get_referents(step) if inspect.isasyncgen(one) or inspect.iscoroutine(one)]

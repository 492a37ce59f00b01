"""Records the first output of a model call beside the reading of its stream (SPEC S6), so that neither waits."""

import asyncio
from collections.abc import Awaitable, Callable


class Evidence:
    """Runs `on_first_output` once. Its error ends the call; leaving the block early cancels it."""

    def __init__(self, on_first_output: Callable[[], Awaitable[None]]) -> None:
        self._on_first_output = on_first_output
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Evidence":
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.exception()  # seen by `check` or `settled` already, or outweighed by what ended the block

    def begin(self) -> None:
        """Output has come; further calls change nothing."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    def check(self) -> None:
        """Raise the recording's error, if it has failed by now."""
        if self._task is not None and self._task.done():
            self._task.result()

    async def settled(self) -> None:
        """Wait for the recording, and raise its error."""
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        await self._on_first_output()

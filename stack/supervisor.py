"""Keeps child processes alive: starts them until they answer, restarts one that dies, stops them in reverse order.

It knows nothing of what the children are. Whoever builds it hears of every change of process ids and of every
restart; nothing is printed here.
"""

import asyncio
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from stack.children import ChildSpec, exited, has_ended, last_line, send, spawn
from stack.errors import StackError
from stack.stand_ins import StandIn

STEADY_AFTER_S = 5.0
"""A child that lived this long has its restarts forgotten."""
STEADY_BEFORE_KILL_S = 2.0
"""The same for one that somebody else ended: it had begun to work, and nothing says that it would end again."""
LONGEST_PAUSE_S = 5.0
READY_PAUSE_S = 0.03


@dataclass
class Kept:
    """One child under supervision: its process now, and how often it ended without becoming steady."""

    spec: ChildSpec
    process: subprocess.Popen[bytes]
    failures: int = 0
    exit_code: int | None = None
    stand_in: StandIn = field(init=False)

    def __post_init__(self) -> None:
        self.stand_in = StandIn(self.spec)


class Supervisor:
    """One parent's children, by name in the order they were started."""

    def __init__(
        self,
        *,
        on_pids: Callable[[Mapping[str, int | None]], None] = lambda pids: None,
        on_restart: Callable[[str, int], None] = lambda name, exit_code: None,
    ) -> None:
        self._on_pids = on_pids
        self._on_restart = on_restart
        self._kept: dict[str, Kept] = {}
        self._keepers: dict[str, asyncio.Task[None]] = {}

    @property
    def pids(self) -> dict[str, int | None]:
        """Process ids by name; None for a child that is down at this moment."""
        return {name: None if has_ended(kept.process) else kept.process.pid for name, kept in self._kept.items()}

    async def start(self, spec: ChildSpec, *, within_s: float = 30.0) -> None:
        """Start a child and return when it answers; from then on it is kept alive.

        Raises:
            StackError: it ended too often before it answered, or did not answer in time.
        """
        kept = Kept(spec, spawn(spec))
        self._kept[spec.name] = kept
        self._keepers[spec.name] = asyncio.create_task(self._keep(kept))
        self._on_pids(self.pids)
        try:
            async with asyncio.timeout(within_s):
                await self._until_ready(kept)
        except TimeoutError:
            raise _not_started(spec, f"It did not answer within {within_s:g} seconds.") from None
        kept.failures = 0

    async def stop(self) -> None:
        """Stop all children, last started first. Cancelled while it waits, it kills what is left."""
        for keeper in self._keepers.values():
            keeper.cancel()
        await asyncio.gather(*self._keepers.values(), return_exceptions=True)
        for kept in self._kept.values():
            kept.stand_in.end()
        try:
            for kept in reversed(self._kept.values()):
                await _stop_one(kept)
        finally:
            self._kill_all()
            self._on_pids(self.pids)

    def _kill_all(self) -> None:
        for kept in self._kept.values():
            send(kept.process, signal.SIGKILL)
            kept.process.wait()

    async def _until_ready(self, kept: Kept) -> None:
        while has_ended(kept.process) or not await kept.spec.is_ready(kept.process.pid):
            if kept.failures >= kept.spec.start_attempts:
                raise _not_started(kept.spec, f"It ended with exit code {kept.exit_code}.")
            await asyncio.sleep(READY_PAUSE_S)

    async def _keep(self, kept: Kept) -> None:
        while True:
            started = time.monotonic()
            kept.exit_code = exit_code = await _ended(kept)
            kept.failures = failures_in_a_row(kept.failures, lived_s=time.monotonic() - started, exit_code=exit_code)
            self._on_pids(self.pids)
            self._on_restart(kept.spec.name, exit_code)
            await asyncio.sleep(pause_before_restart(kept.failures))
            kept.process = kept.stand_in.takes_over()
            self._on_pids(self.pids)


def failures_in_a_row(before: int, *, lived_s: float, exit_code: int) -> int:
    """How often a child has ended without becoming steady, this time included."""
    steady_after_s = STEADY_BEFORE_KILL_S if exit_code == -signal.SIGKILL else STEADY_AFTER_S
    return 1 if lived_s > steady_after_s else before + 1


def pause_before_restart(failures: int) -> float:
    """Seconds to wait before a child that ended `failures` times in a row is started again; the first is at once."""
    return 0.0 if failures <= 1 else min(LONGEST_PAUSE_S, 0.1 * 2 ** min(failures - 2, 10))


async def _ended(kept: Kept) -> int:
    """Wait for the end of a child; its exit code. Meanwhile another process gets ready to take its place."""
    loading = asyncio.create_task(kept.stand_in.load())
    try:
        return await exited(kept.process)
    finally:
        loading.cancel()


async def _stop_one(kept: Kept) -> None:
    send(kept.process, kept.spec.stop_signal)
    try:
        async with asyncio.timeout(kept.spec.stop_within_s):
            await exited(kept.process)
    except TimeoutError:
        send(kept.process, signal.SIGKILL)
        await exited(kept.process)


def _not_started(spec: ChildSpec, reason: str) -> StackError:
    line = last_line(spec.log_file)
    return StackError(
        f"{spec.name} did not start.",
        why=f"{reason} Its last words: {line}" if line else reason,
        mend=f"Read {spec.log_file}, then try again.",
    )

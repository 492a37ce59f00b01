"""Servers of a test's own that can be killed and started again on the same data and port."""

import asyncio
import signal
import subprocess

from stack.children import ChildSpec, send, spawn


class Mortal:
    """One of them."""

    def __init__(self, spec: ChildSpec) -> None:
        self._spec = spec
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        for _ in range(self._spec.start_attempts):
            self._process = spawn(self._spec)
            while self._process.poll() is None:
                if await self._spec.is_ready(self._process.pid):
                    return
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.2)  # a stale lock of the one that was killed
        raise AssertionError(f"{self._spec.name} did not come back")

    def kill(self) -> None:
        assert self._process
        send(self._process, signal.SIGKILL)
        self._process.wait()

    def end(self) -> None:
        if self._process and self._process.poll() is None:
            send(self._process, self._spec.stop_signal)
            self._process.wait(15)

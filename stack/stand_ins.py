"""A process that waits, loaded, to take the place of a child that ends (decision 0126).

What a start costs, one to three seconds of a busy machine, then passes before it is needed. The process is given its
command with `--stand-in` and works once it reads a line; at the end of its input it ends.
"""

import asyncio
import signal
import subprocess
from contextlib import suppress

from stack.children import ChildSpec, has_ended, send, spawn, spawn_waiting


class StandIn:
    """At most one process beside a child, for specs that ask for it."""

    def __init__(self, spec: ChildSpec) -> None:
        self._spec = spec
        self._waiting: subprocess.Popen[bytes] | None = None

    async def load(self) -> None:
        """Have one waiting, some time after the child's start, whose own work comes first."""
        if self._spec.stand_in_after_s is not None:
            await asyncio.sleep(self._spec.stand_in_after_s)
            self.end()
            self._waiting = spawn_waiting(self._spec)

    def takes_over(self) -> subprocess.Popen[bytes]:
        """The child's next process: the one that waits, or a new one if there is none."""
        if self._waiting is None or has_ended(self._waiting):
            self.end()
            return spawn(self._spec)
        waiting, self._waiting = self._waiting, None
        assert waiting.stdin
        with suppress(BrokenPipeError), waiting.stdin as told:  # dead in this moment: then its end is seen as a child's
            told.write(b"\n")
        return waiting

    def end(self) -> None:
        """Leave none behind."""
        if self._waiting is not None:
            send(self._waiting, signal.SIGKILL)
            self._waiting.communicate()
            self._waiting = None

"""Daemon threads that wait for the next piece of work, since starting one costs more than most tools do.

A thread whose work never returns is never used again: it is in nobody's way, and ends with the process.
"""

import threading
from collections.abc import Callable
from queue import SimpleQueue

MOST_IDLE = 16


class KeptThreads:
    """Runs each piece of work at once, in a thread that is idle or in a new one. What the work raises is its own."""

    def __init__(self) -> None:
        self._idle: list[SimpleQueue[Callable[[], None]]] = []

    @property
    def idle(self) -> int:
        """How many threads wait for work."""
        return len(self._idle)

    def run(self, work: Callable[[], None]) -> None:
        """Start the work; raises RuntimeError if there is no room for one more thread."""
        try:
            waiting = self._idle.pop()
        except IndexError:
            waiting = SimpleQueue()
            threading.Thread(target=self._serve, args=(waiting,), name="tool", daemon=True).start()
        waiting.put(work)

    def _serve(self, waiting: SimpleQueue[Callable[[], None]]) -> None:
        while True:
            waiting.get()()
            if len(self._idle) >= MOST_IDLE:
                return
            self._idle.append(waiting)

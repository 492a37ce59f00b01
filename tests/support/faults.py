"""Faults that strike at the named points between doing and recording (`storage/store.py`, `FaultPlan`)."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self

from storage.store import FaultPlan


@dataclass(frozen=True)
class Fault:
    """At the `nth` pass of `point`: end this process without a word, or wait until the file `gate` exists.

    `reached` is a file that appears when the fault strikes.
    """

    point: str
    reached: str
    kind: Literal["kill", "wait"] = "kill"
    nth: int = 1
    gate: str = ""

    def as_json(self) -> dict[str, Any]:
        """For a line to another process."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        return cls(**fields)


class Strikes(FaultPlan):
    """Strikes each of its faults once."""

    def __init__(self, *faults: Fault) -> None:
        self._faults = faults
        self._passes: Counter[str] = Counter()

    async def reach(self, point: str) -> None:
        self._passes[point] += 1
        for fault in self._faults:
            if (fault.point, fault.nth) == (point, self._passes[point]):
                await _strike(fault)


async def _strike(fault: Fault) -> None:
    Path(fault.reached).touch()
    if fault.kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    while not Path(fault.gate).exists():
        await asyncio.sleep(0.01)


class Pauses(FaultPlan):
    """Runs `then` at the first pass of `point`, in this process, before going on."""

    def __init__(self, point: str, then: Callable[[], Awaitable[None]]) -> None:
        self._point: str | None = point
        self._then = then

    async def reach(self, point: str) -> None:
        if point == self._point:
            self._point = None
            await self._then()


class Counts(FaultPlan):
    """Strikes never; knows which points were passed, and how often."""

    def __init__(self) -> None:
        self.passed: Counter[str] = Counter()

    async def reach(self, point: str) -> None:
        self.passed[point] += 1

"""Activities that answer by script, registered under the names of the real ones. They take and give plain JSON.

So the workflow is tried without database and model, on a real server: what it asks for, in which order, and what it
makes of the answers.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from temporalio import activity
from temporalio.exceptions import ApplicationError

Json = dict[str, Any]
Verdict = Json | Callable[[], Awaitable[Json]] | ApplicationError

ANSWER: Json = {"kind": "answer"}


def tools(*names: str, local: bool = False) -> Json:
    """The verdict of an answer that calls these tools."""
    plans = [{"ordinal": ordinal, "name": name, "timeout_s": 5, "local": local} for ordinal, name in enumerate(names)]
    return {"kind": "tools", "tools": plans, "batch": len(plans)}


@dataclass
class ScriptedRun:
    """One Run's script: the verdicts of its model calls, and what its activities were asked for."""

    verdicts: list[Verdict] = field(default_factory=list)
    terms: Json = field(default_factory=dict)
    opened: Json = field(default_factory=dict)
    cutoffs: list[int] = field(default_factory=list)
    go_on: int = 0
    asked: list[str] = field(default_factory=list)
    finished: list[Json] = field(default_factory=list)
    tool: Callable[[Json], Awaitable[Json]] | None = None
    prepared: list[Json] = field(default_factory=list)
    broken: dict[str, ApplicationError] = field(default_factory=dict)
    """What steps raise instead of doing anything."""

    @property
    def activities(self) -> list[Callable[..., Any]]:
        """For a worker."""
        return [
            self.open_run,
            self.prepare_request,
            self.settle_and_prepare,
            self.call_model,
            self.call_tool,
            self.finish_run,
        ]

    @activity.defn(name="open_run")
    async def open_run(self, request: Json) -> Json:
        self._ask("open_run")
        ids = {name: str(uuid4()) for name in ("session_id", "context_id", "release_id")}
        opened = ids | {"run_no": 1, "loops": 0, "active_ms": 0, "batch_id": None} | self.opened
        limits = {"max_loops": 10, "deadline_s": 60, "max_parallel_tools": 8, "continue_late_input": False}
        return {"opened": opened, "agent": "scout"} | limits | self.terms

    @activity.defn(name="prepare_request")
    async def prepare_request(self, request: Json) -> Json:
        return self._prepared(request)

    @activity.defn(name="settle_and_prepare")
    async def settle_and_prepare(self, request: Json) -> Json:
        return self._prepared(request["prepare"])

    def _prepared(self, request: Json) -> Json:
        self._ask("prepare")
        self.prepared.append(request)
        cutoff = self.cutoffs.pop(0) if self.cutoffs else 1
        sizes = {"estimated": 6120, "input_limit": 8000, "supplements": 0}
        return {"cutoff": cutoff} | sizes

    def _ask(self, step: str) -> None:
        self.asked.append(step)
        if step in self.broken:
            raise self.broken[step]

    @activity.defn(name="call_model")
    async def call_model(self, call: Json) -> Json:
        self.asked.append("call_model")
        verdict = self.verdicts.pop(0) if self.verdicts else ANSWER
        if isinstance(verdict, ApplicationError):
            raise verdict
        return verdict if isinstance(verdict, dict) else await verdict()

    @activity.defn(name="call_tool")
    async def call_tool(self, call: Json) -> Json:
        self.asked.append("call_tool")
        return await self.tool(call) if self.tool else {"kind": "settled"}

    @activity.defn(name="finish_run")
    async def finish_run(self, request: Json) -> Json:
        self.asked.append("finish_run")
        self.finished.append(request)
        if self.go_on and request["status"] == "succeeded":
            self.go_on -= 1
            return {"status": "running", "end_reason": None, "code": None, "go_on": True}
        return {name: request[name] for name in ("status", "end_reason", "code")}


@dataclass
class Held:
    """A verdict that waits until it is let go; it obeys a cancellation like the real call."""

    verdict: Json = field(default_factory=lambda: dict(ANSWER))
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: bool = False

    async def __call__(self) -> Json:
        self.reached.set()
        try:
            while not self.gate.is_set():
                activity.heartbeat()
                await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return self.verdict

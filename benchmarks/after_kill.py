"""How soon a Run's next model call comes after `kill -9` in the middle of a call, on a real `agentloom dev`.

`python -m benchmarks.after_kill [ROUNDS]`. Killed is the worker, or worker, API, Temporal and PostgreSQL at once; while
the model answers, or while a tool with a side effect runs, whose result is then unknown. Temporal misses a worker after
two seconds without a heartbeat; the last one is up to half a second old at the kill.
"""

import asyncio
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.support import replies
from tests.support.dev_stack import DevProcess, running_dev
from tests.support.model_server import ModelServer, RecordedRequest

ROUNDS = 5
MEANT_S = 3.0
HEARTBEAT_S = 2.0
STEADY_S = 8.0  # by then a process that was started again has a stand-in itself
ALL = ("worker", "api", "temporal", "postgres")
TOOLS = Path(__file__).parent
A_WHILE_S = 4.0


def answer(request: RecordedRequest) -> replies.Reply:
    """A question is answered after a while, or with a call of the tool, as it says; a result at once."""
    last = request.json["messages"][-1]
    if last["role"] == "tool":
        return replies.text("done")
    if last["content"] == "tool":
        return replies.calls(("linger", {"seconds": A_WHILE_S}))
    return replies.text("done").but(delay_s=A_WHILE_S)


class Bench:
    """A running stack, the model that it calls, and a client."""

    def __init__(self, dev: DevProcess, model: ModelServer, http: httpx.AsyncClient) -> None:
        self._dev = dev
        self._model = model
        self._http = http

    async def publish(self) -> None:
        """The agent, with a tool that takes its time."""
        model = {"provider": "openai_compatible", "model": "any", "context_window": 32_768}
        tool = {"kind": "python", "name": "linger", "entry": "bench_tools:linger", "effect": "side_effect"}
        definition = {"name": "bench", "model": model | {"base_url": self._model.base_url}, "tools": [tool]}
        await self._post("/agents", {"definition": definition})

    async def pause(self, place: str, victims: Sequence[str]) -> float:
        """Seconds from the kill to the next request at the model."""
        session = await self._post("/sessions", {"agent": "bench"})
        before = len(self._model.requests)
        run = await self._post(f"/sessions/{session['session_id']}/inputs", {"text": place, "mode": "question"})
        await self._model.wait_for_requests(before + 1)
        if place == "tool":
            await self._until(run["run_id"], "running_tools")
        await asyncio.sleep(random.uniform(0.3, 1.2))
        pids = self._dev.pids
        killed_at = time.time()
        for name in victims:
            os.kill(pids[name] or 0, signal.SIGKILL)
        next_one = (await self._model.wait_for_requests(before + 2))[before + 1]
        await self._steady(run["run_id"])
        return next_one.at - killed_at

    async def _until(self, run_id: str, phase: str) -> None:
        while (await self._get(f"/runs/{run_id}"))["phase"] != phase:
            await asyncio.sleep(0.02)

    async def _steady(self, run_id: str) -> None:
        """The Run has ended, and everything has run for a while."""
        began = time.monotonic()
        while not (await self._get(f"/runs/{run_id}"))["ended_at"]:
            await asyncio.sleep(0.1)
        await asyncio.sleep(max(0.0, STEADY_S - (time.monotonic() - began)))

    async def _post(self, path: str, body: dict[str, Any]) -> Any:
        answered = await self._http.post(path, json=body)
        return answered.raise_for_status().json()

    async def _get(self, path: str) -> Any:
        while True:
            try:
                return (await self._http.get(path)).raise_for_status().json()
            except httpx.HTTPError:  # it may have been killed just now
                await asyncio.sleep(0.1)


async def main(dev: DevProcess, rounds: int) -> int:
    described = dev.description
    at: dict[str, Any] = {"base_url": f"{described['api']}/api/v1"}
    at["headers"] = {"Authorization": f"Bearer {described['api_key']}"}
    async with ModelServer([answer] * 1_000) as model, httpx.AsyncClient(**at, timeout=30) as http:
        bench = Bench(dev, model, http)
        await bench.publish()
        await asyncio.sleep(STEADY_S)
        worst = 0.0
        for victims, place in ((one, place) for one in (("worker",), ALL) for place in ("model", "tool")):
            pauses = [await bench.pause(place, victims) for _ in range(rounds)]
            worst = max(worst, *pauses)
            shown = f"median {statistics.median(pauses):.2f} s, worst {max(pauses):.2f} s"
            share = statistics.median(pauses) / HEARTBEAT_S
            print(
                f"{' '.join(victims):<30} during the {place:<5}: {shown}, {share:.2f} x the heartbeat's time",
                flush=True,
            )
    return 0 if worst <= MEANT_S else 1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, running_dev(Path(folder), "--app-dir", str(TOOLS)) as dev:
        sys.exit(asyncio.run(main(dev, int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)))

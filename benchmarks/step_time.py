"""What a step costs beside the floor: a minimal Temporal workflow of two no-op activities a step, in the same run.

`python -m benchmarks.step_time [ROUNDS]`. Both run on one server, a worker in this process, in turn; the step is one
model call and one tool call over real HTTP and a real database. The model's own time is taken off: what is left is what
AgentLoom adds. It is measured where it is spent, as what the same minimal workflow takes longer if its first activity
makes a bare call of the model, since between two activities a call takes longer than in a loop that does nothing else.
"""

import statistics
import sys
import time
from dataclasses import dataclass

import httpx
import uvloop
from temporalio import activity
from temporalio.worker import Worker

from benchmarks.floor import FloorWorkflow, nothing
from benchmarks.ground import Ground, Servers, build_worker, ground, new_session, real_servers, start_run

STEPS = 100


async def floor_step(on: Ground, n: int, http: httpx.AsyncClient, *, first: str = "nothing") -> float:
    """Seconds per step of the floor."""

    @activity.defn
    async def bare_call(n: int) -> int:
        await http.post(f"{on.model_url}/chat/completions", json={"messages": []})
        return n

    queue = f"floor-{on.task_queue}"
    async with Worker(on.client, task_queue=queue, workflows=[FloorWorkflow], activities=[nothing, bare_call]):
        for name, steps in ("warm", 5), ("floor", STEPS):
            began = time.perf_counter()
            workflow_id = f"{name}-{first}-{n}"
            await on.client.execute_workflow(FloorWorkflow.run, args=[steps, first], id=workflow_id, task_queue=queue)
        return (time.perf_counter() - began) / STEPS


async def bare_call_time(on: Ground, http: httpx.AsyncClient) -> float:
    """Seconds of one bare model call with nothing else to do."""
    times = []
    for _ in range(STEPS + 1):
        began = time.perf_counter()
        await http.post(f"{on.model_url}/chat/completions", json={"messages": []})
        times.append(time.perf_counter() - began)
    return statistics.median(times)


async def our_step(on: Ground) -> float:
    """Seconds per step of a Run."""
    session_id, owner_id = await new_session(on)
    async with build_worker(on.client, on.store, on.edges, task_queue=on.task_queue):
        began = time.perf_counter()
        handle = await start_run(on, session_id, owner_id)
        await handle.result()
        return (time.perf_counter() - began) / STEPS


@dataclass(frozen=True)
class Figures:
    """Seconds: medians over the rounds."""

    floor: float
    floor_with_call: float
    bare: float
    run: float

    @property
    def model(self) -> float:
        """What a bare call takes between two activities; never less than alone."""
        return max(self.bare, self.floor_with_call - self.floor)

    def show(self) -> None:
        """Print them."""
        print(f"floor      {self.floor * 1000:6.2f} ms a step (two no-op activities)")
        print(f"with call  {self.floor_with_call * 1000:6.2f} ms a step (the first of them calls the model)")
        print(f"model      {self.model * 1000:6.2f} ms a call in its place ({self.bare * 1000:.2f} ms alone)")
        print(f"run        {self.run * 1000:6.2f} ms a step (model call and tool call)")
        for name, model in ("added", self.model), ("or, if alone", self.bare):
            added = self.run - model
            print(f"{name:<12} {added * 1000:6.2f} ms a step = {added / self.floor:.2f} x the floor")


async def main(at: Servers, rounds: int) -> None:
    async with ground(at, steps=STEPS) as on, httpx.AsyncClient() as http:
        await our_step(on)  # warm
        bare = await bare_call_time(on, http)
        floors, with_calls, ours = [], [], []
        for n in range(rounds):
            floors.append(await floor_step(on, n, http))
            with_calls.append(await floor_step(on, n, http, first="bare_call"))
            ours.append(await our_step(on))
    median = statistics.median
    Figures(median(floors), median(with_calls), bare, median(ours)).show()


if __name__ == "__main__":
    with real_servers() as at:
        uvloop.run(main(at, int(sys.argv[1]) if len(sys.argv) > 1 else 5))

"""What a step costs beside the floor: a minimal Temporal workflow of two no-op activities a step, in the same run.

`python -m benchmarks.step_time [ROUNDS]`. Both run on one server, a worker in this process, in turn; the step is one
model call and one tool call over real HTTP and a real database. The model's own time, measured by calling it alone,
is taken off: what is left is what AgentLoom adds.
"""

import statistics
import sys
import time

import httpx
import uvloop
from temporalio.worker import Worker

from benchmarks.floor import FloorWorkflow, nothing
from benchmarks.ground import Ground, Servers, build_worker, ground, new_session, real_servers, start_run

STEPS = 100


async def floor_step(on: Ground, n: int) -> float:
    """Seconds per step of the floor."""
    queue = f"floor-{on.task_queue}"
    async with Worker(on.client, task_queue=queue, workflows=[FloorWorkflow], activities=[nothing]):
        await on.client.execute_workflow(FloorWorkflow.run, 5, id=f"warm-{n}", task_queue=queue)
        began = time.perf_counter()
        await on.client.execute_workflow(FloorWorkflow.run, STEPS, id=f"floor-{n}", task_queue=queue)
        return (time.perf_counter() - began) / STEPS


async def model_time(on: Ground) -> float:
    """Seconds of one bare model call."""
    async with httpx.AsyncClient() as client:
        times = []
        for _ in range(STEPS + 1):
            began = time.perf_counter()
            await client.post(f"{on.model_url}/chat/completions", json={"messages": []})
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


async def main(at: Servers, rounds: int) -> None:
    async with ground(at, steps=STEPS) as on:
        await our_step(on)  # warm
        bare = await model_time(on)
        floors, ours = [], []
        for n in range(rounds):
            floors.append(await floor_step(on, n))
            ours.append(await our_step(on))
    floor, our = statistics.median(floors), statistics.median(ours)
    print(f"floor      {floor * 1000:6.2f} ms a step (two no-op activities)")
    print(f"model      {bare * 1000:6.2f} ms a bare call")
    print(f"run        {our * 1000:6.2f} ms a step (model call and tool call)")
    print(f"added      {(our - bare) * 1000:6.2f} ms a step = {(our - bare) / floor:.2f} x the floor")


if __name__ == "__main__":
    with real_servers() as at:
        uvloop.run(main(at, int(sys.argv[1]) if len(sys.argv) > 1 else 5))

"""Two hundred Runs at once over HTTP: all end, and a second question on each busy session is refused (SPEC S1).

`python -m benchmarks.many_runs [RUNS]`, on real servers; the worker is a process of its own, the API and the model run
in this one.
"""

import sys
from pathlib import Path

import uvloop

from benchmarks.ground import Servers, real_servers
from tests.support import run_world
from tests.support.child_worker import place_of, worker_nursery
from tests.support.crowd import Crowd, answers_after, ask_at_once, gather
from tests.support.model_server import ModelServer
from tests.support.run_world import python_tool, running_world

RUNS = 200
MODEL_S = 2.0  # long enough for every session to be still busy when it is asked again


async def crowd_of(at: Servers, runs: int) -> Crowd:
    """Ask and wait."""
    servers = run_world.Servers(at.database_url, at.temporal_address, "many", at.folder)
    trace = str(Path(at.folder) / "trace")
    model = ModelServer([answers_after(1, tool="pay", trace=trace, delay_s=MODEL_S)] * (3 * runs))
    with worker_nursery(at.folder) as nursery:
        async with model, running_world(servers, model) as world:
            await world.publish(tools=[python_tool("pay", "idempotent")])
            sessions = await gather(world.open_session() for _ in range(runs))
            async with nursery.worker(place_of(world)):
                return await ask_at_once(world, sessions, second_questions=True)


async def main(at: Servers, runs: int) -> int:
    crowd = await crowd_of(at, runs)
    print(f"{runs} questions accepted in {crowd.accepted_after_s:.2f} s, all Runs ended in {crowd.ended_after_s:.2f} s")
    print(f"of two model calls of {MODEL_S:.0f} s and one tool call each: {dict(crowd.ends)}")
    print(f"second questions: {dict(crowd.refused)}")
    good = crowd.ends == {"succeeded": runs} and crowd.refused == {(409, "RUN_ACTIVE"): runs}
    return 0 if good else 1


if __name__ == "__main__":
    with real_servers() as at:
        sys.exit(uvloop.run(main(at, int(sys.argv[1]) if len(sys.argv) > 1 else RUNS)))

"""Many Runs at once over HTTP (SPEC S1, S2)."""

from pathlib import Path

from tests.support.crowd import answers_after, ask_at_once, gather
from tests.support.run_tools import traced
from tests.support.run_world import RunWorld, python_tool


async def test_seventy_runs_at_once_all_end_and_no_session_has_two(world: RunWorld, tmp_path: Path) -> None:
    """SPEC S1: 409 for each second question on a busy session. `benchmarks.many_runs` does it with two hundred."""
    trace, runs = tmp_path / "trace", 70
    await world.publish(tools=[python_tool("pay", "idempotent")])
    world.model.add(
        *[answers_after(1, tool="pay", trace=str(trace), delay_s=1.0)] * (9 * runs)
    )  # calls are made again where the machine is too slow for heartbeats
    sessions = await gather(world.open_session() for _ in range(runs))
    crowd = await ask_at_once(world, sessions, second_questions=True)
    assert crowd.ends == {"succeeded": runs}
    assert crowd.refused == {(409, "RUN_ACTIVE"): runs}
    assert len(set(traced(trace))) == len(traced(trace)) == runs

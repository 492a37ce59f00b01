"""Workers replaced while Runs are under way (SPEC R2, R3, S8; cases C076, C078)."""

from collections import Counter
from pathlib import Path

import pytest

from tests.support.child_worker import WorkerNursery, WorkerPlace
from tests.support.crowd import answers_after, ask_at_once, gather, repeats, replaced_workers
from tests.support.run_tools import traced
from tests.support.run_world import RunWorld, python_tool


@pytest.mark.timeout(240)
async def test_a_rolling_restart_fails_no_run_and_repeats_no_finished_call(
    world: RunWorld, nursery: WorkerNursery, place: WorkerPlace, tmp_path: Path
) -> None:
    """SPEC R2, R3: every Run ends with its answer; each effect happened once, each request was sent once."""
    trace, loops, runs = tmp_path / "trace", 24, 10
    await world.publish(tools=[python_tool("book", "side_effect")], limits={"max_loops": 50})
    world.model.add(*[answers_after(loops, tool="book", trace=str(trace), delay_s=0.1)] * (runs * (loops + 2)))
    sessions = await gather(world.open_session() for _ in range(runs))
    async with replaced_workers(nursery, place, every_s=1.2) as ended:
        crowd = await ask_at_once(world, sessions, second_questions=False)
    assert crowd.ends == {"succeeded": runs}
    assert len(ended) >= 2
    assert Counter(traced(trace)) == Counter(f"q{n}/{loop}" for n in range(runs) for loop in range(loops))
    assert repeats(world.model) <= world.model.disconnects
    assert len(world.model.requests) == runs * (loops + 1) + repeats(world.model)

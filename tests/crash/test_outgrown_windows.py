"""Many Runs that outgrow their window at once, checked on the bytes that the model received (SPEC A2, A4, A9, K1, K14).

The suite holds a few sessions, `--full-matrix` a hundred Runs.
"""

import logging

import pytest

from tests.support.compacting import outgrow
from tests.support.run_world import Servers, working_world

# The worker of Temporal's SDK warns if a local activity ends just before its cancellation comes; a warning that is an
# error, as in these tests, would end the worker.
pytestmark = pytest.mark.filterwarnings("ignore:Cannot find activity to cancel:UserWarning")


async def test_runs_that_outgrow_their_window_send_nothing_over_it_and_lose_nothing_protected(servers: Servers) -> None:
    """SPEC A2, A4, A9, B1, K1: no request over B, no broken pair, no missing input, no second episode."""
    async with working_world(servers) as world:
        happened = await outgrow(world, 4, questions=2, at_once=4)
    assert happened["runs"] == 8
    assert happened["rebuilt"] == happened["requests"] > 60
    assert happened["episodes activated"] > 8
    assert happened["supplements"] > 0


@pytest.mark.timeout(1_200)
async def test_a_hundred_runs_that_outgrow_their_window(servers: Servers, full_matrix: bool) -> None:
    """SPEC A2, A4, A9, B1, K1, K14: the same with a hundred Runs, and more than a thousand requests rebuilt."""
    if not full_matrix:
        pytest.skip("only with --full-matrix")
    async with working_world(servers) as world:
        happened = await outgrow(world, 20, questions=5, at_once=4)
    logging.getLogger(__name__).info("%s", dict(happened))
    assert happened["runs"] == 100
    assert happened["rebuilt"] == happened["requests"] > 1_000

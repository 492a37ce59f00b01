"""Random Runs over the whole stack against servers that refuse every slip of the protocol (SPEC A4, A6, A9, A11).

The suite holds a few conversations with each kind of server; `--full-matrix` holds more than 1 000 Runs.
"""

import pytest

from tests.support.conversations import converse, publish_speakers
from tests.support.run_world import Json, Servers, working_world
from tests.support.strict_chat import Dialect

# The worker of Temporal's SDK warns if a local activity ends just before its cancellation comes; a warning that is an
# error, as in these tests, would end the worker.
pytestmark = pytest.mark.filterwarnings("ignore:Cannot find activity to cancel:UserWarning")

SERVERS = [
    pytest.param("plain", {}, id="plain"),
    pytest.param("deepseek_thinking", {"provider": "deepseek", "model": "deepseek-chat"}, id="deepseek_thinking"),
    pytest.param("alternating", {"merge_user_messages": True}, id="alternating"),
]


@pytest.mark.parametrize(("dialect", "model"), SERVERS)
async def test_a_strict_server_accepts_every_request_of_random_runs(
    servers: Servers, dialect: Dialect, model: Json
) -> None:
    """SPEC A4, A6, A9, A11: Runs side by side, each with the history of those before it, and supplements meanwhile."""
    async with working_world(servers, strict=dialect) as world:
        await publish_speakers(world, model)
        happened = await converse(world, range(3), questions=2, at_once=3, look_at=1)
    assert happened["runs"] == 6
    assert happened["compared"] == happened["calls"] > 12
    assert happened["supplements"] > 0


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(("dialect", "model"), SERVERS)
async def test_a_strict_server_accepts_every_request_of_a_third_of_a_thousand_runs(
    servers: Servers, dialect: Dialect, model: Json, full_matrix: bool
) -> None:
    """SPEC A4, A6, A9, A11: the same for long, 1 008 different Runs over the three kinds of server."""
    if not full_matrix:
        pytest.skip("only with --full-matrix")
    async with working_world(servers, strict=dialect) as world:
        await publish_speakers(world, model)
        first = 1_000 * [server.id for server in SERVERS].index(dialect)
        happened = await converse(world, range(first, first + 112), questions=3, at_once=6, look_at=0.1)
    assert happened["runs"] == 336
    assert min(happened[what] for what in ("model_auth", "content_filtered", "output_cut", "supplements", "late")) > 5

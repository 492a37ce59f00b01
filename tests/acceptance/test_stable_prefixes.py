"""What stays the same from request to request, byte for byte (SPEC A7, A9); `benchmarks.stable_prefix` is longer."""

from tests.support.compacting import rebuilt
from tests.support.long_sessions import is_block
from tests.support.one_long_run import between_compactions, run_of
from tests.support.run_world import Json, RunWorld
from tests.support.sent_bytes import prefixes

SMALL: Json = {"context_window": 8_000, "max_output_tokens": 1_000}


async def test_between_compactions_each_request_begins_with_the_bytes_of_the_one_before(world: RunWorld) -> None:
    """SPEC A7, A9: nothing but a compaction breaks the prefix, and every request of the Run is rebuilt."""
    run = await run_of(world, 24, longest=700, model=SMALL)
    stretches = between_compactions(world.model.requests)
    kept = prefixes(stretches)
    assert len(stretches) > 2
    assert (kept.pairs, kept.whole, kept.share) == (25 - len(stretches), kept.pairs, 1.0)
    over_all = prefixes([[one for one in world.model.requests if not is_block(one)]])
    assert over_all.pairs - over_all.whole == len(stretches) - 1, "each compaction breaks it once"
    assert (await rebuilt(world, [run["run_id"]], world.model.requests))["rebuilt"] == len(world.model.requests)

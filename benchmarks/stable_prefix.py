"""How much of a request the next one begins with, over a Run of 200 steps with compactions (SPEC A7).

`python -m benchmarks.stable_prefix [STEPS]`, measured on the bytes that the model received. Between compactions at
least 0.99 is meant; what the compactions cost is shown beside it. Every request is also rebuilt and compared.
"""

import sys

import uvloop

from benchmarks.ground import Servers, real_servers
from tests.support import run_world
from tests.support.compacting import rebuilt
from tests.support.long_sessions import is_block
from tests.support.one_long_run import between_compactions, run_of
from tests.support.run_world import working_world
from tests.support.sent_bytes import prefixes

STEPS = 200
MEANT = 0.99
WINDOW = {"context_window": 32_768}


async def main(at: Servers, steps: int) -> int:
    servers = run_world.Servers(at.database_url, at.temporal_address, "prefix", at.folder)
    async with working_world(servers) as world:
        run = await run_of(world, steps, longest=3_000, model=WINDOW)
        sent = world.model.requests
        happened = await rebuilt(world, [run["run_id"]], sent)
    stretches = between_compactions(sent)
    kept, over_all = prefixes(stretches), prefixes([[one for one in sent if not is_block(one)]])
    print(f"{steps} steps, {len(stretches) - 1} compactions, {happened['rebuilt']} of {len(sent)} requests rebuilt")
    print(f"between compactions: {kept.whole} of {kept.pairs} whole, share of bytes {kept.share:.4f}")
    print(f"over all:            {over_all.whole} of {over_all.pairs} whole, share of bytes {over_all.share:.4f}")
    return 0 if kept.share >= MEANT else 1


if __name__ == "__main__":
    with real_servers() as at:
        sys.exit(uvloop.run(main(at, int(sys.argv[1]) if len(sys.argv) > 1 else STEPS)))

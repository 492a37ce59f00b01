"""A hundred Runs that outgrow a small window, checked on the bytes that the model received (SPEC A2, A4, A9, K1, K14).

`python -m benchmarks.outgrown_windows [SESSIONS]`, five questions in each. No request may be over B, no call without
its result, no protected input missing or changed, no operation with a second episode, and each stored call must be
rebuilt with the hash of what was sent; anything else ends it with an error.
"""

import sys
import time

import uvloop

from benchmarks.ground import Servers, real_servers
from tests.support import run_world
from tests.support.compacting import INPUT_LIMIT, outgrow
from tests.support.run_world import working_world
from tests.support.sent_bytes import input_bytes

SESSIONS, QUESTIONS, AT_ONCE = 20, 5, 6


async def main(at: Servers, sessions: int) -> None:
    servers = run_world.Servers(at.database_url, at.temporal_address, "outgrown", at.folder)
    began = time.perf_counter()
    async with working_world(servers) as world:
        happened = await outgrow(world, sessions, questions=QUESTIONS, at_once=AT_ONCE)
        largest = max(input_bytes(request.body) for request in world.model.requests)
    print(f"in {time.perf_counter() - began:.1f} s: {dict(happened)}")
    print(f"largest request {largest} of B = {INPUT_LIMIT}; every call rebuilt; nothing protected missing")


if __name__ == "__main__":
    with real_servers() as at:
        uvloop.run(main(at, int(sys.argv[1]) if len(sys.argv) > 1 else SESSIONS))

"""Worker and API as processes of their own, in what they meet when they start."""

import asyncio
import os
import sys

from stack.ports import any_free_port

KEY = f"{'A' * 43}="
ENVIRONMENT = {
    "DATABASE_URL": "postgresql://ann@127.0.0.1:1/loom",
    "AGENTLOOM_MASTER_KEYS": f"k1:{KEY}",
    "AGENTLOOM_INDEX_KEY": KEY,
}


async def test_a_worker_that_starts_before_temporal_waits_for_it_and_can_be_stopped() -> None:
    """SPEC 17: after a restart of a machine its parts come up in any order."""
    address = f"127.0.0.1:{any_free_port()}"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "worker"),
        env=os.environ | ENVIRONMENT | {"TEMPORAL_ADDRESS": address},
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr
    while b"does not answer" not in (line := await asyncio.wait_for(process.stderr.readline(), timeout=30)):
        assert line, "the worker ended"
    assert address.encode() in line
    process.terminate()
    assert await asyncio.wait_for(process.wait(), timeout=10) == 0

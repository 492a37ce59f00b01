"""Re-encryption in a process of its own that is killed at a fault point: `python -m tests.support.child_reencryption`.

Reads its faults as one line of JSON from standard input, and the rest from the environment, as the command does.
"""

import asyncio
import json
import sys

from settings import load_settings
from storage.commits.reencrypt_payloads import ReencryptPayloads
from storage.payloads import Keys
from storage.reencrypting import reencrypted
from storage.store import Store
from tests.support.faults import Fault, Strikes


async def main() -> None:
    faults = [Fault.from_json(one) for one in json.loads(sys.stdin.readline())]
    settings = load_settings()
    keys = Keys(settings.keys_by_id, settings.index_key)
    store = Store.open(settings.database_url.get_secret_value(), keys, faults=Strikes(*faults))
    async for _ in reencrypted(store, ReencryptPayloads(rows=3)):
        pass
    await store.aclose()


if __name__ == "__main__":
    asyncio.run(main())

"""The hash chain of a context, derived again from nothing but the stored content and its order."""

import hashlib
import json
from uuid import UUID

from sqlalchemy import text

from storage.database import fetch_all, fetch_value
from tests.support import replies
from tests.support.run_world import RunWorld

RECORDS = text("""
    SELECT c.context_seq, c.seq, c.kind, c.role, c.call_id, c.status, c.chain, c.payload_id FROM context_records c
    WHERE c.run_id = :run_id ORDER BY c.context_seq
""")
FORGE_EVENT = text("""
    UPDATE run_events SET body = body || '{"chain": "00"}' WHERE type = 'run_ended'
""")
HEAD = text("SELECT chain FROM role_contexts WHERE run_id = :run_id")


async def test_the_chain_of_a_run_follows_from_its_content_and_order(world: RunWorld) -> None:
    """SPEC M7: SHA-256 over the chain before, the record's places, what it is, and its content's own, from zero on."""
    await world.publish(tools=["pause"])
    world.model.add(replies.calls(("pause", {"seconds": 0.01, "text": "A"})), "done")
    run_id = UUID((await world.ask())["run_id"])
    async with world.store.reading() as connection:
        rows = await fetch_all(connection, RECORDS, run_id=run_id)
        contents = await world.store.payloads.read(connection, [row["payload_id"] for row in rows])
        head = await fetch_value(connection, HEAD, run_id=run_id)
    chain = bytes(32)
    for place, row in enumerate(rows, 1):
        form = {name: row[name] for name in ("context_seq", "seq", "kind", "role", "call_id", "status")}
        form["sha256"] = hashlib.sha256(contents[row["payload_id"]]).hexdigest()
        chain = hashlib.sha256(chain + json.dumps(form, sort_keys=True, separators=(",", ":")).encode()).digest()
        assert (row["context_seq"], row["chain"]) == (place, chain)
    assert len(rows) == 4  # question, calls, result, answer
    assert head == chain


async def test_the_end_of_a_run_names_the_head_of_its_chain(world: RunWorld) -> None:
    """SPEC M7: whoever kept the event can tell later whether the chain still leads through it; so does `verify`."""
    await world.publish()
    world.model.add("done")
    run = await world.ask()
    [ended] = [one for one in await world.events(run["run_id"]) if one["type"] == "run_ended"]
    async with world.store.transaction("look, and forge") as connection:
        head = await fetch_value(connection, HEAD, run_id=UUID(run["run_id"]))
        await connection.execute(FORGE_EVENT)
    assert (ended["records"], ended["chain"]) == (2, head.hex())
    found = (await world.get(f"/sessions/{run['session_id']}/verify"))["breaks"]
    assert found == [{"kind": "chain", "subject": f"run/{run['run_id']}", "place": 2}]

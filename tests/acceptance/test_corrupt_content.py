"""Content that was damaged in the database is told as that, by whoever reads it (SPEC E, M7, Y2)."""

from collections.abc import AsyncIterator
from uuid import UUID

import asyncpg
import pytest

from tests.support import replies
from tests.support.model_server import ModelServer
from tests.support.run_world import RunWorld, Servers, running_world

DAMAGES = {
    "a changed byte": "body = set_byte(body, 20, get_byte(body, 20) # 1)",
    "a body without a whole nonce": "body = substr(body, 1, 5)",
    "packed, and told as plain": "codec = 'raw'",
}
TOOL_RESULT = """
    SELECT payload_id FROM context_records JOIN payloads USING (payload_id)
    WHERE session_id = $1 AND kind = 'tool_result' AND codec = 'zstd'
"""


@pytest.fixture
async def world(servers: Servers) -> AsyncIterator[RunWorld]:
    """A world whose workers come and go: each begins without any content at hand."""
    async with ModelServer(strict="plain") as model, running_world(servers, model) as built:
        yield built


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
async def test_damaged_content_ends_the_run_and_answers_with_its_own_code(world: RunWorld, damage: str) -> None:
    """SPEC E, M7: PAYLOAD_CORRUPT from `verify` on, in every answer that would hold it and at the end of a Run."""
    await world.publish(tools=["repeat"])
    world.model.add(replies.calls(("repeat", {"text": "z", "times": 1_200})), "done", "never asked")
    session = await world.open_session()
    async with world.worker():
        run = await world.ask("And what is it?", session)
    admin = await asyncpg.connect(world.servers.database_url)
    damaged = await admin.fetchval(TOOL_RESULT, UUID(session))
    context = await admin.fetchval("SELECT context_id FROM role_contexts WHERE session_id = $1", UUID(session))
    await admin.execute(f"UPDATE payloads SET {damage} WHERE payload_id = $1", damaged)
    await admin.close()
    breaks = (await world.get(f"/sessions/{session}/verify"))["breaks"]
    assert "content" in {one["kind"] for one in breaks}
    last = (await world.operations(run["run_id"]))[-1]["operation_id"]
    for path in (f"/sessions/{session}/messages", f"/contexts/{context}/view", f"/operations/{last}/request"):
        answer = await world.http.get(path)
        assert (answer.status_code, answer.json()["code"]) == (500, "PAYLOAD_CORRUPT")
        assert answer.headers["content-type"] == "application/problem+json"
        assert "zzz" not in answer.text
    async with world.worker():
        after = await world.ask("Once more?", session)
    assert (after["status"], after["end_reason"]) == ("failed", "internal")
    assert after["error"]["code"] == "PAYLOAD_CORRUPT"
    assert len(world.model.requests) == 2

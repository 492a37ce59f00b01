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
ANSWER = """
    SELECT payload_id, body FROM context_records JOIN payloads USING (payload_id)
    WHERE session_id = $1 AND kind = 'assistant'
"""
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


async def test_a_request_that_can_not_be_built_has_its_manifest_and_its_event(world: RunWorld) -> None:
    """SPEC A8: nothing was measured, so its size is -1, by no method; once its content is back, a resume goes on."""
    session = await world.open_session()
    world.model.add("Fine.", "Fine again.")
    async with world.worker():
        await world.ask("q1", session)
    await world.publish(model={"encoding": "o200k_base"})  # what is there is counted anew
    admin = await asyncpg.connect(world.servers.database_url)
    whole = await admin.fetchrow(ANSWER, UUID(session))
    await admin.execute("UPDATE payloads SET body = substr(body, 1, 5) WHERE payload_id = $1", whole["payload_id"])
    async with world.worker():
        run = await world.ask("q2", session)
        assert (run["status"], run["end_reason"]) == ("failed", "internal")
        assert run["error"]["code"] == "PAYLOAD_CORRUPT"
        assert run["error"]["numbers"] == {"input_limit": 28344, "phase": "preparing"}
        (manifest,) = await world.manifests(run["run_id"])
        told = ("estimated_input_tokens", "counting_method", "exact", "validation", "items", "transforms")
        assert [manifest[name] for name in told] == [-1, "unavailable", False, "build_failed", [], []]
        (built,) = [one for one in await world.events(run["run_id"]) if one["type"] == "context_build"]
        assert (built["operation_id"], built["estimated"]) == (manifest["operation_id"], -1)
        breaks = (await world.get(f"/sessions/{session}/verify"))["breaks"]
        assert {one["kind"] for one in breaks} == {"content"}
        await admin.execute("UPDATE payloads SET body = $2 WHERE payload_id = $1", *whole)
        await admin.close()
        await world.resume(run["run_id"])
        assert (await world.ended(run["run_id"]))["answer"] == "Fine again."
    assert (await world.get(f"/sessions/{session}/verify"))["breaks"] == []
    assert [one["state"] for one in await world.inputs(run["run_id"])] == ["delivered"]

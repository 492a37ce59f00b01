"""Content that a newer version wrote, read by one that does not know its form: said as that, at once (SPEC E, Y6)."""

import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from storage.database import fetch_value
from tests.support.model_server import ModelServer
from tests.support.run_world import Json, RunWorld, Servers, running_world

ANSWER = text("SELECT payload_id FROM context_records WHERE session_id = :id AND kind = 'assistant'")
RELEASE = text("SELECT payload_id FROM agent_releases WHERE release_id = :id")
MARK = "MARK-words"


@pytest.fixture
async def world(servers: Servers) -> AsyncIterator[RunWorld]:
    """A world whose workers come and go: each begins without any content at hand."""
    async with ModelServer(strict="plain") as model, running_world(servers, model) as built:
        yield built


async def rewrite(world: RunWorld, where: Any, place: str, **changes: Any) -> None:
    """Put other content where this one stands, sealed as all content is."""
    store = world.store
    async with store.transaction("newer version") as connection:
        before = await fetch_value(connection, where, id=UUID(place))
        content: Json = json.loads(await store.payloads.read_one(connection, before))
        sealed = store.payloads.seal(json.dumps(content | changes).encode())
        await store.payloads.write(connection, [sealed])
        for table in ("context_records", "agent_releases", "view_items"):
            statement = text(f"UPDATE {table} SET payload_id = :after WHERE payload_id = :before")
            await connection.execute(statement, {"after": sealed.payload_id, "before": before})
    store.releases.clear()


@pytest.mark.parametrize("changes", [{"pictures": [MARK]}, {"role": "narrator"}, {"content": [{"text": MARK}]}])
async def test_a_message_of_an_unknown_form_ends_the_run_and_answers_with_its_own_code(
    world: RunWorld, changes: Json
) -> None:
    """SPEC E, S13: nothing hangs, nothing is left out, and nothing of it is quoted."""
    session = await world.open_session()
    world.model.add("Fine.")
    async with world.worker():
        await world.ask("q1", session)
    await rewrite(world, ANSWER, session, **changes)
    answer = await world.http.get(f"/sessions/{session}/messages")
    assert (answer.status_code, answer.json()["code"]) == (500, "PAYLOAD_UNKNOWN")
    assert MARK not in answer.text
    assert (await world.get(f"/sessions/{session}/verify"))["breaks"]
    async with world.worker():
        run = await world.ended(await world.start("q2", session), within_s=15)
    assert (run["status"], run["end_reason"], run["error"]["code"]) == ("failed", "internal", "PAYLOAD_UNKNOWN")
    assert len(world.model.requests) == 1


async def test_a_release_of_an_unknown_form_ends_its_runs_and_no_others(world: RunWorld) -> None:
    """SPEC E, S13; case 081: an error of its own within seconds, and the session goes on to be usable."""
    newer, older = await world.open_session("newer"), await world.open_session("older")
    await rewrite(world, RELEASE, world.agents["newer"]["release_id"], voice=MARK)
    answer = await world.http.get(f"/releases/{world.agents['newer']['release_id']}")
    assert (answer.status_code, answer.json()["code"]) == (500, "PAYLOAD_UNKNOWN")
    assert MARK not in answer.text
    world.model.add("Fine.")
    async with world.worker():
        run = await world.ended(await world.start("q", newer), within_s=15)
        assert (run["status"], run["error"]["code"]) == ("failed", "PAYLOAD_UNKNOWN")
        assert (await world.ask("q", older))["answer"] == "Fine."

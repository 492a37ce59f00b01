"""A session that somebody changed behind AgentLoom's back, directly in the database, is found out (SPEC M7).

Each case is one change in SQL as someone with the database, but without the keys, could make it. The report must name
what is broken and where, and hold no content. Afterwards the rows are put back, so that one session serves all cases.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from tests.acceptance.test_commands_of_a_run import command
from tests.support import replies
from tests.support.compactions import SMALL, is_summary
from tests.support.model_server import RecordedRequest
from tests.support.run_world import RunWorld

Json = dict[str, Any]

TABLES = (
    "payloads",
    "sessions",
    "user_inputs",
    "role_contexts",
    "context_records",
    "context_revisions",
    "view_items",
    "operations",
    "attempts",
    "snapshots",
    "snapshot_pieces",
)
SECRET = "swordfish"


@dataclass(frozen=True)
class Case:
    """A change, and the breaks of which at least one must be reported: `(kind, subject, place)`.

    `$name` in either stands for a value of `Marks`.
    """

    sql: str
    kind: str
    subject: str
    place: int | None = None


OTHER_PAYLOAD = "(SELECT payload_id FROM context_records WHERE context_id = '$context' AND context_seq = 3)"
CASES = {
    "the content of a record": Case(
        "UPDATE payloads SET body = set_byte(body, 20, get_byte(body, 20) # 1) WHERE payload_id = $record_payload",
        "content",
        "record/$record",
        4,
    ),
    "the content of a record is gone": Case(
        "DELETE FROM payloads WHERE payload_id = $record_payload", "content", "record/$record", 4
    ),
    "the hash of a content": Case(
        "UPDATE payloads SET digest = sha256('other') WHERE payload_id = $record_payload",
        "content",
        "record/$record",
        4,
    ),
    "how a content is packed": Case(
        "UPDATE payloads SET codec = CASE codec WHEN 'raw' THEN 'zstd' ELSE 'raw' END"
        " WHERE payload_id = $record_payload",
        "content",
        "record/$record",
        4,
    ),
    "one record shows the content of another": Case(
        f"UPDATE context_records SET payload_id = {OTHER_PAYLOAD} WHERE record_id = '$record'",
        "chain",
        "record/$record",
        4,
    ),
    "the same, and the whole chain is made to fit": Case(
        f"""
        UPDATE context_records SET payload_id = {OTHER_PAYLOAD} WHERE record_id = '$next';
        DO $$ DECLARE link bytea := decode(repeat('00', 32), 'hex'); one record; BEGIN
          FOR one IN SELECT record_id, context_seq, digest FROM context_records JOIN payloads USING (payload_id)
                     WHERE context_id = '$context' ORDER BY context_seq LOOP
            link := sha256(link || int8send(one.context_seq) || one.digest);
            UPDATE context_records SET chain = link WHERE record_id = one.record_id;
          END LOOP;
          UPDATE role_contexts SET chain = link WHERE context_id = '$context';
        END $$""",
        "record",
        "record/$next",
        5,
    ),
    "the hash of a record": Case(
        "UPDATE context_records SET chain = sha256('other') WHERE record_id = '$record'", "chain", "record/$record", 4
    ),
    "the hash at the end of a context": Case(
        "UPDATE role_contexts SET chain = sha256('other') WHERE context_id = '$context'", "chain", "context/$context"
    ),
    "a record is gone": Case("DELETE FROM context_records WHERE record_id = '$record'", "chain", "context/$context", 4),
    "the last record is gone, and the head says so": Case(
        "DELETE FROM context_records WHERE context_id = '$context' AND context_seq = $last;"
        "UPDATE role_contexts SET record_head = $last - 1, chain = (SELECT chain FROM context_records"
        " WHERE context_id = '$context' AND context_seq = $last - 1) WHERE context_id = '$context'",
        "order",
        "session/$session",
    ),
    "two records change places": Case(
        "UPDATE context_records SET context_seq = -context_seq WHERE context_id = '$context' AND context_seq IN (4, 5);"
        "UPDATE context_records SET context_seq = 9 + context_seq WHERE context_id = '$context' AND context_seq < 0",
        "chain",
        "record/$record",
        5,
    ),
    "two records change places in the session": Case(
        "UPDATE context_records SET seq = -seq WHERE context_id = '$context' AND seq IN (4, 5);"
        "UPDATE context_records SET seq = 9 + seq WHERE context_id = '$context' AND seq < 0",
        "order",
        "record/$next",
        5,
    ),
    "who speaks in a record": Case(
        "UPDATE context_records SET role = 'tool' WHERE record_id = '$record'", "record", "record/$record", 4
    ),
    "a revision is gone": Case(
        "DELETE FROM context_revisions WHERE context_id = '$context' AND revision = 2",
        "revision",
        "context/$context",
        2,
    ),
    "an input is gone": Case("DELETE FROM user_inputs WHERE input_id = '$input'", "input", "session/$session", 1),
    "an input shows the content of another": Case(
        "UPDATE user_inputs SET payload_id = (SELECT payload_id FROM user_inputs WHERE session_id = '$session'"
        " AND input_seq = 2) WHERE input_id = '$input'",
        "input",
        "input/$input",
        1,
    ),
    "the hash of a request": Case(
        "UPDATE operations SET request_hash = sha256('other') WHERE operation_id = '$call'",
        "request",
        "operation/$call",
    ),
    "the hash of a request is gone": Case(
        "UPDATE operations SET request_hash = NULL WHERE operation_id = '$call'", "request", "operation/$call"
    ),
    "a request has lost its list": Case(
        "UPDATE operations SET view_id = NULL WHERE operation_id = '$call'", "request", "operation/$call"
    ),
    "a request is shorter": Case(
        "UPDATE operations SET view_length = view_length - 1 WHERE operation_id = '$call'", "request", "operation/$call"
    ),
    "two messages of a request change places": Case(
        "UPDATE view_items SET pos = -pos WHERE view_id = '$view' AND pos IN (2, 3);"
        "UPDATE view_items SET pos = 5 + pos WHERE view_id = '$view' AND pos < 0",
        "request",
        "operation/$call",
    ),
    "a summary covers one piece less": Case(
        "DELETE FROM snapshot_pieces WHERE snapshot_id = '$snapshot' AND ordinal = 1", "coverage", "snapshot/$snapshot"
    ),
    "a summary covers another version": Case(
        "UPDATE snapshot_pieces SET digest = sha256('other') WHERE snapshot_id = '$snapshot' AND ordinal = 1",
        "coverage",
        "snapshot/$snapshot",
    ),
    "a summary covers another record": Case(
        "UPDATE snapshot_pieces SET context_seq = context_seq + 40 WHERE snapshot_id = '$snapshot' AND ordinal = 1",
        "coverage",
        "snapshot/$snapshot",
    ),
    "a summary names other ranges": Case(
        "UPDATE snapshots SET ranges = '[]' WHERE snapshot_id = '$snapshot'", "coverage", "snapshot/$snapshot"
    ),
    "a summary is gone": Case(
        "DELETE FROM snapshot_pieces WHERE snapshot_id = '$snapshot';"
        "DELETE FROM snapshots WHERE snapshot_id = '$snapshot'",
        "coverage",
        "snapshot/$snapshot",
    ),
    "a summary says something else": Case(
        f"UPDATE snapshots SET message_id = {OTHER_PAYLOAD} WHERE snapshot_id = '$snapshot'",
        "coverage",
        "snapshot/$snapshot",
    ),
}
"""What is changed, and how that is told. Place 4 is the supplement, 5 the second call of the tool."""


@dataclass(frozen=True)
class Scene:
    """A session with two Runs, a supplement, tool calls and compactions, all of it in order; `marks` name its parts."""

    world: RunWorld
    session: str
    marks: dict[str, str]
    admin: asyncpg.Connection

    def filled(self, text: str) -> str:
        for name in sorted(self.marks, key=len, reverse=True):
            text = text.replace(f"${name}", self.marks[name])
        return text

    async def verify(self) -> Json:
        return await self.world.get(f"/sessions/{self.session}/verify")

    @asynccontextmanager
    async def changed(self, sql: str) -> AsyncIterator[None]:
        """The session with this change in it, which no foreign key has stopped; as it was afterwards."""
        async with self.admin.transaction():
            await self.admin.execute("SET LOCAL session_replication_role = replica")
            await self.admin.execute(self.filled(sql))
        try:
            yield
        finally:
            await self.put_back()

    async def put_back(self) -> None:
        """Every row as it was."""
        async with self.admin.transaction():
            await self.admin.execute("SET LOCAL session_replication_role = replica")
            for table in TABLES:
                await self.admin.execute(f"DELETE FROM {table}; INSERT INTO {table} SELECT * FROM kept_{table}")


@pytest.fixture
async def scene(world: RunWorld) -> AsyncIterator[Scene]:
    await world.publish(tools=["repeat"], **SMALL)

    def answer(request: RecordedRequest) -> replies.Reply:
        if is_summary(request):
            return replies.text("SUMMARY: goals kept.")
        business = [one for one in world.model.requests if not is_summary(one)]
        return replies.calls(("repeat", {"text": "z", "times": 1_200})) if len(business) < 8 else replies.text("done")

    first = replies.calls(("repeat", {"text": SECRET, "times": 1})).but(hold="first")
    world.model.add(first, *[answer] * 30)
    session = await world.open_session()
    run_id = await world.start("The question that must stay.", session)
    await world.model.wait_for_requests(1)
    await world.send("And mind this too.", session, mode="supplement")
    world.model.release("first")
    run = await world.ended(run_id)
    assert run["status"] == "succeeded"
    assert (await world.ask("And now?", session))["status"] == "succeeded"
    admin = await asyncpg.connect(world.servers.database_url)
    for table in TABLES:
        await admin.execute(f"CREATE TABLE kept_{table} AS SELECT * FROM {table}")
    try:
        yield Scene(world, session, await marks_of(world, admin, run_id, session), admin)
    finally:
        await admin.close()


async def marks_of(world: RunWorld, admin: asyncpg.Connection, run_id: str, session: str) -> dict[str, str]:
    context = await admin.fetchrow("SELECT * FROM role_contexts WHERE run_id = $1", UUID(run_id))
    records = await admin.fetch(
        "SELECT * FROM context_records WHERE context_id = $1 ORDER BY context_seq", context["context_id"]
    )
    calls = [one for one in await world.operations(run_id) if one["purpose"] == "business"]
    view = await admin.fetchval(
        "SELECT view_id FROM operations WHERE operation_id = $1", UUID(calls[1]["operation_id"])
    )
    compaction = (await world.items(f"/runs/{run_id}/compactions"))[0]
    inputs = await world.inputs(run_id)
    record = records[3]
    payload = f"decode('{record['payload_id'].hex()}', 'hex')"
    found = {"session": session, "context": context["context_id"], "last": len(records), "record": record["record_id"]}
    found |= {"record_payload": payload, "next": records[4]["record_id"], "input": inputs[0]["input_id"]}
    found |= {"call": calls[1]["operation_id"], "view": view, "snapshot": compaction["snapshot_id"]}
    return {name: str(value) for name, value in found.items()}


async def test_whatever_is_changed_in_a_session_is_named_with_its_place(
    scene: Scene, subtests: pytest.Subtests
) -> None:
    """SPEC M7: content, order, hashes, records, inputs, summaries, requests; a warm cache of the API hides nothing."""
    assert (await scene.verify())["breaks"] == []
    for name, case in CASES.items():
        with subtests.test(name):
            async with scene.changed(case.sql):
                report = await scene.verify()
            expected = (case.kind, scene.filled(case.subject), case.place)
            told = {(one["kind"], one["subject"], one["place"] if case.place else None) for one in report["breaks"]}
            assert expected in told
            assert SECRET not in json.dumps(report)
    assert (await scene.verify())["breaks"] == []


async def test_the_command_says_what_is_broken_and_ends_with_1(scene: Scene) -> None:
    """SPEC M7, 17: a table of the breaks for people, the report with --json, and how much was looked at in any case."""
    sound = await command(scene.world, "verify", scene.session)
    assert (sound.code, sound.err) == (0, "")
    assert "everything is as it was written" in sound.out
    async with scene.changed(CASES["the content of a record"].sql):
        told = await command(scene.world, "verify", scene.session)
        as_json = await command(scene.world, "verify", scene.session, "--json")
    assert told.code == as_json.code == 1
    assert f"record/{scene.marks['record']}" in told.out
    assert "docs/operations.md" in told.err
    assert len(told.err.splitlines()) == 3
    assert "content" in {one["kind"] for one in json.loads(as_json.out)["breaks"]}
    assert SECRET not in told.out + told.err + as_json.out


async def test_a_session_verifies_while_its_run_goes_on(world: RunWorld) -> None:
    """SPEC M7: what is written meanwhile is no break."""
    await world.publish(tools=["repeat"])
    call = replies.calls(("repeat", {"text": "z", "times": 10}))
    world.model.add(*[call] * 20, "done")
    session = await world.open_session()
    run_id = await world.start("Go on.", session)
    reports: list[Json] = []
    while not reports or not (await world.get(f"/runs/{run_id}"))["ended_at"]:
        reports.append(await world.get(f"/sessions/{session}/verify"))
    assert [one["breaks"] for one in reports if one["breaks"]] == []
    assert len({one["records"] for one in reports}) > 1


async def test_a_session_that_was_given_to_another_agent_is_named(world: RunWorld) -> None:
    """SPEC M7: that agent would answer the next question."""
    world.model.add("done")
    run = await world.ask()
    await world.publish("other")
    connection = await asyncpg.connect(world.servers.database_url)
    await connection.execute(
        "UPDATE sessions x SET agent_id = (SELECT agent_id FROM agents a WHERE a.agent_id <> x.agent_id)"
    )
    await connection.close()
    found = (await world.get(f"/sessions/{run['session_id']}/verify"))["breaks"]
    assert found == [{"kind": "run", "subject": f"run/{run['run_id']}", "place": 1}]

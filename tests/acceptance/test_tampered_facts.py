"""Whatever is changed in a fact that a later request depends on is found out, column by column (SPEC M7).

Each change is one column of one row, in SQL; of every table one row of each kind is changed. A column that says nothing
of what a model sees, or that nothing else stored tells of, is named here with the reason.
"""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from storage.tables import metadata
from tests.support import replies
from tests.support.run_world import RunWorld, python_tool
from tests.support.tampering import KeptRows

OTHER_ID, OTHER_HASH = "gen_random_uuid()", "sha256('other')"
OTHER_CONTENT = "(SELECT payload_id FROM payloads p WHERE p.payload_id IS DISTINCT FROM x.{0} ORDER BY 1 LIMIT 1)"
TIME = "no request depends on when"


@dataclass(frozen=True)
class Facts:
    """How the columns of a table are changed; `kinds` tells its rows apart, `unsaid` are the columns left out."""

    kinds: str
    values: dict[str, tuple[str, ...]]
    unsaid: dict[str, str]


def content(column: str) -> tuple[str, ...]:
    return (OTHER_CONTENT.format(column),)


RECORDS = Facts(
    kinds="kind",
    values={
        "record_id": (OTHER_ID,),
        "context_id": (OTHER_ID,),
        "context_seq": ("context_seq + 40",),
        "session_id": (OTHER_ID,),
        "seq": ("seq + 40",),
        "run_id": (OTHER_ID, "(SELECT r.run_id FROM runs r WHERE r.run_id <> x.run_id LIMIT 1)"),
        "role": ("'system'", "CASE role WHEN 'user' THEN 'assistant' ELSE 'user' END"),
        "kind": tuple(
            f"CASE kind WHEN '{kind}' THEN 'other' ELSE '{kind}' END"
            for kind in ("user_ref", "tool_result", "feedback", "fragment")  # "assistant" twice is refused by the index
        ),
        "payload_id": content("payload_id"),
        "operation_id": (
            OTHER_ID,
            "(SELECT CAST(max(CAST(o.operation_id AS text)) AS uuid) FROM operations o"
            " WHERE o.operation_id IS DISTINCT FROM x.operation_id)",
        ),
        "result_key": ("coalesce(result_key, '') || 'x'",),
        "input_id": (OTHER_ID,),
        "call_id": ("coalesce(call_id, '') || 'x'",),
        "status": ("CASE status WHEN 'error' THEN NULL ELSE 'error' END",),
        "chain": (OTHER_HASH,),
    },
    unsaid={"created_at": TIME},
)
IN_THE_FIRST_FORM = """
    DO $$ DECLARE link bytea; one record; BEGIN
      FOR one IN SELECT record_id, context_id, context_seq, digest FROM context_records JOIN payloads USING (payload_id)
                 ORDER BY context_id, context_seq LOOP
        IF one.context_seq = 1 THEN link := decode(repeat('00', 32), 'hex'); END IF;
        link := sha256(link || int8send(one.context_seq) || one.digest);
        UPDATE context_records SET chain = link WHERE record_id = one.record_id;
        UPDATE role_contexts SET chain = link WHERE context_id = one.context_id;
      END LOOP;
    END $$
"""
FACTS = {"context_records": RECORDS}
KEPT = ("context_records", "role_contexts")


@dataclass(frozen=True)
class Scene:
    """A session whose first Run was answered, after a supplement, and whose second one was stopped in a batch.

    Of the second one's supplements one was carried and waits, the other was withdrawn.
    """

    world: RunWorld
    session: str
    rows: KeptRows

    async def breaks(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self.world.get(f"/sessions/{self.session}/verify"))["breaks"]
        return found

    async def changes(self, table: str, facts: Facts) -> list[str]:
        """SQL that changes one column of one row, for each column and each kind of row."""
        kinds = [
            row[0] for row in await self.rows.admin.fetch(f"SELECT DISTINCT {facts.kinds} FROM {table} ORDER BY 1")
        ]
        return [sql for kind in kinds for sql in _changes(table, facts, kind)]


def _changes(table: str, facts: Facts, kind: str) -> Iterator[str]:
    at = f"(SELECT ctid FROM {table} WHERE {facts.kinds} = '{kind}' ORDER BY ctid LIMIT 1)"
    for column, values in facts.values.items():
        for value in values:
            yield f"UPDATE {table} x SET {column} = {value} WHERE ctid = {at} /* {kind} */"


@pytest.fixture
async def scene(world: RunWorld) -> AsyncIterator[Scene]:
    await world.publish(tools=["repeat", python_tool("pause", "side_effect")])
    session = await world.open_session()
    await answered(world, session)
    await stopped(world, session)
    async with KeptRows.of(world.servers.database_url, KEPT) as rows:
        yield Scene(world, session, rows)


async def answered(world: RunWorld, session: str) -> None:
    """A Run with a result, a failed call, an answer of no use, one that was cut off, and one that stands."""
    call = replies.calls(("repeat", {"text": "z", "times": 2}))
    world.model.add(call.but(hold="first"), replies.calls(("nosuch", {})), replies.text(""), "the answer")
    run_id = await world.start("The question.", session)
    await world.model.wait_for_requests(1)
    await world.send("Mind this.", session, mode="supplement")
    world.model.release("first")
    assert (await world.ended(run_id))["status"] == "succeeded"


async def stopped(world: RunWorld, session: str) -> None:
    """A Run that is stopped while one of its two calls is being made."""
    pause = ("pause", {"seconds": 30, "text": "z"})
    world.model.add(replies.calls(pause, pause))
    run_id = await world.start("And now?", session)
    await world.until(run_id, "running_tools")
    await world.send("Wait.", session, mode="supplement")
    gone = await world.send("No.", session, mode="supplement")
    assert (await world.http.delete(f"/inputs/{gone['input_id']}")).status_code == 200
    await world.stop(run_id)
    assert (await world.ended(run_id))["status"] == "stopped"


async def test_a_change_of_any_column_that_a_request_depends_on_is_named(
    scene: Scene, subtests: pytest.Subtests
) -> None:
    """SPEC M7: whatever decides what a model sees is in the chain, or told by other facts."""
    assert await scene.breaks() == []
    for table, facts in FACTS.items():
        for sql in await scene.changes(table, facts):
            with subtests.test(sql):
                async with scene.rows.changed(sql) as told:
                    assert told == "UPDATE 1"
                    assert await scene.breaks()
    assert await scene.breaks() == []


async def test_what_an_earlier_version_wrote_verifies_and_what_it_was_taken_for_is_still_told(scene: Scene) -> None:
    """SPEC M7: chains of the first form hold, and a kind that they do not know of is derived from other facts."""
    kind = "UPDATE context_records SET kind = 'fragment' WHERE kind = 'feedback'"
    async with scene.rows.changed(IN_THE_FIRST_FORM):
        assert await scene.breaks() == []
    async with scene.rows.changed(f"{IN_THE_FIRST_FORM}; {kind}"):
        assert {one["kind"] for one in await scene.breaks()} == {"record"}


@pytest.mark.parametrize("table", FACTS)
def test_no_column_is_left_out_without_a_reason(table: str) -> None:
    """SPEC M7: a new column is evidence, and changed by the test above, or named as none."""
    columns = {column.name for column in metadata.tables[table].columns}
    assert {*FACTS[table].values, *FACTS[table].unsaid} == columns

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
    """How the columns of a table are changed; `kinds` tells its rows apart.

    `unsaid` are the columns left out, with the reason, and behind a name the one kind of row that it is left out of.
    """

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
            "(SELECT o.operation_id FROM operations o WHERE o.result_id IS NULL LIMIT 1)",
        ),
        "result_key": ("coalesce(result_key, '') || 'x'",),
        "input_id": (OTHER_ID,),
        "call_id": ("coalesce(call_id, '') || 'x'",),
        "status": ("CASE status WHEN 'error' THEN NULL ELSE 'error' END",),
        "chain": (OTHER_HASH,),
    },
    unsaid={"created_at": TIME},
)
INPUTS = Facts(
    kinds="kind || (SELECT max(state) FROM input_deliveries d WHERE d.input_id = user_inputs.input_id)",
    values={
        "input_id": (OTHER_ID,),
        "session_id": (OTHER_ID,),
        "input_seq": ("input_seq + 40",),
        "kind": ("CASE kind WHEN 'question' THEN 'supplement' ELSE 'question' END",),
        "payload_id": content("payload_id"),
        "origin_run_id": (OTHER_ID, "(SELECT r.run_id FROM runs r WHERE r.run_id <> x.origin_run_id LIMIT 1)"),
    },
    unsaid={"received_at": TIME},
)
STATES = ("pending", "claimed", "delivered", "carried", "withdrawn")
DELIVERIES = Facts(
    kinds="state",
    values={
        "delivery_id": (OTHER_ID,),
        "input_id": (OTHER_ID, "(SELECT i.input_id FROM user_inputs i WHERE i.input_id <> x.input_id LIMIT 1)"),
        "session_id": (OTHER_ID,),
        "input_seq": ("input_seq + 1",),
        "run_id": (OTHER_ID, "(SELECT r.run_id FROM runs r WHERE r.run_id IS DISTINCT FROM x.run_id LIMIT 1)"),
        "operation_id": (OTHER_ID, "CASE WHEN operation_id IS NULL THEN gen_random_uuid() END"),
        "previous_delivery_id": (OTHER_ID, "delivery_id"),
        "state": tuple(f"CASE state WHEN '{state}' THEN 'other' ELSE '{state}' END" for state in STATES),
        "delivered_at": ("CASE WHEN delivered_at IS NULL THEN now() END",),
    },
    unsaid={"context_seq": "nothing reads or writes it", "delivery_id pending": "nothing points to it yet"},
)
NUMBERS_ONLY = "it limits or reports, and is in no request"
RUNS = Facts(
    kinds="status",
    values={
        "run_id": (OTHER_ID,),
        "session_id": (OTHER_ID,),
        "run_no": ("run_no + 40",),
        "status": ("'failed'", "'running'"),
        "end_reason": ("'internal'", "NULL"),
        "error": ("""'{"code": "MODEL_FAILED", "message": "", "numbers": {}}'""",),
        "execution_no": ("execution_no + 1",),
        "loops": ("loops + 1",),
        "input_cutoff": ("input_cutoff + 1",),
        "event_head": ("event_head + 1",),
        "ended_at": ("NULL",),
        "answer_record_id": (
            "CASE WHEN answer_record_id IS NULL THEN gen_random_uuid() END",
            "(SELECT c.record_id FROM context_records c WHERE c.run_id = x.run_id AND c.kind = 'user_ref' LIMIT 1)",
        ),
    },
    unsaid={
        "release_id": "told by the requests: tools and settings are in their hashes",
        "phase": "an ended Run has no other, and an active one moves on",
        "started_at": TIME,
        "asked_to_compact": "it decides what a request that is still to come begins with",
        "ended_no": "it orders ends among other facts, for what is told of summaries",
        "stop_requested_at": TIME,
        "created_at": TIME,
        **dict.fromkeys(("input_tokens", "output_tokens", "cached_tokens", "cost"), NUMBERS_ONLY),
        **dict.fromkeys(("usage_unknown", "active_ms"), NUMBERS_ONLY),
    },
)
A_REPEAT = "it decides what a repeat of the step does, which the Run is past"
RAW = "shown to people; what goes on is the result"
NAMES_OF_MODELS = "in no request"
OPERATION_STATES = ("prepared", "calling", "cancelled", "unknown")
OPERATIONS = Facts(
    kinds="purpose || ' ' || state",
    values={
        "operation_id": (OTHER_ID,),
        "session_id": (OTHER_ID,),
        "run_id": (OTHER_ID, "(SELECT r.run_id FROM runs r WHERE r.run_id <> x.run_id LIMIT 1)"),
        "context_id": (OTHER_ID, "(SELECT c.context_id FROM role_contexts c WHERE c.run_id <> x.run_id LIMIT 1)"),
        "purpose": ("'verification'", "CASE purpose WHEN 'tool' THEN 'business' ELSE 'tool' END"),
        "state": tuple(f"CASE state WHEN '{state}' THEN 'other' ELSE '{state}' END" for state in OPERATION_STATES),
        "loop_no": ("loop_no + 1",),
        "ordinal": ("ordinal + 7",),
        "name": ("'other'",),
        "input_cutoff": ("coalesce(input_cutoff, 0) + 1",),
        "view_id": (OTHER_ID,),
        "view_length": ("coalesce(view_length, 0) - 1",),
        "max_output_tokens": ("coalesce(max_output_tokens, 0) + 1",),
        "request_hash": (OTHER_HASH,),
        "batch_id": (OTHER_ID,),
        "call_id": ("coalesce(call_id, '') || 'x'",),
        "result_id": content("result_id"),
        "verdict": ("""'{"status": "stopped", "kind": "unusable"}'""",),
    },
    unsaid={
        "attempts": A_REPEAT,
        "tail": "nothing writes it yet",
        "effect": A_REPEAT,
        "made_no": "it orders what is listed; requests go by loops and places",
        "prepared": A_REPEAT,
        "whole_id": "which text `result_read` gives: content is checked, not whose it is",
        **dict.fromkeys(("arguments_id", "raw_id", "raw_media_type", "transforms"), RAW),
        **dict.fromkeys(("created_at", "updated_at"), TIME),
        **{
            f"{column} tool {state}": "it has none"
            for column in ("input_cutoff", "view_id", "view_length", "max_output_tokens", "request_hash")
            for state in ("accepted", "failed", "cancelled", "unknown")
        },
        "name business accepted": NAMES_OF_MODELS,
        "max_output_tokens business accepted": "told by the hash of the request where the dialect sends it",
        "ordinal business accepted": "it has none",
        "call_id business accepted": "it has none",
    },
)
BATCHES = Facts(
    kinds="CASE WHEN consumed THEN 'consumed' ELSE 'open' END",
    values={
        "batch_id": (OTHER_ID,),
        "run_id": (OTHER_ID,),
        "context_id": (OTHER_ID,),
        "size": ("size + 1",),
        "consumed": ("NOT consumed",),
    },
    unsaid={},
)
CALL_IDS = Facts(
    kinds="'one'",
    values={"session_id": (OTHER_ID,), "call_id": ("call_id || 'x'",), "operation_id": (OTHER_ID,)},
    unsaid={},
)
CONTEXTS = Facts(
    kinds="instance",
    values={
        "context_id": (OTHER_ID,),
        "session_id": (OTHER_ID,),
        "run_id": (OTHER_ID, "(SELECT r.run_id FROM runs r WHERE r.run_id <> x.run_id LIMIT 1)"),
        "task_id": (OTHER_ID,),
        "instance": ("'other'",),
        "record_head": ("record_head + 1",),
        "revision": ("revision + 1",),
        "chain": (OTHER_HASH,),
        "view_id": (OTHER_ID, "NULL"),
        "view_length": ("view_length - 1",),
        "view_tokens": ("view_tokens + 1",),
        "active_snapshot_id": (OTHER_ID,),
        "material_mark": ("1000",),
    },
    unsaid={},
)
ITEMS = Facts(
    kinds="kind",
    values={
        "view_id": (OTHER_ID,),
        "pos": ("pos + 40",),
        "kind": tuple(
            f"CASE kind WHEN '{kind}' THEN 'other' ELSE '{kind}' END"
            for kind in ("system", "input", "assistant", "tool_result", "placeholder", "marker", "feedback", "summary")
        ),
        "source_id": (
            OTHER_ID,
            "(SELECT i.input_id FROM user_inputs i WHERE i.input_id IS DISTINCT FROM x.source_id LIMIT 1)",
        ),
        "run_no": ("coalesce(run_no, 0) + 7",),
        "payload_id": content("payload_id"),
        "tokens": ("tokens + 1",),
    },
    unsaid={
        "revision": "it names a version that the content tells",
        "transform": "it names for people what was done to the content",
        "run_no marker": "the sentence itself says which Run",
        "run_no placeholder": "its call says which Run",
        "run_no input": "an input may be shown in any Run that it was bound to",
    },
)
VIEWS = Facts(
    kinds="CASE WHEN through_seq IS NULL THEN 'noted' ELSE 'saved' END",
    values={
        "session_id": (OTHER_ID,),
        "run_no": ("run_no + 40",),
        "observed_seq": ("observed_seq + 1",),
        "through_seq": ("coalesce(through_seq, 0) + 1",),
        "view_id": (OTHER_ID,),
        "view_length": ("coalesce(view_length, 0) - 1",),
    },
    unsaid={
        "run_id": "a Run without a row is one whose view was not saved: the next one looks at the session itself",
        "whole": "which history the release wants, for what is saved later",
        "estimator_id": "with another one the next Run counts anew",
        "outdated_at": TIME,
    },
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
    END $$;
    UPDATE run_events SET body = body - 'records' - 'chain' - 'content_id'
"""
FACTS = {
    "context_records": RECORDS,
    "user_inputs": INPUTS,
    "input_deliveries": DELIVERIES,
    "runs": RUNS,
    "operations": OPERATIONS,
    "tool_batches": BATCHES,
    "call_ids": CALL_IDS,
    "role_contexts": CONTEXTS,
    "view_items": ITEMS,
    "session_views": VIEWS,
}
KEPT = (*FACTS, "run_events")


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
        for value in () if f"{column} {kind}" in facts.unsaid else values:
            yield f"UPDATE {table} x SET {column} = {value} WHERE ctid = {at} /* {kind} */"


@pytest.fixture
async def scene(world: RunWorld) -> AsyncIterator[Scene]:
    await world.publish(tools=["repeat", python_tool("pause", "side_effect")], context={"history": "session_view"})
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


@pytest.mark.parametrize("table", FACTS)
async def test_a_change_of_any_column_that_a_request_depends_on_is_named(
    scene: Scene, subtests: pytest.Subtests, table: str
) -> None:
    """SPEC M7: whatever decides what a model sees is in the chain, or told by other facts."""
    assert await scene.breaks() == []
    for sql in await scene.changes(table, FACTS[table]):
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
        assert "record" in {one["kind"] for one in await scene.breaks()}


@pytest.mark.parametrize("table", FACTS)
def test_no_column_is_left_out_without_a_reason(table: str) -> None:
    """SPEC M7: a new column is evidence, and changed by the test above, or named as none."""
    columns = {column.name for column in metadata.tables[table].columns}
    assert {*FACTS[table].values, *(name.split()[0] for name in FACTS[table].unsaid)} == columns

"""Commits that go by what this process remembers of a Run: one statement; nothing is written if it no longer holds."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import asyncpg
import pytest
from sqlalchemy import event

from context.errors import AttemptSupersededError, CallIdsTakenError, SupersededError
from context.replies import Usage
from context.steps import OpenRun, RecordFirstOutput
from storage.commits.open_run import open_run
from storage.commits.record_first_output import record_first_output
from storage.commits.request_stop import RequestStop, request_stop
from storage.commits.resume_run import ResumeRun, resume_run
from storage.store import FaultPlan, Store
from storage.writes import NotHeldError, WriteSet
from tests.integration.commits.life import Life, everything, refused
from tests.integration.storage.world import KEYS, count, end_run, execute, rows, say


@dataclass
class Heard:
    """What one store's connections sent."""

    store: Store
    statements: list[str] = field(default_factory=list)

    def take(self) -> list[str]:
        """The first words of each statement since the last time."""
        taken, self.statements = self.statements, []
        return [" ".join(one.split()[:3]) for one in taken]


ONE = ["WITH held AS"]


@pytest.fixture
async def heard(database_url: str) -> AsyncIterator[Heard]:
    """A store whose statements are listened to."""
    opened = Heard(Store.open(database_url, KEYS, pool_size=2))

    def listen(connection: Any, _record: Any) -> None:
        connection.driver_connection.add_query_logger(lambda query: opened.statements.append(query.query))

    event.listen(opened.store.database.engine.sync_engine, "connect", listen)
    yield opened
    await opened.store.aclose()


async def answered(heard: Heard, life: Life, **more: Any) -> None:
    """Loop 1: prepared, and answered with one call."""
    await life.prepare(heard.store)
    heard.take()
    await life.accepted(heard.store, "forecast", **more)


async def test_an_answer_and_the_next_request_are_one_statement_each(heard: Heard, opened: Life) -> None:
    """SPEC P6, R3: step after step, with usage and cost counted."""
    usage, cost = Usage(input_tokens=10, output_tokens=3), Decimal("0.000123")
    await opened.prepare(heard.store)
    for _ in range(3):
        heard.take()
        await opened.accepted(heard.store, "forecast", usage=usage, cost=cost)
        assert heard.take() == ONE
        await opened.go_on(heard.store)
        assert heard.take() == ONE
    [run] = await rows(heard.store, "SELECT loops, input_tokens, output_tokens, cost FROM runs")
    assert run == {"loops": 4, "input_tokens": 30, "output_tokens": 9, "cost": Decimal("0.000369")}
    heads = "SELECT count(*) AS n, max(context_seq) AS last FROM context_records"
    assert await rows(heard.store, heads) == [{"n": 7, "last": 7}]  # the question, and two of each step


@pytest.mark.parametrize("costs", [(None, Decimal(1)), (Decimal(1), None), (None, None)])
async def test_a_cost_that_became_unknown_is_remembered_so(
    heard: Heard, opened: Life, costs: tuple[Decimal | None, ...]
) -> None:
    """SPEC L5: what is remembered is what the row says, so that the next commit finds it."""
    usage = Usage(input_tokens=10, output_tokens=3)
    await opened.prepare(heard.store)
    for cost in costs:
        await opened.accepted(heard.store, "forecast", usage=usage, cost=cost)
        heard.take()
        await opened.go_on(heard.store)
        assert heard.take() == ONE
    assert await rows(heard.store, "SELECT cost FROM runs") == [{"cost": None}]


async def test_evidence_of_a_first_output_is_no_surprise(heard: Heard, opened: Life) -> None:
    """SPEC P6, S6: the process that stored it does not go by what was before it."""
    await opened.prepare(heard.store)
    await record_first_output(heard.store, RecordFirstOutput(opened.operation_id, opened.run_id, 1))
    heard.take()
    await opened.accepted(heard.store, "forecast")
    assert heard.take()[0] == "BEGIN;"
    await opened.go_on(heard.store)
    assert heard.take() == ONE


async def test_a_commit_that_was_refused_has_not_become_true(database_url: str, opened: Life, rival: Store) -> None:
    """SPEC R7: a test that strikes after a commit strikes after one."""
    told: list[tuple[str, int]] = []

    class Telling(FaultPlan):
        async def reach(self, point: str) -> None:
            told.append((point, await count(rival, "operations", "purpose = 'tool'")))

    telling = Store.open(database_url, KEYS, pool_size=2, faults=Telling())
    await opened.prepare(telling)
    await execute(rival, "UPDATE runs SET event_head = event_head + 1")
    told.clear()
    await opened.accepted(telling, "forecast")
    await telling.aclose()
    assert [one for one in told if one[0] == "accept_model.after_commit"] == [("accept_model.after_commit", 1)]


async def test_a_supplement_between_answer_and_request_is_carried(heard: Heard, store: Store, opened: Life) -> None:
    """SPEC S7: the request that is prepared after it came takes it along."""
    await answered(heard, opened)
    await say(store, opened.world, "Only Berlin.", mode="supplement")
    prepared = await opened.go_on(heard.store)
    assert prepared.supplements == 1
    assert await count(store, "view_items", "kind = 'input'") == 2


async def test_a_supplement_during_a_call_does_not_hold_up_its_answer(heard: Heard, store: Store, opened: Life) -> None:
    """SPEC S4, S7: the answer is stored, and the next request carries what came."""
    await opened.prepare(heard.store)
    await say(store, opened.world, "Only Berlin.", mode="supplement")
    assert (await opened.accepted(heard.store, "forecast")).may_go_on
    assert (await opened.go_on(heard.store)).supplements == 1


async def test_a_stop_during_a_call_is_seen_by_its_answer(heard: Heard, store: Store, opened: Life) -> None:
    """SPEC S8: the answer is a fact; nothing begins after it."""
    await opened.prepare(heard.store)
    await request_stop(store, RequestStop(opened.run_id, opened.world.owner_id))
    acceptance = await opened.accepted(heard.store, "forecast")
    assert (acceptance.verdict.kind, acceptance.may_go_on) == ("tools", False)


async def test_a_replaced_try_is_refused_whatever_its_process_remembers(
    heard: Heard, rival: Store, opened: Life
) -> None:
    """SPEC R5."""
    await opened.prepare(heard.store)
    await opened.begin(rival)
    before = await everything(rival)
    assert await refused(opened.accepted(heard.store, "forecast")) is AttemptSupersededError
    assert await everything(rival) == before


async def test_an_execution_that_lost_its_run_writes_nothing(heard: Heard, rival: Store, opened: Life) -> None:
    """SPEC R5: the Run was resumed by another execution meanwhile."""
    await opened.prepare(heard.store)
    await end_run(rival, opened.run_id)
    await resume_run(rival, ResumeRun(opened.run_id, opened.world.owner_id))
    await open_run(rival, OpenRun(run_id=opened.run_id, execution_no=2))
    before = await everything(rival)
    assert await refused(opened.accepted(heard.store, "forecast")) is SupersededError
    assert await everything(rival) == before


async def test_what_another_process_has_done_already_is_found(heard: Heard, rival: Store, opened: Life) -> None:
    """SPEC R3: the same request, frozen once."""
    await answered(heard, opened)
    first = await opened.go_on(rival)
    opened.loop, opened.batch_id = 1, None
    before = await everything(rival)
    assert await opened.go_on(heard.store) == first
    assert await everything(rival) == before


async def test_ids_that_the_session_has_had_are_refused(heard: Heard, rival: Store, opened: Life) -> None:
    """SPEC A4."""
    await opened.prepare(heard.store)
    taken = f"{opened.operation_id}/0"
    insert = "INSERT INTO call_ids SELECT session_id, :call_id, operation_id FROM operations LIMIT 1"
    await execute(rival, insert, call_id=taken)
    with pytest.raises(CallIdsTakenError) as met:
        await opened.accepted(heard.store, "forecast")
    assert met.value.taken == frozenset({taken})
    assert await count(rival, "tool_batches") == 0


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE role_contexts SET revision = revision + 1",
        "UPDATE sessions SET record_head = record_head + 1",
        "UPDATE runs SET input_tokens = input_tokens + 1",
        "UPDATE runs SET event_head = event_head + 1",
    ],
)
async def test_no_column_that_a_commit_goes_by_is_taken_on_trust(
    heard: Heard, rival: Store, opened: Life, change: str
) -> None:
    """SPEC R3: whatever has changed, the commit reads it first."""
    await opened.prepare(heard.store)
    await execute(rival, change)
    heard.take()
    await opened.accepted(heard.store, "forecast")
    refused_first, began, *_ = heard.take()
    assert ([refused_first], began) == (ONE, "BEGIN;")


async def test_nothing_is_written_where_the_expectation_fails(store: Store, opened: Life) -> None:
    """SPEC R3: all parts or none; and whatever went wrong otherwise is not taken for it."""
    before = await everything(store)
    writes = WriteSet()
    writes.sql("UPDATE runs SET loops = loops + 1")
    writes.expect("SELECT 1 FROM runs WHERE loops = 77 FOR UPDATE")
    async with store.reading() as connection:
        with pytest.raises(NotHeldError):
            await writes.send_as_expected(connection)
    assert await everything(store) == before
    broken = WriteSet()
    broken.sql("UPDATE runs SET loops = loops / 0")
    broken.expect("SELECT 1 FROM runs FOR UPDATE")
    async with store.reading() as connection:
        with pytest.raises(asyncpg.DivisionByZeroError):
            await broken.send_as_expected(connection)

"""Each commit of a Run sent twice, and by two writers at once (SPEC W5, R3, R5)."""

import asyncio
import time
from dataclasses import replace
from decimal import Decimal
from uuid import UUID

from context.errors import AttemptSupersededError, CorruptPayloadError, SupersededError
from context.replies import Usage
from context.steps import BeginAttempt, Begun, Content, FailAttempt, ModelVerdict, OpenRun, Settled, Stopping
from storage.commits.begin_attempt import begin_attempt, begin_tool_call
from storage.commits.fail_attempt import fail_attempt
from storage.commits.open_run import open_run
from storage.commits.request_stop import RequestStop, request_stop
from storage.store import Store
from tests.integration.commits.life import HASH, Life, everything, refused, sent_by_two, sent_twice
from tests.integration.storage.world import count, execute, rows, say


async def test_opening_a_run_twice(store: Store, life: Life) -> None:
    """SPEC W5: one context, one event."""
    request = OpenRun(run_id=life.run_id, execution_no=1)
    await sent_twice(store, lambda writer: open_run(writer, request))
    assert await count(store, "run_events", "type = 'run_started'") == 1
    assert await count(store, "role_contexts") == 1


async def test_opening_a_run_by_two(store: Store, rival: Store, life: Life) -> None:
    """SPEC W5."""
    request = OpenRun(run_id=life.run_id, execution_no=1)
    await sent_by_two(store, rival, lambda writer: open_run(writer, request))
    assert await count(store, "run_events", "type = 'run_started'") == 1


async def test_another_execution_cannot_open_a_run(store: Store, life: Life) -> None:
    """SPEC R5: only the execution that the Run expects."""
    assert await refused(open_run(store, OpenRun(run_id=life.run_id, execution_no=2))) is SupersededError
    assert await refused(open_run(store, OpenRun(run_id=UUID(int=1), execution_no=1))) is SupersededError


async def test_preparing_a_request_twice(store: Store, opened: Life) -> None:
    """SPEC W5, R1: the input is claimed once and stands in the list once."""
    await sent_twice(store, opened.prepare)
    assert await count(store, "view_items", "kind = 'input'") == 1
    assert await count(store, "input_deliveries", "state = 'claimed'") == 1


async def test_preparing_a_request_by_two(store: Store, rival: Store, opened: Life) -> None:
    """SPEC W5."""
    await sent_by_two(store, rival, opened.prepare)
    assert await count(store, "manifests") == 1


async def test_a_prepared_request_stays_as_it_is_when_an_input_comes(store: Store, opened: Life) -> None:
    """SPEC S7, H11: the cutoff is fixed; the repeat does not take the newer input along."""
    prepared = await opened.prepare(store)
    await say(store, opened.world, "one more thing", mode="supplement")
    assert await opened.prepare(store) == prepared
    assert await count(store, "view_items", "kind = 'input'") == 1


DAMAGE = """
    UPDATE payloads SET tokens = '{}', body = substr(body, 1, 5)
    WHERE payload_id = (SELECT payload_id FROM user_inputs WHERE kind = 'supplement')
"""


async def test_a_request_that_can_not_be_built_is_refused_once(store: Store, rival: Store, opened: Life) -> None:
    """SPEC A8, W5: it has its manifest and its event; the result that came is kept, and delivered by none."""
    await opened.prepare(store)
    await opened.accepted(store, "forecast")
    await say(store, opened.world, "one more thing", mode="supplement")
    await execute(store, DAMAGE)
    settled = opened.result(0, attempt=None, says="sunny")
    opened.batch_id, opened.loop = opened.operation_id, opened.loop + 1
    prepared = await sent_by_two(rival, rival, lambda writer: opened.prepare(writer, settled))  # nothing read
    assert (prepared.refused, prepared.estimated) == ("PAYLOAD_CORRUPT", -1)
    assert await count(store, "manifests", "counting_method = 'unavailable' AND validation = 'build_failed'") == 1
    assert await count(store, "run_events", "type = 'context_build' AND body ->> 'estimated' = '-1'") == 1
    assert await count(store, "operations", "purpose = 'tool' AND state = 'accepted'") == 1
    assert await count(store, "tool_batches", "consumed") == 0
    assert await count(store, "input_deliveries", "state = 'pending'") == 1


async def test_a_request_carries_a_batch_once(store: Store, rival: Store, opened: Life) -> None:
    """SPEC T2, R3: results in the order of the calls, delivered by one commit, whoever sends it."""
    await opened.prepare(store)
    await opened.accept(store, "one", "two")
    for ordinal in (1, 0):
        await opened.begin(store, opened.tool(ordinal))
        await opened.record(store, ordinal=ordinal, says=f"result {ordinal}")
    opened.batch_id, opened.loop = opened.operation_id, 2
    await sent_by_two(store, rival, opened.prepare)
    found = await rows(
        store, "SELECT operation_id FROM context_records WHERE kind = 'tool_result' ORDER BY context_seq"
    )
    opened.loop = 1
    assert [row["operation_id"] for row in found] == [opened.tool(0), opened.tool(1)]


async def test_each_try_has_a_number_and_replaces_the_one_before(store: Store, rival: Store, opened: Life) -> None:
    """SPEC W5: the first was begun with the freezing; those that begin at once know that there were others."""
    await opened.prepare(store)
    tries = await asyncio.gather(*(opened.begin(writer) for writer in (store, rival, store)))
    begun = sorted((one for one in tries if isinstance(one, Begun)), key=lambda one: one.attempt_no)
    assert [one.attempt_no for one in begun] == [2, 3, 4]
    assert [one.lost for one in begun] == [1, 2, 3]
    assert await count(store, "attempts", "state = 'calling'") == 1


async def test_a_try_with_another_request_is_refused(store: Store, opened: Life) -> None:
    """SPEC A9, R2: what is sent again must be what was frozen."""
    await opened.prepare(store)
    await opened.begin(store)
    other = BeginAttempt(opened.operation_id, 1, b"x" * 32)
    assert await refused(begin_attempt(store, other)) is CorruptPayloadError


async def test_nothing_begins_after_a_stop(store: Store, opened: Life) -> None:
    """SPEC S8: the stop is looked at in the same statement; the try from before it is the only one."""
    await opened.prepare(store)
    await request_stop(store, RequestStop(opened.run_id, opened.world.owner_id))
    assert await opened.begin(store) == Stopping()
    assert await count(store, "attempts") == 1


async def test_nothing_begins_at_the_deadline(store: Store, opened: Life) -> None:
    """SPEC W5: the deadline is looked at where the stop is, for a model and for a tool."""
    await opened.prepare(store)
    now = time.time()
    further = BeginAttempt(opened.operation_id, 1, HASH, deadline_at=now - 0.001)
    assert await begin_attempt(store, further) == Stopping()
    await opened.accept(store, "forecast")
    call = BeginAttempt(opened.tool(), 1, deadline_at=now - 0.001)
    assert await begin_tool_call(store, call) == Stopping()
    assert await count(store, "attempts") == 1
    begun = await begin_tool_call(store, replace(call, deadline_at=now + 600))
    assert isinstance(begun, tuple)


async def test_accepting_an_answer_twice(store: Store, opened: Life) -> None:
    """SPEC R2, R3: one record, one batch, one answer."""
    await opened.prepare(store)
    verdict = await sent_twice(store, lambda writer: opened.accept(writer, "one", "two"))
    assert (verdict.kind, len(verdict.tools)) == ("tools", 2)
    assert await count(store, "context_records", "kind = 'assistant'") == 1
    assert await count(store, "operations", "purpose = 'tool'") == 2
    assert await opened.begin(store) == Settled()


async def test_accepting_an_answer_by_two(store: Store, rival: Store, opened: Life) -> None:
    """SPEC R3."""
    await opened.prepare(store)
    await sent_by_two(store, rival, opened.accept)
    assert await count(store, "context_records", "kind = 'assistant'") == 1
    assert await count(store, "input_deliveries", "state = 'delivered'") == 1


async def test_the_answer_of_a_try_that_was_replaced_changes_nothing(store: Store, rival: Store, opened: Life) -> None:
    """SPEC R5: a late owner is refused; the newer one's answer counts."""
    await opened.prepare(store)
    await opened.begin(rival)
    before = await everything(store)
    assert await refused(opened.accept(store, attempt=1)) is AttemptSupersededError
    assert await everything(store) == before
    assert (await opened.accept(rival, attempt=2)).kind == "answer"


async def test_recording_a_result_twice(store: Store, opened: Life) -> None:
    """SPEC R3: the second sending finds it, and the audit log says nothing."""
    await one_open_call(store, opened)
    assert await sent_twice(store, opened.record)
    assert await count(store, "audit_log", "action = 'late_tool_result'") == 0


async def test_recording_a_result_by_two(store: Store, rival: Store, opened: Life) -> None:
    """SPEC R3."""
    await one_open_call(store, opened)
    assert await sent_by_two(store, rival, opened.record)


async def test_a_late_result_is_noted_and_counts_for_nothing(store: Store, opened: Life) -> None:
    """SPEC R5: of a try that was replaced, and of a Run that has ended."""
    await one_open_call(store, opened)
    await opened.begin(store, opened.tool())
    assert await opened.record(store, attempt=1, says="late") is False
    assert await opened.record(store, attempt=2, says="in time") is True
    [tool] = await rows(store, "SELECT verdict, attempts FROM operations WHERE purpose = 'tool'")
    assert tool["attempts"] == 2
    assert await count(store, "audit_log", "action = 'late_tool_result'") == 1


async def test_a_result_after_the_end_is_noted_and_counts_for_nothing(store: Store, opened: Life) -> None:
    """SPEC R5, S8: a tool that ignored the stop."""
    await one_open_call(store, opened)
    await opened.finish(store, "stopped", "user_stop")
    before = await rows(store, "SELECT state, verdict, result_id FROM operations ORDER BY operation_id")
    assert await opened.record(store) is False
    assert await rows(store, "SELECT state, verdict, result_id FROM operations ORDER BY operation_id") == before
    assert await count(store, "audit_log", "action = 'late_tool_result'") == 1


async def one_open_call(store: Store, life: Life) -> None:
    """A batch of one call whose first try has begun."""
    await life.prepare(store)
    await life.accept(store, "one")
    assert isinstance(await life.begin(store, life.tool()), Begun)


async def test_ending_a_run_twice(store: Store, opened: Life) -> None:
    """SPEC S2, S6: one event; a supplement is carried once."""
    await opened.prepare(store)
    await say(store, opened.world, "too late", mode="supplement")
    await sent_twice(store, opened.finish)
    assert await count(store, "run_events", "type = 'run_ended'") == 1
    assert await count(store, "input_deliveries", "state = 'carried'") == 1
    assert await count(store, "input_deliveries", "state = 'pending'") == 1


async def test_ending_a_run_by_two(store: Store, rival: Store, opened: Life) -> None:
    """SPEC S2."""
    await opened.prepare(store)
    await say(store, opened.world, "too late", mode="supplement")
    await sent_by_two(store, rival, opened.finish)
    assert await count(store, "input_deliveries", "state = 'pending'") == 1


async def test_two_ends_at_once_are_one_end(store: Store, rival: Store, opened: Life) -> None:
    """SPEC S2: whoever comes first; the other is told how it ended."""
    answered, stopped = await asyncio.gather(opened.finish(store), opened.finish(rival, "stopped", "user_stop"))
    assert answered == stopped
    assert await count(store, "run_events", "type = 'run_ended'") == 1


async def test_nothing_is_prepared_or_accepted_after_the_end(store: Store, opened: Life) -> None:
    """SPEC R5: every later commit is refused, and no row changes."""
    await opened.prepare(store)
    await opened.finish(store, "stopped", "user_stop")
    before = await everything(store)
    assert await refused(opened.accept(store)) is SupersededError
    opened.loop = 2
    assert await refused(opened.prepare(store)) is SupersededError
    assert await everything(store) == before


async def test_what_a_useless_answer_used_is_counted_once(store: Store, rival: Store, opened: Life) -> None:
    """SPEC L5, K8, W5: whoever sends the failure, and however often; a superseded try counts nothing."""
    await opened.prepare(store)
    verdict = ModelVerdict(kind="failed", end_reason="empty", code="COMPACTION_FAILED")
    failed = FailAttempt(
        operation_id=opened.operation_id,
        attempt_no=1,
        request_hash=HASH,
        code="COMPACTION_FAILED",
        reason="empty",
        status=0,
        verdict=verdict,
        usage=Usage(input_tokens=50, output_tokens=10),
        cost=Decimal("1.5"),
        raw=Content(b"raw"),
    )
    await sent_by_two(store, rival, lambda writer: fail_attempt(writer, failed))
    await fail_attempt(store, replace(failed, attempt_no=2))
    (run,) = await rows(store, "SELECT input_tokens, output_tokens, usage_unknown, cost FROM runs")
    assert tuple(run.values()) == (50, 10, 0, Decimal("1.5"))
    assert await count(store, "operations", "raw_id IS NOT NULL AND state = 'failed'") == 1


async def test_one_call_of_unknown_price_makes_the_cost_of_the_run_unknown_for_good(store: Store, opened: Life) -> None:
    """SPEC L5: a sum of what happens to be known would pass for the whole."""
    await opened.prepare(store)
    broke = FailAttempt(
        operation_id=opened.operation_id,
        attempt_no=1,
        request_hash=HASH,
        code="MODEL_FAILED",
        reason="model_unavailable",
        status=0,
        verdict=None,
        usage=Usage(input_tokens=50, output_tokens=10, estimated=True),
    )
    costs = (Decimal(1), None, Decimal(2))
    for number, cost in enumerate(costs, start=1):
        if number > 1:
            await begin_attempt(store, BeginAttempt(opened.operation_id, 1, HASH))
        await fail_attempt(store, replace(broke, attempt_no=number, cost=cost))
    (run,) = await rows(store, "SELECT input_tokens, output_tokens, usage_unknown, cost FROM runs")
    assert tuple(run.values()) == (150, 30, 3, None)

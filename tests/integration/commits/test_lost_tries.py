"""Tries at model calls that nobody reported on: what they used is counted once, whoever closes them (SPEC L5, R6)."""

import asyncio
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from context.errors import AttemptSupersededError
from context.replies import Usage
from context.steps import FailAttempt, OpenRun
from storage.commits.fail_attempt import fail_attempt
from storage.commits.note_written import note_written
from storage.commits.open_run import open_run
from storage.commits.resume_run import ResumeRun, resume_run
from storage.commits.take_up_request import take_up_request
from storage.reads.usage import session_usage
from storage.store import Store
from tests.integration.commits.episode import Episode, episode_of_a_run, idle_episode
from tests.integration.commits.life import HASH, Life, everything, refused, sent_twice
from tests.integration.storage.world import World, execute, rows

TOTALS = "SELECT input_tokens, output_tokens, usage_unknown, cost FROM runs WHERE run_id = :run_id"
NOTHING: tuple[Any, ...] = (0, 0, 0, None)


async def totals(store: Store, run: Life | Episode) -> tuple[Any, ...]:
    """Tokens in and out, for how many calls they are estimates, and the cost of the Run."""
    [found] = await rows(store, TOTALS, run_id=run.run_id)
    return tuple(found.values())


async def taken_up(store: Store, life: Life) -> int:
    """The request of the loop is frozen, and its call made; what it was estimated at. A token costs one unit."""
    estimated = (await life.prepare(store)).estimated
    await take_up_request(store, life.operation_id, execution_no=1)
    return estimated


def counted(estimated: int, calls: int = 1) -> tuple[Any, ...]:
    return (calls * estimated, 0, calls, Decimal(calls * estimated))


async def test_a_try_whose_worker_died_is_counted_when_the_next_begins(
    store: Store, rival: Store, opened: Life
) -> None:
    """SPEC L5: the request was sent, and nobody will say any more what it used; each such try once."""
    estimated = await taken_up(store, opened)
    await opened.begin(store)
    assert await totals(store, opened) == counted(estimated)
    await asyncio.gather(opened.begin(store), opened.begin(rival))
    assert await totals(store, opened) == counted(estimated, 3)
    [first, *_] = await rows(store, "SELECT state, cost, usage ->> 'estimated' AS e FROM attempts ORDER BY attempt_no")
    assert tuple(first.values()) == ("superseded", estimated, "true")


async def test_a_try_that_nobody_repeats_is_counted_when_the_run_ends(store: Store, rival: Store, opened: Life) -> None:
    """SPEC L5, R6: whoever ends it, and however often; a resume does not count it again."""
    estimated = await taken_up(store, opened)
    await asyncio.gather(opened.finish(store, "stopped", "user_stop"), opened.finish(rival, "failed", "lost"))
    assert await totals(store, opened) == counted(estimated)
    await resume_run(store, ResumeRun(opened.run_id, opened.world.owner_id))
    await open_run(store, OpenRun(run_id=opened.run_id, execution_no=2))
    await execute(store, "UPDATE runs SET execution_no = 1")
    await opened.finish(store, "failed", "lost")
    assert await totals(store, opened) == counted(estimated)


async def test_a_permit_that_nobody_took_up_counts_nothing(store: Store, opened: Life) -> None:
    """SPEC L5: it was never sent, whether another try follows or the end."""
    await opened.prepare(store)
    await opened.begin(store)
    assert await totals(store, opened) == NOTHING
    await execute(store, "DELETE FROM attempts WHERE attempt_no = 2")
    await opened.finish(store, "stopped", "user_stop")
    assert await totals(store, opened) == NOTHING


@pytest.mark.parametrize("fence", ["stop_requested_at = now()", "execution_no = 2", "status = 'failed'"])
async def test_nobody_takes_up_what_may_not_be_sent(store: Store, opened: Life, fence: str) -> None:
    """SPEC S8, R5, L5: what a stop or another owner forbids is not noted as begun."""
    await opened.prepare(store)
    await execute(store, f"UPDATE runs SET {fence}")
    before = await everything(store)
    await take_up_request(store, opened.operation_id, execution_no=1)
    assert await everything(store) == before


async def test_a_request_is_taken_up_once(store: Store, opened: Life) -> None:
    """SPEC L5: a repeat reads the same request and changes nothing; nor does one of a later try."""
    await opened.prepare(store)
    await sent_twice(store, lambda writer: take_up_request(writer, opened.operation_id, execution_no=1))
    await opened.begin(store)
    await sent_twice(store, lambda writer: take_up_request(writer, opened.operation_id, execution_no=1))


async def test_a_report_that_comes_after_all_is_not_counted_too(store: Store, opened: Life) -> None:
    """SPEC L5, R5: a late answer is refused, a late failure changes nothing."""
    estimated = await taken_up(store, opened)
    await opened.begin(store)
    usage = Usage(input_tokens=50, output_tokens=10)
    assert await refused(opened.accepted(store, usage=usage, cost=Decimal(1))) is AttemptSupersededError
    late = FailAttempt(
        operation_id=opened.operation_id,
        attempt_no=1,
        request_hash=HASH,
        code="MODEL_FAILED",
        reason="model_unavailable",
        status=0,
        verdict=None,
        usage=usage,
        cost=Decimal(1),
    )
    await fail_attempt(store, late)
    assert await totals(store, opened) == counted(estimated)
    await opened.accepted(store, attempt=2, usage=usage, cost=Decimal(1))
    assert await totals(store, opened) == (estimated + 50, 10, 1, Decimal(estimated + 1))


async def test_what_a_lost_try_had_noted_of_itself_counts(store: Store, rival: Store, opened: Life) -> None:
    """SPEC L5, R5, R6: once, whoever closes the try; a note that comes after that changes nothing."""
    estimated = await taken_up(store, opened)
    noted = (opened.operation_id, 1, Usage(input_tokens=estimated, output_tokens=7, estimated=True), Decimal(900))
    await note_written(store, opened.operation_id, 1, Usage(input_tokens=estimated, output_tokens=3), Decimal(800))
    await sent_twice(store, lambda writer: note_written(writer, *noted))
    assert await totals(store, opened) == NOTHING
    await asyncio.gather(opened.finish(store, "stopped", "user_stop"), opened.finish(rival, "failed", "lost"))
    assert await totals(store, opened) == (estimated, 7, 1, Decimal(900))
    before = await everything(store)
    await note_written(store, opened.operation_id, 1, Usage(input_tokens=estimated, output_tokens=9), Decimal(901))
    assert await everything(store) == before


async def test_what_a_replaced_try_had_noted_of_itself_counts_beside_its_repeat(store: Store, opened: Life) -> None:
    """SPEC L5, R2: both were paid for."""
    estimated = await taken_up(store, opened)
    await note_written(store, opened.operation_id, 1, Usage(input_tokens=estimated, output_tokens=7), Decimal(900))
    await opened.begin(store)
    assert await totals(store, opened) == (estimated, 7, 1, Decimal(900))
    await opened.accepted(store, attempt=2, usage=Usage(input_tokens=50, output_tokens=10), cost=Decimal(1))
    assert await totals(store, opened) == (estimated + 50, 17, 1, Decimal(901))


async def test_an_unknown_price_of_a_lost_try_makes_the_cost_unknown(store: Store, opened: Life) -> None:
    """SPEC L5: unknown is not zero."""
    opened.terms = replace(opened.terms, cost_of_input=lambda _: None)
    estimated = await taken_up(store, opened)
    await opened.finish(store, "failed", "lost")
    assert await totals(store, opened) == (estimated, 0, 1, None)


async def test_a_lost_try_at_a_block_is_counted_on_the_run_that_waits(store: Store, world: World) -> None:
    """SPEC L5, K13: when the next begins, and at the Run's end."""
    episode = await episode_of_a_run(store, world)
    await episode.plan(store)
    await episode.prepare(store)
    before = await totals(store, episode)
    await episode.begin(store)
    after = await totals(store, episode)
    assert (after[0] - before[0], after[1] - before[1], after[2] - before[2]) == (100, 0, 1)
    await Life(world, episode.run_id).finish(store, "failed", "lost")
    assert (await totals(store, episode))[0] - before[0] == 200


async def test_a_lost_try_at_a_block_of_an_idle_session_is_the_sessions(store: Store, world: World) -> None:
    """SPEC L5, K12: the Session's figures grow, those of its Runs don't."""
    episode = await idle_episode(store, world)
    await episode.plan(store)
    of_run = await totals(store, episode)
    before = await session_usage(store, world.session_id, world.owner_id)
    await episode.prepare(store)
    await episode.begin(store)
    await episode.fail(store)
    after = await session_usage(store, world.session_id, world.owner_id)
    assert (after.input_tokens - before.input_tokens, after.unknown - before.unknown) == (200, 2)
    assert await totals(store, episode) == of_run


async def test_a_block_of_a_replaced_try_is_refused(store: Store, world: World) -> None:
    """SPEC W5, R5: it was counted as lost; the summary is that of the try that replaced it."""
    episode = await episode_of_a_run(store, world)
    await episode.plan(store)
    await episode.prepare(store)
    await episode.begin(store)
    before = await everything(store)
    assert await refused(episode.finish(store)) is AttemptSupersededError
    assert await everything(store) == before

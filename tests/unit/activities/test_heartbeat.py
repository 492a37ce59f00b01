"""What a process begins that stood still meanwhile (SPEC R2, W5)."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from temporalio import activity
from temporalio.testing import ActivityEnvironment

from activities import heartbeat
from activities.heartbeat import heartbeating


@activity.defn
async def call() -> str:
    async with heartbeating():
        return "called"


def given(seconds_ago: float) -> ActivityEnvironment:
    """A try that this process was given so long ago."""
    environment = ActivityEnvironment()
    started = datetime.now(UTC) - timedelta(seconds=seconds_ago)
    environment.info = replace(environment.info, started_time=started)
    return environment


@pytest.fixture(autouse=True, params=[0, 40, -40])
async def clock_ahead_s(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    """Temporal's clock may be another one; a process that works has begun something promptly."""
    monkeypatch.setattr(heartbeat, "AGES", heartbeat.Ages())
    ahead: float = request.param
    await given(-ahead).run(call)
    return ahead


async def test_a_try_that_was_given_up_while_its_process_stood_still_makes_no_call(clock_ahead_s: float) -> None:
    """SPEC R2: Temporal's word for it is a cancellation, in answer to the first sign of life."""
    late = given(5 - clock_ahead_s)
    late.on_heartbeat = lambda *_: late.cancel()
    with pytest.raises(asyncio.CancelledError):
        await late.run(call)


async def test_a_try_that_is_still_wanted_makes_its_call_however_late_it_begins(clock_ahead_s: float) -> None:
    """SPEC R2: what looks late and is not costs a moment and no call."""
    signs: list[int] = []
    late = given(3_600 - clock_ahead_s)
    late.on_heartbeat = lambda *_: signs.append(1)
    assert (await late.run(call), signs[:1]) == ("called", [1])


async def test_a_try_that_begins_in_time_waits_for_nothing(clock_ahead_s: float) -> None:
    """SPEC W5: whatever the clocks say."""
    signs: list[int] = []
    prompt = given(-clock_ahead_s)
    prompt.on_heartbeat = lambda *_: signs.append(1)
    assert (await prompt.run(call), signs) == ("called", [])

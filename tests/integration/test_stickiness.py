"""A lost call whose workflow can't be asked about goes on all the same (SPEC R1, decision 0125)."""

import logging
from dataclasses import replace
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import Client
from temporalio.testing import ActivityEnvironment

from activities.stickiness import forget_dead_worker


@activity.defn
async def taken_over() -> str:
    await forget_dead_worker()
    return "went on"


@pytest.mark.parametrize(("attempt", "warnings"), [(1, 0), (2, 1)])
async def test_a_workflow_that_is_gone_keeps_no_repeat_from_going_on(
    temporal_address: str, caplog: pytest.LogCaptureFixture, attempt: int, warnings: int
) -> None:
    """SPEC R1: Temporal's refusal is told; a first try asks for nothing."""
    environment = ActivityEnvironment(client=await Client.connect(temporal_address))
    gone: dict[str, Any] = {"workflow_id": "run/gone", "workflow_run_id": "8a2c8a5c-7c5e-4d32-9e0e-7d1f3f6f1b0a"}
    environment.info = replace(environment.info, attempt=attempt, workflow_namespace="default", **gone)
    with caplog.at_level(logging.WARNING, logger="activities.stickiness"):
        assert await environment.run(taken_over) == "went on"
    assert [one.levelname for one in caplog.records] == ["WARNING"] * warnings

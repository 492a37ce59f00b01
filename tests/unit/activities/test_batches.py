"""Calls of one batch that run side by side (SPEC T2)."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from activities.batches import Batches
from activities.releases import Kit
from activities.tool_calls import ToolCallActivities
from context.errors import CorruptPayloadError
from context.steps import PrepareRequest, ToolCallFacts


class Tools:
    """One call that breaks at once, and one that needs a moment to store its result."""

    def __init__(self) -> None:
        self.stored: list[str] = []

    async def settle(self, kit: Kit, facts: str, **_: Any) -> None:
        if facts == "breaks":
            raise CorruptPayloadError
        for _turn in range(20):
            await asyncio.sleep(0)
        self.stored.append(facts)


async def test_a_call_that_breaks_leaves_none_of_its_siblings_running() -> None:
    """SPEC T2: their results are stored before the step ends with the failure, not behind its back."""
    tools = Tools()
    batches = Batches(cast(Any, None), cast(ToolCallActivities, tools))
    calls = cast(tuple[ToolCallFacts, ...], ("breaks", "slow", "slower"))
    request = cast(PrepareRequest, SimpleNamespace(execution_no=1))
    with pytest.raises(CorruptPayloadError):
        await batches.settle_and_prepare(cast(Kit, None), request, calls, size=3, at_once=3, deadline_at=None)
    assert tools.stored == ["slow", "slower"]

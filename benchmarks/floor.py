"""The floor: a minimal Temporal workflow of two activities a step, empty or with a bare call of the model in the first.

Alone here, as its sandbox wants it.
"""

from datetime import timedelta

from temporalio import activity, workflow


@activity.defn
async def nothing(n: int) -> int:
    """The smallest activity."""
    return n


@workflow.defn
class FloorWorkflow:
    """Two activities a step, one after the other; `first` is the name of the first one."""

    @workflow.run
    async def run(self, steps: int, first: str) -> int:
        """Run the steps."""
        for n in range(steps):
            for name in (first, "nothing"):
                await workflow.execute_activity(name, n, start_to_close_timeout=timedelta(seconds=10))
        return steps

"""The floor: a minimal Temporal workflow of two no-op activities a step. Alone here, as its sandbox wants it."""

from datetime import timedelta

from temporalio import activity, workflow


@activity.defn
async def nothing(n: int) -> int:
    """The smallest activity."""
    return n


@workflow.defn
class FloorWorkflow:
    """Two activities a step, one after the other."""

    @workflow.run
    async def run(self, steps: int) -> int:
        """Run the steps."""
        for n in range(steps):
            for _ in range(2):
                await workflow.execute_activity(nothing, n, start_to_close_timeout=timedelta(seconds=10))
        return steps

"""Every time-out, retry and cancellation choice of the workflows, with its reason (DESIGN 10)."""

from datetime import timedelta
from typing import TypedDict

from temporalio import workflow
from temporalio.common import RetryPolicy


class LocalOptions(TypedDict):
    """Options of a local activity."""

    start_to_close_timeout: timedelta
    local_retry_threshold: timedelta
    retry_policy: RetryPolicy
    cancellation_type: workflow.ActivityCancellationType


class RegularOptions(TypedDict):
    """Options of a regular activity."""

    start_to_close_timeout: timedelta
    heartbeat_timeout: timedelta
    retry_policy: RetryPolicy
    cancellation_type: workflow.ActivityCancellationType


TRY_CANCEL = workflow.ActivityCancellationType.TRY_CANCEL

# A commit that waits for the database is tried for ever; beyond half a second the pause is a server timer, so that
# signals, queries and a stop are answered meanwhile.
COMMIT: LocalOptions = {
    "start_to_close_timeout": timedelta(seconds=30),
    "local_retry_threshold": timedelta(seconds=0.5),
    "retry_policy": RetryPolicy(
        initial_interval=timedelta(milliseconds=50),
        backoff_coefficient=2,
        maximum_interval=timedelta(seconds=2),
    ),
    "cancellation_type": TRY_CANCEL,
}

# A killed worker is noticed by its missing heartbeats; the first repeat then follows at once. How often a failed call
# is tried is decided by the activity, which counts failures; Temporal's own count would also count kills.
CALL_RETRY = RetryPolicy(
    initial_interval=timedelta(milliseconds=100),
    backoff_coefficient=2,
    maximum_interval=timedelta(seconds=30),
)
# A local activity that waits for the database holds the workflow task; two seconds keep stop and queries answered.
TASK_TIMEOUT = timedelta(seconds=2)
# Whoever takes a Run over reads its history again, within one task: some 0.7 ms of a processor for each event, and the
# Runs of a dead worker are all read at once. (The server suggests a new execution at 4 096 events, which take longer.)
LONGEST_HISTORY = 200
HEARTBEAT = timedelta(seconds=2)
CANCELLATION = timedelta(seconds=30)  # the intent of a recorded stop is sent at once, or by a relay within its lease
LONGEST_CALL_S = 2_592_000.0


def model_call(remaining_s: float) -> RegularOptions:
    """A model call may take what is left of the Run's time; the provider's silence has its own limit."""
    return _regular(min(LONGEST_CALL_S, remaining_s + 60))


def compaction_step() -> RegularOptions:
    """Reading and planning what is to be summarised takes CPU time in proportion to the window."""
    return _regular(300)


def tool_call(timeout_s: float) -> RegularOptions:
    """A tool call may take its own time-out, and time to store the result."""
    return _regular(timeout_s + 60)


def local_tool_call(timeout_s: float) -> LocalOptions:
    """A short harmless call runs beside the workflow task."""
    return {**COMMIT, "start_to_close_timeout": timedelta(seconds=timeout_s + 60)}


def _regular(seconds: float) -> RegularOptions:
    return {
        "start_to_close_timeout": timedelta(seconds=seconds),
        "heartbeat_timeout": HEARTBEAT,
        "retry_policy": CALL_RETRY,
        "cancellation_type": TRY_CANCEL,
    }

"""Which of the workers that Temporal lists is missed: neither who left nor who ended (SPEC 17)."""

import os
import socket
from datetime import UTC, datetime, timedelta

import pytest
import temporalio.api.worker.v1 as worker
import temporalio.api.workflowservice.v1 as workflowservice
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.client import Client

from stack.findings import Broken
from stack.temporal import SignOfLife
from stack.workers import check_worker, crew_of, may_get_tasks

HERE = socket.gethostname()


def ago(seconds: float) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=seconds)


def sign(
    worker: str, *, host: str = "elsewhere", pid: int = 1, ago_s: float = 30, is_leaving: bool = False
) -> SignOfLife:
    return SignOfLife(worker, f"w{pid}", ago(ago_s), host, str(pid), is_leaving)


LIVING = sign("a", pid=7, ago_s=1)


@pytest.mark.parametrize(
    ("other", "is_missed"),
    [
        (sign("b"), True),
        (sign("b", host=HERE, pid=os.getpid()), True),
        (sign("b", is_leaving=True), False),
        (sign("b", host=HERE, pid=2**22 + 1), False),  # more than any process has
        (sign("b", pid=7), False),
    ],
    ids=["silent elsewhere", "silent here", "said goodbye", "its process has ended", "another took its place"],
)
def test_only_who_may_be_there_and_is_silent_is_missed(other: SignOfLife, is_missed: bool) -> None:
    """SPEC 17: a container that is started again has the host and process number of the one before."""
    crew = crew_of([LIVING, other], [LIVING])
    assert crew.living == [LIVING]
    assert (crew.silent, crew.away) == (([other], []) if is_missed else ([], [other]))


def test_a_worker_that_says_goodbye_is_no_longer_one_of_the_living() -> None:
    leaving = sign("b", ago_s=0, is_leaving=True)
    assert crew_of([leaving], [leaving]).living == []


@pytest.mark.parametrize(
    ("polled_ago_s", "silent_for_s", "may"),
    [(5, 6, True), (65, 125, True), (75, 80, False), (5, 140, False), (None, 6, False)],
)
def test_a_silent_worker_counts_until_its_last_poll_must_have_ended(
    polled_ago_s: float | None, silent_for_s: float, may: bool
) -> None:
    """SPEC 17: a poll of its identity that is younger than its last sign allows is another container's."""
    polls = {} if polled_ago_s is None else {"w1": ago(polled_ago_s)}
    assert may_get_tasks(sign("b", ago_s=silent_for_s), polls) == may


async def test_a_worker_that_froze_before_the_server_saw_it_poll_is_named(
    temporal_client: Client, task_queue: str
) -> None:
    """SPEC 17: a server that restarts forgets who polled; a sign of life alone is waited for, then missed."""
    here = worker.WorkerHostInfo(host_name=HERE, process_id=str(os.getpid()))
    now = Timestamp()
    now.GetCurrentTime()
    beat = worker.WorkerHeartbeat(
        worker_instance_key="a", worker_identity="w1", host_info=here, task_queue=task_queue, heartbeat_time=now
    )
    request = workflowservice.RecordWorkerHeartbeatRequest(
        namespace=temporal_client.namespace, identity="w1", worker_heartbeat=[beat]
    )
    await temporal_client.workflow_service.record_worker_heartbeat(request)
    found = await check_worker(temporal_client, task_queue)
    assert isinstance(found, Broken)
    assert f"process {os.getpid()} " in found.detail
    assert f"kill -CONT {os.getpid()}," in found.mend

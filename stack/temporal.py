"""The Temporal development server: one process with its web interface, its state in one file of the data folder.

Its flags are measured ones: out of the box each hop through a queue waits 50 ms (see the design notes on dispatch),
and the default file mode syncs more than a development server needs.
"""

import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import temporalio.api.enums.v1 as enums
import temporalio.api.operatorservice.v1 as operatorservice
import temporalio.api.taskqueue.v1 as taskqueue
import temporalio.api.worker.v1 as worker
import temporalio.api.workflowservice.v1 as workflowservice
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from stack.children import ChildSpec
from stack.errors import StackError
from stack.ports import LOOPBACK, accepts_connections
from stack.postgres import server_environment

NAMESPACE = "default"

SEARCH_ATTRIBUTES = ("AgentLoomSession", "AgentLoomAgent", "AgentLoomRelease", "AgentLoomOutcome")
"""What Runs can be found by in Temporal; all of type Keyword (SPEC W3)."""

DYNAMIC_CONFIG = (
    "history.transferProcessorMaxPollRPS=2000",
    "history.timerProcessorMaxPollRPS=2000",
    "history.visibilityProcessorMaxPollRPS=500",
    'history.timerProcessorMaxTimeShift="50ms"',  # by default each retry and time-out comes up to a second late
    # By default a task that was lost with its worker four times waits ever longer for the next, up to ten minutes.
    'history.workflowTaskRetryMaxInterval="10s"',
)
LONGEST_POLL_S = 60
LEAVING = (enums.WorkerStatus.WORKER_STATUS_SHUTTING_DOWN, enums.WorkerStatus.WORKER_STATUS_SHUTDOWN)
SQLITE_PRAGMAS = ("journal_mode=wal", "synchronous=1")


@dataclass(frozen=True)
class TemporalServer:
    """One development server: its state file and its two ports on the loopback address."""

    program: Path
    database: Path
    port: int
    ui_port: int | None
    """None: no web interface."""

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def ui_url(self) -> str | None:
        return f"http://{LOOPBACK}:{self.ui_port}" if self.ui_port else None

    def child(self, *, log_file: Path) -> ChildSpec:
        """The server as a child process."""
        return ChildSpec(
            name="temporal",
            command=(
                str(self.program),
                "server",
                "start-dev",
                *("--disable-config-env", "--disable-config-file", "--log-level", "error"),
                *("--ip", LOOPBACK, "--port", str(self.port), "--db-filename", str(self.database)),
                *self._ui_flags(),
                *_repeated("--dynamic-config-value", DYNAMIC_CONFIG),
                *_repeated("--sqlite-pragma", SQLITE_PRAGMAS),
                *_repeated("--search-attribute", (f"{name}=Keyword" for name in SEARCH_ATTRIBUTES)),
            ),
            environment=server_environment(),
            log_file=log_file,
            is_ready=self._is_ready,
        )

    def _ui_flags(self) -> tuple[str, ...]:
        if self.ui_port is None:
            return ("--headless",)
        return ("--ui-ip", LOOPBACK, "--ui-port", str(self.ui_port), "--ui-disable-news-fetch")

    async def _is_ready(self, pid: int) -> bool:
        # The port first: a client's own connection attempts back off for longer than the server takes to start.
        return await accepts_connections(self.port) and await answers(self.address)


def prepare(database: Path, *, port: int, ui_port: int | None) -> TemporalServer:
    """A server on this state file. Starts nothing.

    Raises:
        StackError: the Temporal program is not installed.
    """
    database.parent.mkdir(parents=True, exist_ok=True)
    return TemporalServer(find_program(), database.resolve(), port, ui_port)


def find_program() -> Path:
    """The `temporal` program beside our interpreter, else the one on the PATH."""
    beside = Path(sys.executable).with_name("temporal")
    if beside.exists():
        return beside
    if found := shutil.which("temporal"):
        return Path(found)
    raise StackError(
        "Temporal could not be started.",
        why="Its program is not installed.",
        mend="Run: make install. Or set TEMPORAL_ADDRESS to an existing server.",
    )


async def answers(address: str) -> bool:
    """Whether the server at this address is healthy and has the default namespace."""
    try:
        client = await Client.connect(address, namespace=NAMESPACE)
        await client.workflow_service.describe_namespace(workflowservice.DescribeNamespaceRequest(namespace=NAMESPACE))
    except (RPCError, RuntimeError):
        return False
    return True


async def missing_search_attributes(client: Client) -> tuple[str, ...]:
    """Which of our search attributes the client's namespace lacks; a start that sets one of them would fail."""
    request = operatorservice.ListSearchAttributesRequest(namespace=client.namespace)
    known = await client.operator_service.list_search_attributes(request)
    return tuple(name for name in SEARCH_ATTRIBUTES if name not in known.custom_attributes)


async def register_search_attributes(client: Client) -> None:
    """Add to the client's namespace those of our search attributes that it lacks."""
    if missing := await missing_search_attributes(client):
        request = operatorservice.AddSearchAttributesRequest(
            namespace=client.namespace,
            search_attributes=dict.fromkeys(missing, enums.IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD),
        )
        await client.operator_service.add_search_attributes(request)


async def is_polled(client: Client, task_queue: str, *, since: datetime | None = None) -> bool:
    """Whether a worker asks for workflow tasks on this queue, and did so after `since` if given."""
    at = await last_poll(client, task_queue)
    return at is not None and (since is None or at >= since)


async def last_poll(client: Client, task_queue: str) -> datetime | None:
    """When a worker last asked for workflow tasks on this queue; None if none did in the last minutes."""
    return max((await polls(client, task_queue)).values(), default=None)


async def polls(client: Client, task_queue: str) -> dict[str, datetime]:
    """When each worker of the last minutes, by identity, last asked for workflow tasks on this queue.

    A worker that lives asks at least every `LONGEST_POLL_S`, as the server ends a poll that brought nothing by then.
    One that has ended is still listed.
    """
    request = workflowservice.DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=taskqueue.TaskQueue(name=task_queue),
        task_queue_type=enums.TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )
    answer = await client.workflow_service.describe_task_queue(request)
    return {poller.identity: poller.last_access_time.ToDatetime(UTC) for poller in answer.pollers}


@dataclass(frozen=True)
class SignOfLife:
    """What a worker said last to Temporal: when, by its own clock, which process it is, and whether it said goodbye."""

    worker: str
    """A key of its own for each start."""
    identity: str
    at: datetime
    host: str
    pid: str
    is_leaving: bool = False


async def signs_of_life(client: Client, task_queue: str) -> list[SignOfLife]:
    """The newest sign of life of each worker that this queue had in the last minutes; none if the server keeps none."""
    request = workflowservice.ListWorkersRequest(namespace=client.namespace, query=f"TaskQueue = '{task_queue}'")
    try:
        answer = await client.workflow_service.list_workers(request)
    except RPCError as error:
        if error.status == RPCStatusCode.UNIMPLEMENTED:
            return []
        raise
    return [_sign(info.worker_heartbeat) for info in answer.workers_info]


def _sign(beat: worker.WorkerHeartbeat) -> SignOfLife:
    return SignOfLife(
        beat.worker_instance_key,
        beat.worker_identity,
        beat.heartbeat_time.ToDatetime(UTC),
        beat.host_info.host_name,
        beat.host_info.process_id,
        beat.status in LEAVING,
    )


def _repeated(flag: str, values: Iterable[str]) -> tuple[str, ...]:
    return tuple(part for value in values for part in (flag, value))

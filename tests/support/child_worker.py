"""Workers that can really be killed: `worker.run_worker` in processes of their own.

`python -m tests.support.child_worker` imports everything once, then reads one JSON line per worker from standard
input (`environment`, `faults`, `log`), forks it, and prints its process id. Its workers die with it.
"""

import asyncio
import base64
import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from process_logs import configure_logs
from settings import load_settings
from tests.support.dev_stack import is_alive
from tests.support.faults import Fault, Strikes
from tests.support.run_world import RunWorld
from worker import run_worker

PR_SET_PDEATHSIG = 1


@dataclass
class ChildWorker:
    """One running worker. Whoever kills it starts the next one, as a supervisor would."""

    pid: int
    log: Path

    @property
    def lives(self) -> bool:
        return is_alive(self.pid)

    def send(self, number: signal.Signals) -> None:
        """Send a signal; a worker that is gone already is fine."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    async def gone(self) -> None:
        """Wait until it has ended."""
        async with asyncio.timeout(20):
            while self.lives:
                await asyncio.sleep(0.005)

    async def killed(self) -> None:
        """End it without a word, and wait."""
        self.send(signal.SIGKILL)
        await self.gone()


class WorkerNursery:
    """Starts workers in milliseconds, from a process that has imported everything."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def start(self, place: "WorkerPlace", *faults: Fault) -> ChildWorker:
        """A worker on these servers that meets these faults."""
        assert self._process.stdin
        assert self._process.stdout
        line = {"environment": place.environment, "log": str(place.log), "faults": [one.as_json() for one in faults]}
        self._process.stdin.write(json.dumps(line) + "\n")
        self._process.stdin.flush()
        return ChildWorker(int(self._process.stdout.readline()), place.log)

    @asynccontextmanager
    async def worker(self, place: "WorkerPlace", *faults: Fault) -> AsyncIterator[ChildWorker]:
        """A worker that is killed at the end of the block, if it still lives."""
        child = self.start(place, *faults)
        try:
            yield child
        finally:
            await child.killed()

    @asynccontextmanager
    async def kept(self, place: "WorkerPlace", *faults: Fault, starting_s: float = 0) -> AsyncIterator[ChildWorker]:
        """A worker, yielded, that is followed by one without faults so many seconds after its end."""
        async with self.worker(place, *faults) as first:
            following = asyncio.create_task(self._follow(place, first, starting_s))
            try:
                yield first
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)

    async def _follow(self, place: "WorkerPlace", child: ChildWorker, starting_s: float) -> None:
        while child.lives:
            await asyncio.sleep(0.01)
        await asyncio.sleep(starting_s)
        async with self.kept(place, starting_s=starting_s):
            await asyncio.Event().wait()


@dataclass(frozen=True)
class WorkerPlace:
    """What a worker process is told, as environment variables, and where it logs."""

    environment: dict[str, str]
    log: Path


def place_of(world: RunWorld) -> WorkerPlace:
    """Where the workers of this world work: its servers, its keys, its folder."""
    servers, keys = world.servers, world.keys
    ids = ",".join(f"{key_id}:{base64.b64encode(key).decode()}" for key_id, key in keys.master.items())
    environment = {
        "DATABASE_URL": servers.database_url,
        "TEMPORAL_ADDRESS": servers.temporal,
        "AGENTLOOM_TASK_QUEUE": servers.task_queue,
        "AGENTLOOM_MASTER_KEYS": ids,
        "AGENTLOOM_INDEX_KEY": base64.b64encode(keys.index).decode(),
        "AGENTLOOM_MODE": "dev",
        "AGENTLOOM_WORK_DIR": str(servers.folder / "work"),
    }
    return WorkerPlace(environment, servers.folder / "worker.log")


@contextmanager
def worker_nursery(folder: Path) -> Iterator[WorkerNursery]:
    """The forking process, ended with its workers at the end of the block."""
    errors = folder / "nursery.log"
    with errors.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.child_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    with process:
        yield WorkerNursery(process)
        process.kill()


def _die_with_parent(parent: int) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:
        os._exit(1)


def _work(wanted: dict[str, Any]) -> None:
    log = os.open(wanted["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.environ.update(wanted["environment"])
    configure_logs("info")
    asyncio.run(run_worker(load_settings(), Strikes(*(Fault.from_json(one) for one in wanted["faults"]))))


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries the children
    nursery = os.getpid()
    for line in sys.stdin:
        pid = os.fork()
        if pid:
            print(pid, flush=True)
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        try:
            _die_with_parent(nursery)
            _work(json.loads(line))
        finally:
            os._exit(0)


if __name__ == "__main__":
    main()

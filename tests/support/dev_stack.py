"""`agentloom dev` as a person starts it: a process with its own data folder, told what it printed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

AGENTLOOM = str(Path(sys.executable).with_name("agentloom"))
ANY_PORTS = ("--api-port", "0", "--temporal-port", "0", "--ui-port", "0", "--pg-port", "0")


class DevProcess:
    """A running `agentloom dev`; `description` is the line it printed when everything answered."""

    def __init__(self, process: subprocess.Popen[str], data_dir: Path) -> None:
        self.process = process
        self.data_dir = data_dir
        self.description: dict[str, Any] = {}

    @property
    def pids(self) -> dict[str, int | None]:
        """What pids.json says now."""
        pids: dict[str, int | None] = json.loads((self.data_dir / "pids.json").read_text())
        return pids

    def read_ready_line(self) -> None:
        """Wait for the one line of JSON; a process that ended instead is an error with what it said."""
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            said = self.process.communicate()[1]
            raise RuntimeError(f"agentloom dev ended with {self.process.returncode}: {said}")
        self.description = json.loads(line)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; returns the exit code."""
        self.process.send_signal(number)
        return self.process.wait(30)


@contextmanager
def running_dev(
    data_dir: Path, *options: str, environment: Mapping[str, str] | None = None, ports: tuple[str, ...] = ANY_PORTS
) -> Iterator[DevProcess]:
    """A stack that is up; stopped at the end of the block if it still runs."""
    process = subprocess.Popen(
        [AGENTLOOM, "dev", "--json", "--data-dir", str(data_dir), *ports, *options],
        env=os.environ | dict(environment or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        stack = DevProcess(process, data_dir)
        try:
            stack.read_ready_line()
            yield stack
        finally:
            if process.poll() is None:
                stack.end()


def run_agentloom(*arguments: str, environment: Mapping[str, str] | None = None, folder: Path | None = None) -> Any:
    """One command line to its end: an object with `returncode`, `stdout` and `stderr`."""
    return subprocess.run(
        [AGENTLOOM, *arguments],
        env=os.environ | dict(environment or {}),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=50,
    )


def is_alive(pid: int | None) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # the second if it goes while its file is open
        return False
    return state != "Z"


def until(condition: Callable[[], bool], *, within_s: float = 20.0) -> None:
    """Wait until the condition holds; an AssertionError if it does not in time."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)

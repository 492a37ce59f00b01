"""Child processes as values, and how one is spawned: it dies with us, writes to its own log, and reads no terminal.

A child is spawned from the main thread, because the kernel sends the parent-death signal when the *thread* that forked
ends. It gets its own session, so that Ctrl-C reaches only the parent, which stops the children in order.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from stack.files import make_private

SHIM = Path(__file__).with_name("shim.py")
STAND_IN = "--stand-in"
LOG_LIMIT = 16 * 1024 * 1024
"""A log larger than this, in bytes, is set aside at the next start of its child."""

Identity = str
SAME_USER: Identity = "same"
NAMESPACE: Identity = "namespace"


@dataclass(frozen=True)
class ChildSpec:
    """One process of the stack: what to run, how to see that it answers, how to end it."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    log_file: Path
    is_ready: Callable[[int], Awaitable[bool]]
    """Asked repeatedly with the child's process id; true once it answers."""
    identity: Identity = SAME_USER
    stop_signal: signal.Signals = signal.SIGTERM
    death_signal: signal.Signals = signal.SIGKILL
    """What the kernel sends it when we die without a word."""
    stop_within_s: float = 15
    """Seconds after the stop signal until it is killed."""
    start_attempts: int = 3
    """Times it may end before it was ready once, until starting is given up."""
    stand_in_after_s: float | None = None
    """Seconds after a start until another process of it waits to take its place; None: none does."""


def user_identity(uid: int, gid: int) -> Identity:
    """Run the child as this user."""
    return f"user:{uid}:{gid}"


def shim_command(command: tuple[str, ...], *, identity: Identity, death_signal: signal.Signals) -> tuple[str, ...]:
    """The command wrapped so that it dies with this process and has the given identity."""
    python = (sys.executable, "-I", "-S", str(SHIM))
    return (*python, str(os.getpid()), str(int(death_signal)), identity, *command)


def spawn(spec: ChildSpec) -> subprocess.Popen[bytes]:
    """Start the child; returns at once."""
    make_private(spec.log_file.parent)
    _set_aside(spec.log_file)
    return _spawned(spec, spec.command, stdin=subprocess.DEVNULL)


def spawn_waiting(spec: ChildSpec) -> subprocess.Popen[bytes]:
    """Start one more process of a child that runs, which waits for a line on its standard input."""
    return _spawned(spec, (*spec.command, STAND_IN), stdin=subprocess.PIPE)


def _spawned(spec: ChildSpec, command: tuple[str, ...], *, stdin: int) -> subprocess.Popen[bytes]:
    with open(spec.log_file, "ab", opener=_private) as log:
        return subprocess.Popen(
            shim_command(command, identity=spec.identity, death_signal=spec.death_signal),
            env=dict(spec.environment),
            stdin=stdin,
            stdout=log,
            stderr=log,
            start_new_session=True,
            umask=0o077,  # what a child writes is for us alone
        )


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether the process has ended, without collecting it: until `exited` does, its id can't be given to another."""
    if process.returncode is not None:
        return True
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


async def exited(process: subprocess.Popen[bytes]) -> int:
    """Wait until the process has ended and collect it; returns its exit code, negative for a signal.

    What it left behind in its process group, such as a tool's own subprocesses, is killed.
    """
    while not has_ended(process):
        await _end_signalled(process.pid)
    if process.returncode is None:
        # Before it is collected: afterwards the number could already belong to a stranger's group.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def send(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal; a process that is gone already is fine."""
    with suppress(ProcessLookupError):
        process.send_signal(number)


def last_line(log_file: Path) -> str:
    """The last line that says something in a child's log, an error before all others; empty if there is none."""
    with suppress(OSError), log_file.open("rb") as log:
        log.seek(max(0, log_file.stat().st_size - 4096))
        lines = [line.strip() for line in reversed(log.read().decode("utf-8", "replace").splitlines())]
        errors = (line for line in lines if '"level": "error"' in line or '"level": "critical"' in line)
        return next(errors, next(filter(None, lines), ""))[:300]
    return ""


async def _end_signalled(pid: int) -> None:
    """Return when the process may have ended. Without process descriptors this is a short pause."""
    if not hasattr(os, "pidfd_open"):
        await asyncio.sleep(0.05)
        return
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _set_aside(log_file: Path) -> None:
    if log_file.exists() and log_file.stat().st_size > LOG_LIMIT:
        log_file.replace(log_file.with_suffix(".old.log"))

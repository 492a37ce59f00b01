"""Runs a program so that nothing of it outlives whoever started it: neither a kill -9 nor a program that hangs.

Run as a script by the interpreter (`-I -S`, importing nothing of ours), with PARENT_PID COMMAND…. It stands between
the two and leaves the program its standard streams; of a program that can't be started it says so there, as a message
of the protocol. When the program or the parent ends, or a SIGTERM comes, all that
is left of the program is told to end, and killed a second later. On Linux that holds for descendants in sessions of
their own too, which become children of this process; elsewhere for the process group.
"""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
EXIT_CANNOT_START = 127
CANNOT_START = b'{"jsonrpc":"2.0","method":"notifications/agentloom/cannot_start","params":{"errno":%d}}\n'
GRACE_S = 1.0
_PAUSE_S = 0.01
_ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_WATCHED = (*_ENDS, signal.SIGCHLD, signal.SIGALRM)


def tell_kernel(option: int, value: int) -> None:
    """A promise of the kernel's to this process; where there is no such call, nothing changes."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value)


def start(command: list[str]) -> int:
    """The program as a child that dies with this process; its process id."""
    pid = os.fork()
    if pid:
        return pid
    tell_kernel(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(1, CANNOT_START % (error.errno or 0))
        os._exit(EXIT_CANNOT_START)


def let_go_of_streams() -> None:
    """The program's streams are its own: who reads them must see their end when it ends."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)


def ended() -> Iterator[tuple[int, int]]:
    """Children that have ended, as id and exit code. Raises ChildProcessError when there are none left at all."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        yield pid, os.waitstatus_to_exitcode(status)


def watch(program: int, parent: int) -> int | None:
    """Returns the program's exit code once it has ended, or None when it must be ended."""
    while True:
        number = signal.sigwait(_WATCHED)
        for pid, code in ended():
            if pid == program:
                return code
        if number in _ENDS or os.getppid() != parent:
            return None


def children() -> list[int]:
    """Who is a child of this process now; orphans of the program are."""
    found = []
    with suppress(OSError):
        for name in filter(str.isdecimal, os.listdir("/proc")):
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                # The name, in parentheses, may hold anything; the parent's id is the second field behind it.
                if int(file.read().rpartition(b")")[2].split()[1]) == os.getpid():
                    found.append(int(name))
    return found


def end_what_is_left() -> None:
    """TERM to all, and KILL to those that are there after the grace, until nobody is."""
    os.killpg(0, signal.SIGTERM)  # this process has it blocked
    told: set[int] = set()
    kill_from = time.monotonic() + GRACE_S
    with suppress(ChildProcessError):
        while True:
            for _ in ended():
                pass
            if time.monotonic() < kill_from:
                tell_strangers(told)
            else:
                kill_all()
            time.sleep(_PAUSE_S)


def tell_strangers(told: set[int]) -> None:
    """TERM, once, to children in groups of their own."""
    for pid in set(children()) - told:
        told.add(pid)
        with suppress(ProcessLookupError):
            if os.getpgid(pid) != os.getpgrp():
                os.kill(pid, signal.SIGTERM)


def kill_all() -> None:
    """The children that there are now; theirs become ours and are next."""
    if sys.platform != "linux":
        os.killpg(0, signal.SIGKILL)
    for pid in children():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def main(arguments: list[str]) -> int:
    parent, command = int(arguments[0]), arguments[1:]
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    tell_kernel(PR_SET_PDEATHSIG, signal.SIGTERM)
    tell_kernel(PR_SET_CHILD_SUBREAPER, 1)
    if sys.platform != "linux":
        signal.setitimer(signal.ITIMER_REAL, 1, 1)  # nobody tells of the parent's end there
    if os.getppid() != parent:  # it ended before it could be told of
        return EXIT_CANNOT_START
    program = start(command)
    let_go_of_streams()
    code = watch(program, parent)
    end_what_is_left()
    return 0 if code == 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

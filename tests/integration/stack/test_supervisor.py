"""The supervisor with small real processes: kept alive, ids kept true, stopped in order, gone with their parent."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from stack.children import ChildSpec
from stack.errors import StackError
from stack.ports import accepts_connections, any_free_port
from stack.supervisor import Supervisor, failures_in_a_row, pause_before_restart

LISTENER = """
import signal, socket, sys, time
signal.signal(signal.SIGTERM, lambda *_: (open({order!r}, "a").write({name!r} + " "), sys.exit(0)))
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(("127.0.0.1", {port}))
server.listen()
while True:
    server.accept()[0].close()
"""
WITH_STAND_IN = """
import os, sys, time
def note(name):
    with open({folder!r} + "/" + name, "a") as file:
        file.write(str(os.getpid()) + chr(10))
note("loaded")
if "--stand-in" in sys.argv and not sys.stdin.readline():
    sys.exit()
note("works")
time.sleep(600)
"""
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)


def python_child(tmp_path: Path, name: str, code: str, *, port: int | None = None, attempts: int = 3) -> ChildSpec:
    async def is_ready(pid: int) -> bool:
        return port is None or await accepts_connections(port)

    return ChildSpec(
        name=name,
        command=(sys.executable, "-c", code),
        environment=dict(os.environ),
        log_file=tmp_path / f"{name}.log",
        is_ready=is_ready,
        start_attempts=attempts,
        stop_within_s=0.5,
    )


def listener(tmp_path: Path, name: str, port: int) -> ChildSpec:
    code = LISTENER.format(order=str(tmp_path / "order"), name=name, port=port)
    return python_child(tmp_path, name, code, port=port)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return b"Z" not in Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[:1]


@pytest.fixture
async def supervisor() -> AsyncIterator[Supervisor]:
    made = Supervisor()
    yield made
    await made.stop()


async def test_a_started_child_answers(supervisor: Supervisor, tmp_path: Path) -> None:
    """SPEC 17: starting returns when the child answers, not when it was spawned."""
    port = any_free_port()
    await supervisor.start(listener(tmp_path, "one", port))
    assert await accepts_connections(port)


async def test_a_killed_child_is_back_on_its_port(supervisor: Supervisor, tmp_path: Path) -> None:
    """SPEC 17: it restarts a child that dies, on the same ports."""
    port = any_free_port()
    await supervisor.start(listener(tmp_path, "one", port))
    first = supervisor.pids["one"]
    assert first
    os.kill(first, signal.SIGKILL)
    await until(lambda: supervisor.pids["one"] not in (None, first))
    async with asyncio.timeout(10):
        while not await accepts_connections(port):
            await asyncio.sleep(0.01)


async def test_every_change_of_process_ids_is_told(tmp_path: Path) -> None:
    """SPEC 17: pids.json is kept true, also while a child is down."""
    told: list[Mapping[str, int | None]] = []
    ended: list[tuple[str, int]] = []
    supervisor = Supervisor(on_pids=told.append, on_restart=lambda name, code: ended.append((name, code)))
    await supervisor.start(listener(tmp_path, "one", any_free_port()))
    first = supervisor.pids["one"]
    assert first
    os.kill(first, signal.SIGKILL)
    await until(lambda: len(told) >= 3)
    await supervisor.stop()
    second = told[2]["one"]
    assert second != first
    assert told == [{"one": first}, {"one": None}, {"one": second}, {"one": None}]
    assert ended == [("one", -signal.SIGKILL)]


async def test_children_stop_in_the_reverse_order_of_their_start(tmp_path: Path) -> None:
    """SPEC 17: the API before the worker, the worker before the servers it uses."""
    supervisor = Supervisor()
    for name in ("database", "worker", "api"):
        await supervisor.start(listener(tmp_path, name, any_free_port()))
    await supervisor.stop()
    assert (tmp_path / "order").read_text().split() == ["api", "worker", "database"]


async def test_a_child_that_ignores_its_stop_signal_is_killed(tmp_path: Path) -> None:
    """SPEC 17: it stops everything it started."""
    supervisor = Supervisor()
    await supervisor.start(python_child(tmp_path, "stubborn", STUBBORN))
    pid = supervisor.pids["stubborn"]
    assert pid
    await until(lambda: "up" in (tmp_path / "stubborn.log").read_text())
    await supervisor.stop()
    assert not is_alive(pid)


async def test_a_second_wish_to_stop_kills_what_is_left_at_once(tmp_path: Path) -> None:
    """SPEC 17: Ctrl-C twice."""
    spec = python_child(tmp_path, "stubborn", STUBBORN)
    supervisor = Supervisor()
    await supervisor.start(ChildSpec(**{**vars(spec), "stop_within_s": 300}))
    pid = supervisor.pids["stubborn"]
    assert pid
    await until(lambda: "up" in (tmp_path / "stubborn.log").read_text())
    stopping = asyncio.create_task(supervisor.stop())
    await asyncio.sleep(0.05)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert not is_alive(pid)


async def test_a_child_that_cannot_start_is_reported_with_its_last_words(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    """SPEC 17: what, why, next."""
    spec = python_child(tmp_path, "broken", "print('no disk left'); raise SystemExit(7)", port=1, attempts=2)
    with pytest.raises(StackError) as caught:
        await supervisor.start(spec)
    assert caught.value.message == "broken did not start."
    assert "exit code 7" in caught.value.why
    assert "no disk left" in caught.value.why
    assert "broken.log" in caught.value.mend


async def test_a_child_that_never_answers_is_reported(supervisor: Supervisor, tmp_path: Path) -> None:
    """SPEC 17: `dev` does not wait for ever."""
    with pytest.raises(StackError, match="mute did not start"):
        await supervisor.start(python_child(tmp_path, "mute", "import time; time.sleep(600)", port=1), within_s=0.3)


async def test_what_a_killed_child_started_itself_is_gone_too(supervisor: Supervisor, tmp_path: Path) -> None:
    """SPEC 17: nothing is left, also of subprocesses of a tool."""
    code = (
        "import subprocess, time; p = subprocess.Popen(['sleep', '600'])\n"
        f"open({str(tmp_path / 'pid')!r}, 'a').write(f'{{p.pid}}\\n'); time.sleep(600)"
    )
    await supervisor.start(python_child(tmp_path, "worker", code))
    await until((tmp_path / "pid").exists)
    await until(lambda: "\n" in (tmp_path / "pid").read_text())
    grandchild = int((tmp_path / "pid").read_text().split()[0])
    os.kill(supervisor.pids["worker"] or 0, signal.SIGKILL)
    await until(lambda: not is_alive(grandchild))


def test_the_first_restart_is_at_once_and_later_ones_wait_longer_up_to_a_limit() -> None:
    """SPEC 17: a child that dies is restarted."""
    pauses = [pause_before_restart(failures) for failures in range(1, 12)]
    assert pauses[0] == 0
    assert pauses == sorted(pauses)
    assert pauses[-1] == 5.0


@pytest.mark.parametrize(
    ("lived_s", "exit_code", "counted"),
    [(2.5, -signal.SIGKILL, 1), (1.5, -signal.SIGKILL, 5), (2.5, -signal.SIGSEGV, 5), (2.5, 1, 5), (6.0, 1, 1)],
)
def test_what_is_killed_again_and_again_after_its_start_is_back_at_once(
    lived_s: float, exit_code: int, counted: int
) -> None:
    """SPEC 17: only what ends by itself, or while it still starts, has to wait ever longer."""
    assert failures_in_a_row(4, lived_s=lived_s, exit_code=exit_code) == counted


@dataclass(frozen=True)
class Noted:
    """The processes that came about, in their order, and those of them that began to work."""

    folder: Path

    @property
    def loaded(self) -> list[int]:
        return self._pids("loaded")

    @property
    def works(self) -> list[int]:
        return self._pids("works")

    def _pids(self, name: str) -> list[int]:
        path = self.folder / name
        return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
async def noted(supervisor: Supervisor, tmp_path: Path) -> Noted:
    """A child that has a stand-in, loaded by now."""
    code = WITH_STAND_IN.format(folder=str(tmp_path))
    await supervisor.start(replace(python_child(tmp_path, "one", code), stand_in_after_s=0.1))
    noted = Noted(tmp_path)
    await until(lambda: len(noted.loaded) == 2)
    return noted


async def test_a_killed_childs_place_is_taken_by_its_stand_in(supervisor: Supervisor, noted: Noted) -> None:
    """SPEC 17: what was loaded before works at once, is the child from then on, and has a stand-in itself."""
    first, second = noted.loaded
    assert noted.works == [first]
    os.kill(first, signal.SIGKILL)
    await until(lambda: noted.works == [first, second])
    assert supervisor.pids == {"one": second}
    await until(lambda: len(noted.loaded) == 3)


async def test_a_child_whose_stand_in_is_dead_too_is_started_anew(supervisor: Supervisor, noted: Noted) -> None:
    """SPEC 17: one that was killed takes nobody's place."""
    for pid in reversed(noted.loaded):
        os.kill(pid, signal.SIGKILL)
    await until(lambda: len(noted.works) == 2)
    assert noted.works[1] not in noted.loaded[:2]
    assert supervisor.pids == {"one": noted.works[1]}


async def test_a_stand_in_ends_with_its_supervisor(supervisor: Supervisor, noted: Noted) -> None:
    """SPEC 17: nothing is left, and who never worked needs no time to stop."""
    await supervisor.stop()
    assert not any(is_alive(pid) for pid in noted.loaded)


async def test_nothing_is_left_when_the_parent_is_killed(tmp_path: Path) -> None:
    """SPEC 17, issue: nothing left after kill -9 of the parent."""
    code = textwrap.dedent(f"""
        import asyncio, sys
        from pathlib import Path
        sys.path.insert(0, {str(Path.cwd())!r})
        from stack.children import spawn
        from tests.integration.stack.test_supervisor import python_child
        child = spawn(python_child(Path({str(tmp_path)!r}), "child", {STUBBORN!r}))
        print(child.pid, flush=True)
        import time; time.sleep(600)
    """)
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    with parent, parent.stdout:
        child = int(parent.stdout.readline())
        assert is_alive(child)
        parent.kill()
    await until(lambda: not is_alive(child))

"""Files of Python tools that somebody edits: what is published, and what a process that imported them before does."""

import asyncio
import contextlib
import json
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from temporalio.worker.workflow_sandbox._importer import _thread_local_sys_modules

from context.errors import ConfigurationInvalidError
from context.policy import FrozenTool, ToolEntry
from tests.support.tool_calls import entry, invocation, no_progress
from tools import describing
from tools.describing import Descriptions
from tools.python import PythonTool, freeze_python
from tools.python_code import code_of

ADD = "def f(a: int) -> int:\n    return a + 1\n"
JOIN = "def f(words: list[str]) -> str:\n    return ' '.join(words)\n"


@dataclass(frozen=True)
class Folder:
    """A folder of somebody's tools, on the import path of this process."""

    path: Path
    module: str

    def write(self, text: str, name: str = "") -> None:
        (self.path / f"{name or self.module}.py").write_text(text)

    @property
    def entry(self) -> ToolEntry:
        return entry(kind="python", entry=f"{self.module}:f")

    async def publish(self) -> FrozenTool:
        written = self.entry.entry or ""
        return freeze_python(self.entry, (await Descriptions().of([written]))[written])

    async def call(self, frozen: FrozenTool, **arguments: Any) -> Any:
        """What a call brings: its content, or the message of its error."""
        outcome = await PythonTool(frozen, self.entry).run(invocation(**arguments), on_progress=no_progress)
        return outcome.content if outcome.status == "ok" else json.loads(outcome.content)["error"]["message"]


@pytest.fixture
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Folder]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path, str(tmp_path)])
        yield Folder(tmp_path, f"edited_{request.node.name.partition('[')[0][5:45]}")


async def test_publishing_sees_a_file_as_it_is_now_and_imports_nothing_here(folder: Folder) -> None:
    """SPEC T1: with no restart between, whatever was published before."""
    folder.write(ADD)
    first = await folder.publish()
    folder.write(JOIN)
    second = await folder.publish()
    assert [list(one.parameters["properties"]) for one in (first, second)] == [["a"], ["words"]]
    assert first.code != second.code
    assert folder.module not in sys.modules


async def test_what_has_not_changed_is_not_imported_again(folder: Folder) -> None:
    """SPEC T1: publishing again costs a look at the files; one that was added beside them is looked at too."""
    described, written = Descriptions(), f"{folder.module}:f"
    folder.write("import os\nopen(os.environ['TRACE'], 'a').write('x')\ndef f(a: int) -> int:\n    return a\n")
    trace = folder.path / "trace"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRACE", str(trace))
        once, again = await described.of([written]), await described.of([written])
        assert (once, trace.read_text()) == (again, "x")
        folder.write("", "added_beside")
        assert await described.of([written]) == once
        assert trace.read_text() == "xx"


async def test_what_a_tool_imports_from_beside_it_is_its_code_too(folder: Folder) -> None:
    """SPEC T1: a schema can stand there; what is installed is no part of it."""
    folder.write("import json\nimport pydantic\nimport beside\ndef f(a: beside.Kind) -> str:\n    return a\n")
    folder.write("from typing import Literal\nKind = Literal['x']\n", "beside")
    first = await folder.publish()
    folder.write("from typing import Literal\nKind = Literal['y']\n", "beside")
    second = await folder.publish()
    assert first.code
    assert second.code
    assert set(first.code) == {folder.module, "beside"}
    assert [name for name in first.code if first.code[name] != second.code[name]] == ["beside"]
    assert second.parameters["properties"]["a"]["const"] == "y"


async def test_the_same_files_are_the_same_code_in_whatever_order(folder: Folder) -> None:
    """SPEC T1: publishing again changes nothing; no tool finds what another one's import left."""
    folder.write(ADD)
    folder.write("import sys\ndef f() -> int:\n    return 1\n", "other")
    both = [f"{folder.module}:f", "other:f"]
    once, again = await Descriptions().of(both), await Descriptions().of(both[::-1])
    assert once == again
    assert [set(once[written].code) for written in both] == [{folder.module}, {"other"}]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("LEFT = 1\nraise ValueError('MARK')\n", "failed with ValueError"),
        ("import os\nos._exit(0)\n", "ended its process"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n", "ended its process"),
        ('print(\'{"text": "MARK"}\')\n', "has no function 'f'"),
    ],
)
async def test_a_file_that_does_not_load_is_refused_and_harms_nobody(folder: Folder, text: str, words: str) -> None:
    """SPEC T1, E, Y6: what it does or prints reaches neither this process nor the message; mended, it is published."""
    folder.write(text)
    with pytest.raises(ConfigurationInvalidError) as refused:
        await folder.publish()
    assert words in refused.value.message
    assert "MARK" not in refused.value.message
    folder.write(ADD)
    assert list((await folder.publish()).parameters["properties"]) == ["a"]


async def test_an_import_that_never_ends_is_ended(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC E, Y5: within the limit, with all that it started."""
    monkeypatch.setattr(describing, "IMPORT_LIMIT_S", 5)
    pid = folder.path / "pid"
    folder.write(f"import os, time\nopen({str(pid)!r}, 'w').write(str(os.getpid()))\ntime.sleep(1_000)\n")
    with pytest.raises(ConfigurationInvalidError, match="took more than 5 seconds"):
        await folder.publish()
    number = int(pid.read_text())
    async with asyncio.timeout(15):
        while _lives(number):
            await asyncio.sleep(0.01)


def _lives(pid: int) -> bool:
    """Whether the process is there and no zombie that whoever inherited it has yet to bury."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_a_process_that_imported_the_file_before_says_that_it_has_to_be_restarted(folder: Folder) -> None:
    """SPEC T1: it never runs old code for a release that was published with new code; the old release goes on."""
    folder.write(ADD)
    first = await folder.publish()
    assert await folder.call(first, a=1) == "2"
    folder.write(JOIN)
    second = await folder.publish()
    said = await folder.call(second, words=["a", "b"])
    assert "has to be restarted" in said
    assert "was not called" in said
    assert await folder.call(first, a=1) == "2"


async def test_old_code_beside_the_tool_is_old_code_too(folder: Folder) -> None:
    """SPEC T1: the file of the tool itself may be as it was."""
    folder.write("import near\ndef f() -> int:\n    return near.NUMBER\n")
    folder.write("NUMBER = 1\n", "near")
    assert await folder.call(await folder.publish()) == "1"
    folder.write("NUMBER = 2  # edited\n", "near")
    assert "has to be restarted" in await folder.call(await folder.publish())


async def test_a_file_that_was_mended_before_the_process_began_is_run_as_it_is(folder: Folder) -> None:
    """SPEC T1: whoever starts a worker decides what code it has; a Run of an older release goes on with it."""
    folder.write(ADD)
    frozen = await folder.publish()
    folder.write(ADD.replace("+ 1", "+ 2"))
    assert await folder.call(frozen, a=1) == "3"


async def test_a_release_from_before_hashes_were_kept_is_run(folder: Folder) -> None:
    """SPEC T1, W6."""
    folder.write(ADD)
    frozen = (await folder.publish()).model_copy(update={"code": None})
    assert await folder.call(frozen, a=1) == "2"


async def test_a_process_that_publishes_leaves_no_process_behind(folder: Folder) -> None:
    """SPEC Y5: nor does what a module starts outlast the answer."""
    pid = folder.path / "pid"
    folder.write(
        "import os, subprocess\n"
        "started = subprocess.Popen(['sleep', '1000'])\n"
        f"open({str(pid)!r}, 'w').write(str(started.pid))\n{ADD}"
    )
    await folder.publish()
    number = int(pid.read_text())
    async with asyncio.timeout(15):
        while _lives(number):
            await asyncio.sleep(0.01)


async def test_code_is_found_while_workflows_import_in_other_threads(folder: Folder) -> None:
    """T1: the sandbox of a workflow puts a mapping of its own in the place of `sys.modules`, for all threads."""
    folder.write(ADD)
    published = await folder.publish()
    assert await folder.call(published, a=1) == "2"
    ended = threading.Event()

    def import_on() -> None:
        while not ended.is_set():
            sys.modules.update({f"{folder.module}_{number}": sys for number in range(50)})
            for number in range(50):
                del sys.modules[f"{folder.module}_{number}"]

    switched = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # so that the threads take turns within a look
    importing = threading.Thread(target=import_on)
    importing.start()
    try:
        with _thread_local_sys_modules.applied(sys, "modules", _thread_local_sys_modules.orig):
            assert all(code_of(f"{folder.module}:f") == published.code for _ in range(3))
    finally:
        ended.set()
        importing.join()
        sys.setswitchinterval(switched)


class Meeting(dict[str, Any]):
    """The cache of a process's import finders, looked through by two threads at the same moment, if they can."""

    def __init__(self, finders: dict[str, Any]) -> None:
        super().__init__(finders)
        self._both = threading.Barrier(2)

    def items(self) -> Any:
        found = dict(super().items()).items()
        with contextlib.suppress(threading.BrokenBarrierError):
            self._both.wait(0.3)
        return found


async def test_the_first_calls_of_a_process_do_not_fail_each_other(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T2, T9: two threads that drop what finders remember would each drop the same, and Python fails the second."""
    folder.write(ADD)
    published = await folder.publish()
    monkeypatch.setattr(sys, "path_importer_cache", Meeting(sys.path_importer_cache | {"/no/such.zip": None}))
    assert list(await asyncio.gather(folder.call(published, a=1), folder.call(published, a=2))) == ["2", "3"]

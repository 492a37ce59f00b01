"""`agentloom demo` as somebody meets it who has just cloned the repository (SPEC 17)."""

import os
import re
import shlex
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.dev_stack import DevProcess, is_alive, run_agentloom, running_dev

MOST_LINES = 24  # with the line of the installation before it: 25
SLOWEST_S = 30  # ten when nothing else runs on the machine, which a test cannot know


OF_OTHERS = {
    "DATABASE_URL": "postgresql://ann@127.0.0.1:1/precious",
    "TEMPORAL_ADDRESS": "127.0.0.1:1",
    "AGENTLOOM_TASK_QUEUE": "of-others",
}


@dataclass(frozen=True)
class Shown:
    """What the demo says: its progress on standard error, its answer and claims on standard output."""

    progress: str
    claims: str
    folder: Path

    @property
    def stack_command(self) -> str:
        """The command that it says to start first."""
        found = re.search(r"^To look closer, first in another terminal: (.*)$", self.claims, re.MULTILINE)
        assert found
        return found[1]

    @property
    def commands(self) -> list[str]:
        """The commands that show its claims."""
        return re.findall(r"^.*: (\S*agentloom --stack .*)$", self.claims, re.MULTILINE)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """What the demo prints, run once in an empty folder, in a shell of somebody who has servers of their own."""
    folder = tmp_path_factory.mktemp("demo")
    answer = run_agentloom("demo", folder=folder, environment=OF_OTHERS)
    assert answer.returncode == 0, answer.stderr
    return Shown(str(answer.stderr), str(answer.stdout), folder)


def test_the_data_folder_is_for_its_owner_alone(shown: Shown) -> None:
    """SPEC 17: it is that of an `agentloom dev` in the same folder too, which keeps its secrets there."""
    for folder in (".agentloom", ".agentloom/demo", ".agentloom/demo/logs"):
        assert stat.S_IMODE((shown.folder / folder).stat().st_mode) == 0o700


def pasted(command: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """What a shell says to the command."""
    environment = os.environ | {"AGENTLOOM_API": "http://127.0.0.1:1", "AGENTLOOM_API_KEY": "another's"}
    return subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=50
    )


def test_the_demo_ends_well_in_few_lines_and_says_how_long_it_took(shown: Shown) -> None:
    lines = shown.claims.splitlines()
    assert len(lines) + len(shown.progress.splitlines()) <= MOST_LINES
    last = re.fullmatch(r"Run succeeded\. Everything is stopped again\. (\d+\.\d) s\.", lines[-1])
    assert last
    assert float(last[1]) < SLOWEST_S


def test_the_worker_is_really_killed_and_the_run_goes_on(shown: Shown) -> None:
    """SPEC R2: the loops after the kill are shown behind it."""
    killed = re.search(r"\*\*\* kill -9 of worker (\d+), and said while there is none: ", shown.progress)
    assert killed
    assert not is_alive(int(killed[1]))
    after = shown.progress[killed.end() :]
    assert re.search(r"\*\*\* the next step came \d+\.\d s later", after)
    assert re.search(r"loop \d+: request", after)


def test_what_was_said_while_there_was_no_worker_reaches_the_model(shown: Shown) -> None:
    """SPEC R1, S4: accepted, in the next request, delivered."""
    said = shown.progress[shown.progress.index("*** kill -9") :]
    assert [mark in said for mark in ("· +1 supplement", "input 2 reached the model")] == [True, True]
    assert re.search(r"2 of 2 inputs reached the model: .* show inputs [0-9a-f-]{36}$", shown.claims, re.MULTILINE)


def test_the_context_is_compacted_on_the_way(shown: Shown) -> None:
    """SPEC K1: the summary is shorter, and the Run goes on with it."""
    assert "context compacted: " in shown.progress
    told = re.search(r"^context compacted: (\d+) → (\d+) tokens .* show compactions ", shown.claims, re.MULTILINE)
    assert told
    assert int(told[2]) < int(told[1])


CLAIMS = (
    r"\d+ model and \d+ tool calls, .*: \S*agentloom --stack \S+ show operations \S+",
    r"last request \[.*\] .*: \S*agentloom --stack \S+ show view \S+",
    r"rebuilt, sha256 [0-9a-f]{12}: \S*agentloom --stack \S+ show request \S+",
    r"\d+ records and \d+ requests checked, 0 broken: \S*agentloom --stack \S+ verify \S+",
    r"its workflow: http://127\.0\.0\.1:\d+/namespaces/default/workflows/run%2F\S+",
)


def test_each_claim_has_a_command_or_link_that_shows_it(shown: Shown) -> None:
    """SPEC 17, A9, M7."""
    assert [claim for claim in CLAIMS if not re.search(rf"^{claim}$", shown.claims, re.MULTILINE)] == []


def test_the_demo_touches_no_server_of_the_environment(shown: Shown) -> None:
    """SPEC 17: it would bring its schema, its user and its agent into somebody's database."""
    assert "PostgreSQL None" not in shown.progress
    assert shown.stack_command.startswith("env -u DATABASE_URL -u TEMPORAL_ADDRESS ")


def test_nothing_of_the_demo_is_left_running(shown: Shown) -> None:
    pids = re.search(r"PostgreSQL (\d+), Temporal (\d+), worker (\d+) and API (\d+) are up", shown.progress)
    assert pids
    assert [pid for pid in map(int, pids.groups()) if is_alive(pid)] == []


def test_the_answer_quotes_the_documents_and_says_who_speaks(shown: Shown) -> None:
    """SPEC 18: the demo model says in every answer that it is no language model."""
    assert "not a language model" in shown.claims
    assert "A Run survives the crash of a worker because" in shown.claims


def test_a_command_of_the_demo_says_that_its_stack_is_stopped_and_how_to_start_it(shown: Shown) -> None:
    """SPEC 17: whatever else the environment or the folder names; three lines, exit code 3."""
    said = pasted(shown.commands[0], shown.folder)
    assert (said.returncode, said.stdout, len(said.stderr.splitlines())) == (3, "", 3)
    assert "No stack runs on .agentloom/demo" in said.stderr
    assert "agentloom dev --data-dir .agentloom/demo --api-port 0" in said.stderr


def test_each_command_of_the_demo_shows_what_it_claims_beside_another_stack_of_the_folder(shown: Shown) -> None:
    """SPEC 17: pasted as it stands there, with a stack of one's own running in the same folder."""
    assert len(shown.commands) == 6
    with running_dev(shown.folder / ".agentloom"), started(shown) as ui:
        said = [pasted(command, shown.folder) for command in shown.commands]
        assert [(one.returncode, one.stderr) for one in said if one.returncode] == []
        marks = ("business", "reached the model", "── 1 ", "── 1 system", '"messages":', "everything is as it was")
        assert [mark for mark, one in zip(marks, said, strict=True) if mark not in one.stdout] == []
        assert f"{ui}/namespaces/default/workflows/" in shown.claims


@contextmanager
def started(shown: Shown) -> Iterator[str]:
    """The stack of the demo's data, started as it says; the address of its Temporal UI."""
    command = [*shlex.split(shown.stack_command), "--json"]
    with subprocess.Popen(
        command, cwd=shown.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        stack = DevProcess(process, shown.folder / ".agentloom/demo")
        try:
            stack.read_ready_line()
            yield str(stack.description["temporal_ui"])
        finally:
            stack.end()

"""What the system refuses is said like any other mistake (SPEC 17)."""

import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli.main import run

ROOT = Path(__file__).resolve().parents[3]

INTERRUPTED_WHILE_LOADING = """
import os, signal, sys

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == "cli.main":
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may have it ignored
from cli.entry import main
sys.meta_path.insert(0, Interrupts())
main()
"""


def test_a_place_that_cannot_be_used_is_named_in_three_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """17: never a traceback."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".agentloom").touch()
    assert run(["demo"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 3
    assert ".agentloom" in said[0]
    assert "Not a directory" in said[1]


@pytest.mark.parametrize(
    ("typed", "code", "said"),
    [
        ("keys create --user ''", 2, "An empty text can't be the name of a user."),
        ("keys create --user 'ann lee'", 2, "'ann lee' can't be the name of a user."),
        ("ask --agent '' q", 4, "agentloom agents list"),
        ("ask --agent a --file ''", 2, "Invalid value for '--file'"),
        ("stop ''", 4, "An empty text names no run."),
        ("withdraw x", 4, "the id of an input is a UUID"),
        ("dev --data-dir ''", 2, "'--data-dir': it is empty"),
        ("dev --data-dir note.txt", 2, "Not a directory"),
        ("dev --app-dir ''", 2, "'--app-dir': it is empty"),
        ("doctor --data-dir ''", 2, "'--data-dir': it is empty"),
        ("--stack '' sessions list", 2, "'--stack': it is empty"),
        ("--stack note.txt sessions list", 3, "That is a file; --stack names a data folder."),
        ("--stack gone sessions list", 3, "There is no such folder."),
        ("publish ''", 2, "it is empty"),
        ("publish gone", 2, "gone can't be read."),
        ("publish .", 2, "Is a directory"),
        ("publish note.txt", 2, "The name must end in .yaml"),
    ],
)
def test_what_was_typed_is_named_as_it_was_typed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    typed: str,
    code: int,
    said: str,
) -> None:
    """17: before anything is asked or made."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "note.txt").touch()
    assert run(shlex.split(typed)) == code
    told = capsys.readouterr().err
    assert said in told
    assert len(told.splitlines()) <= 3
    assert [one.name for one in tmp_path.iterdir()] == ["note.txt"]


def test_an_interrupt_while_the_command_loads_shows_no_traceback() -> None:
    """17: the process ends as the system ends it, which a shell tells as 130."""
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_WHILE_LOADING], cwd=ROOT, capture_output=True, text=True, timeout=30
    )
    assert (ended.returncode, ended.stderr, ended.stdout) == (-signal.SIGINT, "", "")

"""What the system refuses is said like any other mistake (SPEC 17)."""

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


def test_an_interrupt_while_the_command_loads_shows_no_traceback() -> None:
    """17: the process ends as the system ends it, which a shell tells as 130."""
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_WHILE_LOADING], cwd=ROOT, capture_output=True, text=True, timeout=30
    )
    assert (ended.returncode, ended.stderr, ended.stdout) == (-signal.SIGINT, "", "")

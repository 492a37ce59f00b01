"""What `--help` says to somebody who has never seen this (SPEC 17)."""

from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from cli.main import build_app, run

ROOT: Any = typer.main.get_command(build_app())
GROUPS = ["", *(name for name, command in ROOT.commands.items() if hasattr(command, "commands"))]


def all_commands(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every command below a group, with its path."""
    for name, command in group.commands.items():
        yield f"{path} {name}", command
        if hasattr(command, "commands"):
            yield from all_commands(command, f"{path} {name}")


@pytest.mark.parametrize("group", GROUPS)
def test_a_list_of_commands_says_of_each_a_whole_sentence(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    """17: what is cut off in the middle has to be looked up one by one."""
    assert run([*group.split(), "--help"]) == 0
    listed = capsys.readouterr().out.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    assert listed
    assert [line for line in listed if not line.endswith(".") or line.endswith("...")] == []


def test_every_argument_and_option_says_what_it_is_for() -> None:
    """17."""
    mute = [f"{path} {p.name}" for path, command in all_commands(ROOT, "") for p in command.params if not p.help]
    assert mute == []


def test_the_help_says_how_to_begin_and_what_the_words_mean(capsys: pytest.CaptureFixture[str]) -> None:
    """17, 0: Session and Run are in nearly every command's help."""
    run(["--help"])
    shown = capsys.readouterr().out
    begin = ("agentloom dev", "agentloom publish FILE", 'agentloom ask --agent NAME "your question"')
    assert [line for line in (*begin, "A Session is ", "a Run is ") if line not in shown] == []

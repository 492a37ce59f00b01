"""`agentloom completion SHELL`: prints the script that completes commands and options."""

from enum import StrEnum
from typing import Annotated

import typer

from cli.output import print_lines


class Shell(StrEnum):
    """Shells that can complete."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(completion)


def completion(shell: Annotated[Shell, typer.Argument(help="Your shell.")]) -> int:
    """Print a script that completes commands in your shell.

    For example: agentloom completion bash >> ~/.bashrc
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]  # not re-exported by name

    script = get_completion_script(prog_name="agentloom", complete_var="_AGENTLOOM_COMPLETE", shell=shell.value)
    print_lines([script])
    return 0

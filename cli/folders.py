"""Folders and files that a person names to a command."""

from pathlib import Path

import typer


def named_path(given: str) -> Path:
    """The path. Raises BadParameter for an empty one, as an unset variable leaves it: it would mean the folder here."""
    if not given:
        raise typer.BadParameter("it is empty; the folder you are in is `.`")
    return Path(given)

"""Small files in the data folder: private (0600), and replaced as a whole, so that a reader never sees half of one."""

import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for its owner only. One that is there stays as it is.

    Raises OSError, also if something else is there.
    """
    for one in (*reversed(folder.parents), folder):
        if not one.exists():
            one.mkdir(mode=0o700, exist_ok=True)
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))


def write_private(path: Path, text: str) -> None:
    """Write or replace a file only its owner can read."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    draft.replace(path)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write or replace a private JSON file."""
    write_private(path, json.dumps(value) + "\n")


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file; None if there is no such file or it holds something else."""
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None

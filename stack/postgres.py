"""The embedded PostgreSQL: its own data folder, one password user, loopback TCP only.

Only the binaries come from a package; creating and launching are ours. Its log never holds statements, parameters or
the details of an error, since those could be content (SPEC Y6).
"""

import os
import re
import secrets
import signal
import stat
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import asyncpg

from settings import inherited_environment
from stack.binaries import PostgresBinaries, find_binaries
from stack.children import ChildSpec, Identity, shim_command
from stack.errors import StackError
from stack.ports import LOOPBACK

USER = "agentloom"
DATABASE = "agentloom"

SERVER_SETTINGS: Mapping[str, str] = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] ",
    # Nothing of what is stored may reach the log.
    "log_statement": "none",
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
    "log_parameter_max_length": "0",
    "log_parameter_max_length_on_error": "0",
    "log_min_duration_statement": "-1",
    # After a crash all files are flushed before anything else: one by one that takes seconds on a busy disk.
    **({"recovery_init_sync_method": "syncfs"} if sys.platform == "linux" else {}),
}

WITHOUT_DURABILITY: Mapping[str, str] = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
"""For servers of tests, whose data nobody needs after the machine stopped."""


REFUSALS: Mapping[type[Exception], str] = {
    asyncpg.InvalidPasswordError: "user or password is wrong",
    asyncpg.InvalidAuthorizationSpecificationError: "this user may not connect",
    asyncpg.InvalidCatalogNameError: "it has no database of this name",
    asyncpg.CannotConnectNowError: "it is starting or stopping",
    asyncpg.TooManyConnectionsError: "it has no connection left",
}


@dataclass(frozen=True)
class PostgresServer:
    """One embedded server: where its data is, who runs it, how it is reached."""

    binaries: PostgresBinaries
    data_dir: Path
    port: int
    password: str = field(repr=False)

    def url(self, database: str = DATABASE) -> str:
        """Address of one of its databases, password included."""
        return f"postgresql://{USER}:{quote(self.password, safe='')}@{LOOPBACK}:{self.port}/{database}"

    def child(self, *, log_file: Path, settings: Mapping[str, str] = {}) -> ChildSpec:
        """The server as a child process. A stale lock of a predecessor clears within seconds, so it is tried often."""
        options = {**SERVER_SETTINGS, **settings, "port": str(self.port)}
        return ChildSpec(
            name="postgres",
            command=(
                str(self.binaries.folder / "postgres"),
                "-D",
                str(self.data_dir),
                *(part for name, value in options.items() for part in ("-c", f"{name}={value}")),
            ),
            environment=server_environment(),
            log_file=log_file,
            is_ready=self._is_ready,
            identity=self.binaries.identity,
            stop_signal=signal.SIGINT,  # fast shutdown: it disconnects clients and ends cleanly
            death_signal=signal.SIGQUIT,  # immediate shutdown: its own children end with it
            start_attempts=12,
        )

    async def ensure_database(self) -> None:
        """Create the database if the server has none of its name."""
        connection = await asyncpg.connect(self.url("postgres"))
        try:
            if not await connection.fetchval("select 1 from pg_database where datname = $1", DATABASE):
                await connection.execute(f'create database "{DATABASE}"')
        finally:
            await connection.close()

    async def _is_ready(self, pid: int) -> bool:
        return await answers(self.url("postgres"))


def prepare(
    data_dir: Path, *, port: int, password: str, identities: Iterable[Identity] | None = None
) -> PostgresServer:
    """A server on this data folder, which is created at the first use. Starts nothing.

    `identities` is for `find_binaries`: who may run the server.

    Raises:
        StackError: no PostgreSQL of the needed version runs here, or the folder can't be made.
    """
    version_file = data_dir / "PG_VERSION"
    major = _made_by(version_file) if version_file.exists() else None
    server = PostgresServer(find_binaries(major=major, identities=identities), data_dir.resolve(), port, password)
    if major is None:
        _create(server)
    return server


def _made_by(version_file: Path) -> int:
    """The major version that made the data folder. Raises StackError if nobody can tell."""
    version = version_file.read_text("utf-8", "replace").strip()
    if not version.isdecimal():
        raise StackError(
            f"{version_file.parent} is damaged.",
            why="Its PG_VERSION is no version.",
            mend="Restore the folder from a copy, or start with another one: agentloom dev --data-dir OTHER",
        )
    return int(version)


def server_environment() -> dict[str, str]:
    """What a server we start sees of our environment: nothing that configures PostgreSQL, Temporal or AgentLoom."""
    ours = re.compile(r"AGENTLOOM_|PG|TEMPORAL_|DATABASE_URL$|.*(KEY|TOKEN|SECRET|PASSWORD)")
    return {name: value for name, value in inherited_environment().items() if not ours.match(name)}


async def answers(url: str) -> bool:
    """Whether the database takes connections now."""
    return await problem(url) is None


async def problem(url: str, *, timeout_s: float = 2.0) -> str | None:
    """Why the database takes no connection, as a sentence without its password; None if it takes them."""
    try:
        connection = await asyncpg.connect(url, timeout=timeout_s)
    except (OSError, TimeoutError):
        return f"Nothing answers at {_place(url)}."
    except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        return f"The server at {_place(url)} refuses: {REFUSALS.get(type(error), type(error).__name__)}."
    await connection.close()
    return None


def _place(url: str) -> str:
    """The server, or several, as the URL names them."""
    parts = urlsplit(url)
    named = parts.netloc.rpartition("@")[2] or parse_qs(parts.query).get("host", [LOOPBACK])[0]
    return named if ":" in named or "/" in named else f"{named}:5432"


def _create(server: PostgresServer) -> None:
    """Run initdb in a fresh folder beside the final one and move it there, so that a killed attempt leaves nothing."""
    server.data_dir.parent.mkdir(parents=True, exist_ok=True)
    draft = server.data_dir.with_name(f".{server.data_dir.name}.{secrets.token_hex(4)}")
    password_file = draft.with_suffix(".password")
    draft.mkdir(mode=0o700)
    _write_for(password_file, server.password)
    _give_to(server.binaries.identity, draft, password_file)
    try:
        _run_initdb(server, draft, password_file)
    finally:
        password_file.unlink()
    draft.replace(server.data_dir)


def _run_initdb(server: PostgresServer, folder: Path, password_file: Path) -> None:
    command = (
        str(server.binaries.folder / "initdb"),
        f"--pgdata={folder}",
        f"--username={USER}",
        f"--pwfile={password_file}",
        "--auth=scram-sha-256",
        "--encoding=UTF8",
        "--no-locale",
        "--no-sync",
        "--no-instructions",
    )
    wrapped = shim_command(command, identity=server.binaries.identity, death_signal=signal.SIGKILL)
    answer = subprocess.run(wrapped, env=server_environment(), capture_output=True, text=True)
    if answer.returncode != 0:
        lines = answer.stderr.strip().splitlines() or ["It said nothing."]
        raise StackError(
            "The PostgreSQL data folder could not be made.",
            why=lines[-1],
            mend=f"Look at {folder}, or set DATABASE_URL to an existing PostgreSQL.",
        )


def _write_for(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)


def _give_to(identity: Identity, *paths: Path) -> None:
    """Hand files to the service user that will run the server, and let it pass through the folder that holds them."""
    kind, _, ids = identity.partition(":")
    if kind != "user":
        return
    uid, _, gid = ids.partition(":")
    for path in paths:
        os.chown(path, int(uid), int(gid))
        path.parent.chmod(stat.S_IMODE(path.parent.stat().st_mode) | stat.S_IXOTH)

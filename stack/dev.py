"""The development stack as a whole: PostgreSQL, Temporal, worker and API under this process, described by one object.

It decides what to start (servers named in the environment are used as they are), in which order, and what each
process is told. Keeping the processes alive is the supervisor's work; printing is the command line's.
"""

import asyncio
import importlib
import os
import shutil
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from settings import (
    DevOverrides,
    clashing_modules,
    inherited_environment,
    load_dev_overrides,
    load_temporal_options,
    parse_index_key,
)
from stack import postgres, temporal
from stack.children import ChildSpec
from stack.errors import StackError, UnusableServerError, WrongOptionError
from stack.files import make_private, write_json
from stack.fitting import check_keys_of
from stack.lock import locked
from stack.ports import LOOPBACK, accepts_connections, wanted_port
from stack.secrets import DATABASE, DevSecrets, keep_api_key, load_or_make
from stack.supervisor import Supervisor

NAMES = ("postgres", "temporal", "worker", "api")
STAND_IN_AFTER_S = 3.0
"""Seconds in which the machine is left to the worker that has just started, and to what waits for it."""
DESCRIPTION_FILE = "dev.json"
PIDS_FILE = "pids.json"


@dataclass(frozen=True)
class DevOptions:
    """What a person may choose; port 0 is any free one."""

    data_dir: Path = Path(".agentloom")
    api_port: int = 8700
    temporal_port: int = 7233
    ui_port: int = 8233
    pg_port: int = 5433
    app_dir: Path | None = None


@dataclass(frozen=True)
class DevServers:
    """Where everything is: our own embedded servers, or None where one of the environment is used."""

    postgres: postgres.PostgresServer | None
    temporal: temporal.TemporalServer | None
    database_url: str
    temporal_address: str
    api_port: int

    @property
    def api_url(self) -> str:
        return f"http://{LOOPBACK}:{self.api_port}"


class DevStack:
    """A running stack. `description` is what `agentloom dev --json` prints (SPEC 17)."""

    def __init__(
        self,
        options: DevOptions,
        overrides: DevOverrides,
        secrets: DevSecrets,
        servers: DevServers,
        *,
        on_note: Callable[[str], None],
    ) -> None:
        self._options = options
        self._overrides = overrides
        self._secrets = secrets
        self._servers = servers
        self._on_note = on_note
        self._is_up = False
        self._supervisor = Supervisor(on_pids=self._write_pids, on_restart=self._note_restart)

    @property
    def pids(self) -> dict[str, int | None]:
        """Process id by name; None for what is down now or not ours."""
        return dict.fromkeys(NAMES) | self._supervisor.pids

    @property
    def description(self) -> dict[str, Any]:
        """Addresses, the development user's key and the process ids."""
        servers = self._servers
        return {
            "api": servers.api_url,
            "api_key": self._secrets.api_key,
            "temporal": servers.temporal_address,
            "temporal_ui": servers.temporal.ui_url if servers.temporal else None,
            "database": servers.database_url,
            "pids": self.pids,
        }

    async def start(self, loading: Awaitable[object]) -> None:
        """Bring everything up; returns when the API is ready and the worker polls. `loading` imports the storage.

        Raises:
            StackError: something does not start.
        """
        await together(loading, *self._server_starts())
        await self._prepare_database()
        client = await self._temporal_client()
        await together(self._supervisor.start(self._worker(client)), self._supervisor.start(self._api()))
        self._is_up = True
        write_json(self._options.data_dir / DESCRIPTION_FILE, self.description)

    async def stop(self) -> None:
        """Stop what was started, in reverse order. Cancelled while it waits, it kills what is left."""
        self._is_up = False
        (self._options.data_dir / DESCRIPTION_FILE).unlink(missing_ok=True)
        await self._supervisor.stop()

    def _server_starts(self) -> list[Coroutine[Any, Any, None]]:
        logs = self._options.data_dir / "logs"
        own = (self._servers.postgres, "postgres"), (self._servers.temporal, "temporal")
        return [self._supervisor.start(server.child(log_file=logs / f"{name}.log")) for server, name in own if server]

    async def _prepare_database(self) -> None:
        from storage.bootstrap import ensure_dev_user
        from storage.migrate import upgrade

        if self._servers.postgres:
            await self._servers.postgres.ensure_database()
        elif reason := await postgres.problem(self._servers.database_url, timeout_s=10):
            raise UnusableServerError(
                "DATABASE_URL can't be used.", why=reason, mend="Start that server, or: unset DATABASE_URL"
            )
        await self._check_schema_known()
        await upgrade(self._servers.database_url)
        await check_keys_of(self._secrets, self._overrides, self._servers.database_url, data_dir=self._options.data_dir)
        api_key = await ensure_dev_user(
            self._servers.database_url,
            index_key=parse_index_key(self._secrets.index_key),
            api_key=self._secrets.api_key,
        )
        if api_key != self._secrets.api_key:
            keep_api_key(self._options.data_dir, api_key)
            self._secrets = replace(self._secrets, api_key=api_key)
            self._on_note("the key of the development user was revoked; it has another one now")

    async def _check_schema_known(self) -> None:
        from storage.migrate import knows, revision

        current, _ = await revision(self._servers.database_url)
        if not knows(current):
            raise StackError(
                f"The database is at {current}, which this version does not know.",
                why="A newer version of AgentLoom has migrated it.",
                mend="Run that version, or take another database: agentloom dev --data-dir OTHER",
            )

    async def _temporal_client(self) -> Client:
        if self._servers.temporal:
            return await Client.connect(self._servers.temporal_address)
        try:
            client = await Client.connect(**load_temporal_options())
            await temporal.register_search_attributes(client)
        except (RPCError, RuntimeError) as error:
            is_there = isinstance(error, RPCError) and error.status == RPCStatusCode.NOT_FOUND
            why = (
                "has no namespace of the name in TEMPORAL_NAMESPACE"
                if is_there
                else "does not answer, or is not healthy"
            )
            raise UnusableServerError(
                "The Temporal server of the environment can't be used.",
                why=f"The server at {self._servers.temporal_address} {why}.",
                mend="Start that server, or: unset TEMPORAL_ADDRESS TEMPORAL_PROFILE TEMPORAL_CONFIG_FILE",
            ) from None
        return client

    def _worker(self, client: Client) -> ChildSpec:
        started = datetime.now(UTC)

        async def is_ready(pid: int) -> bool:
            try:
                return await temporal.is_polled(client, self._overrides.task_queue, since=started)
            except RPCError:
                return False

        return replace(self._python_child("worker", is_ready), stand_in_after_s=STAND_IN_AFTER_S)

    def _api(self) -> ChildSpec:
        async def is_ready(pid: int) -> bool:
            return await accepts_connections(self._servers.api_port) and await answers_ready(self._servers.api_url)

        return self._python_child("api", is_ready)

    def _python_child(self, module: str, is_ready: Callable[[int], Coroutine[Any, Any, bool]]) -> ChildSpec:
        return ChildSpec(
            name=module,
            # -P: a module of the folder we were started in must not take the place of ours.
            command=(sys.executable, "-P", "-m", module),
            environment=self._environment(),
            log_file=self._options.data_dir / "logs" / f"{module}.log",
            is_ready=is_ready,
        )

    def _environment(self) -> Mapping[str, str]:
        """What worker and API are told, on top of this process's own environment."""
        data_dir = self._options.data_dir.resolve()
        told = {
            "AGENTLOOM_MODE": "dev",
            "AGENTLOOM_MASTER_KEYS": self._secrets.master_keys,
            "AGENTLOOM_INDEX_KEY": self._secrets.index_key,
            "AGENTLOOM_API_HOST": LOOPBACK,
            "AGENTLOOM_API_PORT": str(self._servers.api_port),
            "AGENTLOOM_WORK_DIR": str(data_dir / "work"),
            "AGENTLOOM_TASK_QUEUE": self._overrides.task_queue,
            "DATABASE_URL": self._servers.database_url,
        }
        if self._options.app_dir:
            told["AGENTLOOM_APP_DIR"] = str(self._options.app_dir.resolve())
        if not self._servers.temporal:
            return inherited_environment() | told
        return plain_temporal_environment(self._servers.temporal_address) | told

    def _write_pids(self, pids: Mapping[str, int | None]) -> None:
        if not self._options.data_dir.exists():  # somebody removed it under us; stopping must still work
            return
        write_json(self._options.data_dir / PIDS_FILE, dict.fromkeys(NAMES) | dict(pids))
        if self._is_up:
            write_json(self._options.data_dir / DESCRIPTION_FILE, self.description)

    def _note_restart(self, name: str, exit_code: int) -> None:
        how = f"was killed by signal {-exit_code}" if exit_code < 0 else f"ended with exit code {exit_code}"
        self._on_note(f"{name} {how}; starting it again")


def _make_folder(data_dir: Path) -> None:
    """Raises WrongOptionError if there can be no folder that we may write in."""
    mend = "agentloom dev --data-dir OTHER"
    try:
        make_private(data_dir)
    except OSError as error:
        raise WrongOptionError(
            f"{data_dir} can't be the data folder.", why=error.strerror or "It can't be made.", mend=mend
        ) from None
    if not os.access(data_dir, os.R_OK | os.W_OK | os.X_OK):
        raise WrongOptionError(f"{data_dir} can't be the data folder.", why="It is not writable.", mend=mend)


@contextmanager
def _unmade_if_refused(new_folder: Path | None) -> Iterator[None]:
    """Removes the folder that this start has made, with new secrets in it, if what was asked for can't be had."""
    try:
        yield
    except (UnusableServerError, WrongOptionError):
        if new_folder:
            shutil.rmtree(new_folder)
        raise


@asynccontextmanager
async def running_stack(
    options: DevOptions,
    *,
    overrides: DevOverrides | None = None,
    on_note: Callable[[str], None] = lambda note: None,
) -> AsyncIterator[DevStack]:
    """A stack that is up for the length of the block, and gone after it; without `overrides` by the environment's.

    Raises:
        StackError: it can't start, or another one runs on the same folder.
        SettingsError: the environment names a server or key in a form that is not valid.
    """
    overrides = overrides or load_dev_overrides()
    if overrides.has_temporal:
        load_temporal_options()  # before anything is made
    _check_app_dir(options.app_dir)
    _check_ports(options)
    is_new = not options.data_dir.exists()
    _make_folder(options.data_dir)
    with locked(options.data_dir), _unmade_if_refused(options.data_dir if is_new else None):
        (options.data_dir / DESCRIPTION_FILE).unlink(missing_ok=True)
        secrets = load_or_make(options.data_dir, overrides=overrides)
        # Importing the storage takes about as long as the servers need to start, so both happen at once.
        loading = asyncio.create_task(asyncio.to_thread(importlib.import_module, "storage.migrate"))
        servers = await _choose_servers(options, overrides, secrets)
        stack = DevStack(options, overrides, secrets, servers, on_note=on_note)
        try:
            await stack.start(loading)
            yield stack
        finally:
            await stack.stop()


async def together(*steps: Awaitable[object]) -> None:
    """Await all steps at once; the first error ends the others and is raised as itself."""
    tasks = [asyncio.ensure_future(step) for step in steps]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def answers_ready(api_url: str) -> bool:
    """Whether the API at this address says that it is ready; other servers may answer anything there."""
    async with httpx.AsyncClient(trust_env=False, timeout=5) as client:
        try:
            said = (await client.get(f"{api_url}/readyz")).raise_for_status().json()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError):
            return False
    return isinstance(said, dict) and said.get("status") == "ready"


def plain_temporal_environment(address: str) -> dict[str, str]:
    """Our environment with one Temporal address and nothing else about Temporal, whatever a profile file says."""
    environment = inherited_environment()
    kept = {name: value for name, value in environment.items() if not name.startswith("TEMPORAL_")}
    return kept | {
        "TEMPORAL_ADDRESS": address,
        "TEMPORAL_NAMESPACE": temporal.NAMESPACE,
        "TEMPORAL_CONFIG_FILE": "/dev/null",
    }


async def _choose_servers(options: DevOptions, overrides: DevOverrides, secrets: DevSecrets) -> DevServers:
    """Prepare our own servers where the environment names none. Starts nothing."""
    database = None
    if not overrides.database_url:
        port = await wanted_port(options.pg_port, option="--pg-port")
        # Creating the data folder takes half a second of waiting for another process.
        database = await asyncio.to_thread(
            postgres.prepare, options.data_dir / DATABASE, port=port, password=secrets.postgres_password
        )
    engine = None if overrides.has_temporal else await _own_temporal(options)
    return DevServers(
        postgres=database,
        temporal=engine,
        database_url=database.url() if database else _secret(overrides),
        temporal_address=engine.address if engine else load_temporal_options()["target_host"],
        api_port=await wanted_port(options.api_port, option="--api-port"),
    )


async def _own_temporal(options: DevOptions) -> temporal.TemporalServer:
    return temporal.prepare(
        options.data_dir / "temporal.db",
        port=await wanted_port(options.temporal_port, option="--temporal-port"),
        ui_port=await wanted_port(options.ui_port, option="--ui-port"),
    )


def _secret(overrides: DevOverrides) -> str:
    return overrides.database_url.get_secret_value() if overrides.database_url else ""


def _check_ports(options: DevOptions) -> None:
    """Raises WrongOptionError for a port that is given twice: the second of its servers would not start."""
    given = {
        "--api-port": options.api_port,
        "--temporal-port": options.temporal_port,
        "--ui-port": options.ui_port,
        "--pg-port": options.pg_port,
    }
    for port, count in Counter(filter(None, given.values())).items():
        if count > 1:
            names = [name for name, value in given.items() if value == port]
            raise WrongOptionError(
                f"Port {port} is given twice.",
                why=f"{' and '.join(names)} name it, by themselves or by default.",
                mend=f"Choose any free port: agentloom dev … {names[-1]} 0",
            )


def _check_app_dir(app_dir: Path | None) -> None:
    if app_dir is None:
        return
    if not app_dir.is_dir():
        raise WrongOptionError(
            f"{app_dir} is not a folder.", why="--app-dir names one.", mend="Name an existing folder."
        )
    if clashes := clashing_modules(app_dir):
        raise WrongOptionError(
            f"{app_dir} can't be the app folder.",
            why=f"It has modules named like AgentLoom's own: {', '.join(clashes)}.",
            mend="Rename them, then start again.",
        )

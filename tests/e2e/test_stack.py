"""`agentloom dev` as a person starts, kills and stops it (SPEC 17)."""

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from stack.checks import check_temporal
from stack.findings import Broken, Finding, Sound
from stack.postgres import PostgresServer
from stack.whereabouts import find
from storage.store import Store
from tests.integration.storage.world import KEYS, build_world, count
from tests.support.dev_stack import DevProcess, is_alive, run_agentloom, running_dev, until
from tests.support.servers import run_now

NAMES = ("postgres", "temporal", "worker", "api")


@pytest.fixture(scope="module")
def shared_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevProcess]:
    """One stack for the tests that leave it running."""
    with running_dev(tmp_path_factory.mktemp("stack") / "data") as stack:
        yield stack


def is_ready(stack: DevProcess) -> bool:
    try:
        return httpx.get(f"{stack.description['api']}/readyz", timeout=5, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def is_whole(stack: DevProcess) -> bool:
    return all(is_alive(stack.pids[name]) for name in NAMES) and is_ready(stack)


def ports_of(stack: DevProcess) -> dict[str, str]:
    description = stack.description
    return {
        "--api-port": description["api"].rpartition(":")[2],
        "--temporal-port": description["temporal"].rpartition(":")[2],
        "--ui-port": description["temporal_ui"].rpartition(":")[2],
        "--pg-port": re.sub(r".*:(\d+)/.*", r"\1", description["database"]),
    }


def test_the_ready_line_says_where_everything_is(shared_stack: DevProcess) -> None:
    """SPEC 17: one line, in the fixed form, when everything answers."""
    description = shared_stack.description
    assert list(description) == ["api", "api_key", "temporal", "temporal_ui", "database", "pids"]
    assert re.fullmatch(r"127\.0\.0\.1:\d+", description["temporal"])
    assert description["database"].startswith("postgresql://")
    assert tuple(description["pids"]) == NAMES
    assert is_whole(shared_stack)
    assert httpx.get(description["temporal_ui"], trust_env=False).status_code == 200


def test_the_files_of_the_data_folder_say_the_same_and_are_private(shared_stack: DevProcess) -> None:
    """SPEC 17: pids.json is the flat object of the ready line."""
    assert shared_stack.pids == shared_stack.description["pids"] or is_whole(shared_stack)
    described = json.loads((shared_stack.data_dir / "dev.json").read_text())
    assert described["api_key"] == shared_stack.description["api_key"]
    for name in ("dev.json", "pids.json", "secrets.json"):
        assert stat.S_IMODE((shared_stack.data_dir / name).stat().st_mode) == 0o600
    logs = shared_stack.data_dir / "logs"
    assert [stat.S_IMODE(one.stat().st_mode) for one in (shared_stack.data_dir, logs)] == [0o700, 0o700]
    assert {stat.S_IMODE(one.stat().st_mode) for one in logs.iterdir()} == {0o600}


@pytest.mark.parametrize("victims", [*((name,) for name in NAMES), NAMES], ids="+".join)
def test_killed_children_are_back_on_the_same_ports(shared_stack: DevProcess, victims: tuple[str, ...]) -> None:
    """SPEC 17, issue: kill -9 of each part alone, and of all at once."""
    until(lambda: is_whole(shared_stack))
    before = shared_stack.pids
    for name in victims:
        os.kill(before[name] or 0, signal.SIGKILL)
    until(lambda: all(shared_stack.pids[name] not in (None, before[name]) for name in victims))
    until(lambda: is_whole(shared_stack))
    untouched = [name for name in NAMES if name not in victims]
    assert [shared_stack.pids[name] for name in untouched] == [before[name] for name in untouched]


def worker_check(stack: DevProcess) -> Finding:
    _, found = run_now(check_temporal(find(stack.data_dir)))
    return found


def test_doctor_tells_a_frozen_worker_within_seconds(shared_stack: DevProcess) -> None:
    """SPEC 17: a stopped process is still listed by Temporal and its polls stay open; its signs of life end."""
    frozen = shared_stack.pids["worker"]
    assert frozen is not None
    until(lambda: worker_check(shared_stack).detail.endswith("shows after 8 s"))
    os.kill(frozen, signal.SIGSTOP)
    stopped = time.monotonic()
    try:
        while isinstance(found := worker_check(shared_stack), Sound):
            assert time.monotonic() - stopped < 15
        assert time.monotonic() - stopped < 15
    finally:
        os.kill(frozen, signal.SIGCONT)
    assert isinstance(found, Broken)
    assert f"process {frozen} " in found.detail
    assert f"kill -CONT {frozen}," in found.mend
    until(lambda: isinstance(worker_check(shared_stack), Sound))


@contextmanager
def another_worker(stack: DevProcess) -> Iterator[subprocess.Popen[bytes]]:
    """A second worker of the stack, told what the first one was; killed at the end if it still runs."""
    told = Path(f"/proc/{stack.pids['worker']}/environ").read_bytes().rstrip(b"\0").split(b"\0")
    environment: dict[bytes, bytes] = dict(one.split(b"=", 1) for one in told)
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "worker"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def test_doctor_names_the_frozen_one_of_several_workers_and_none_that_was_stopped_or_killed(
    shared_stack: DevProcess,
) -> None:
    """SPEC 17: the others poll, so that tasks which Temporal gives to the frozen one are what fails."""
    with another_worker(shared_stack) as frozen, another_worker(shared_stack) as ended:
        until(lambda: "3 workers" in worker_check(shared_stack).detail, within_s=40)
        os.kill(frozen.pid, signal.SIGSTOP)
        stopped = time.monotonic()
        while isinstance(found := worker_check(shared_stack), Sound):
            assert time.monotonic() - stopped < 15
        assert isinstance(found, Broken)
        assert f"process {frozen.pid} " in found.detail
        assert "the other 2 live" in found.detail
        assert f"kill -CONT {frozen.pid}," in found.mend
        os.kill(frozen.pid, signal.SIGCONT)
        until(lambda: "3 workers" in worker_check(shared_stack).detail)
        frozen.terminate()
        assert frozen.wait(20) == 0
        ended.kill()
        ended.wait(20)
    until(lambda: worker_check(shared_stack).detail.startswith("1 worker polls "))
    assert isinstance(worker_check(shared_stack), Sound)


def test_doctor_finds_a_running_stack_sound(shared_stack: DevProcess) -> None:
    """SPEC 17: doctor looks at every part."""
    until(lambda: is_whole(shared_stack))
    answer = run_agentloom("doctor", "--json", "--data-dir", str(shared_stack.data_dir))
    states = {check["part"]: check["state"] for check in json.loads(answer.stdout)["checks"]}
    parts = ("Python", "PostgreSQL", "schema", "Temporal", "worker", "API")
    assert {part: states[part] for part in parts} == dict.fromkeys(parts, "sound")
    assert answer.returncode == 0


def test_a_second_stack_on_the_same_folder_is_refused(shared_stack: DevProcess) -> None:
    """SPEC 17: at most three lines: what, why, next."""
    answer = run_agentloom("dev", "--data-dir", str(shared_stack.data_dir), "--api-port", "0")
    assert answer.returncode == 2
    assert answer.stdout == ""
    assert "already" in answer.stderr
    assert str(shared_stack.process.pid) in answer.stderr
    assert len(answer.stderr.splitlines()) <= 3
    assert is_whole(shared_stack)


def test_no_log_shows_a_secret(shared_stack: DevProcess) -> None:
    """SPEC Y6."""
    secrets = json.loads((shared_stack.data_dir / "secrets.json").read_text()).values()
    logs = b"".join(path.read_bytes() for path in (shared_stack.data_dir / "logs").iterdir())
    assert [secret for secret in secrets if secret.encode() in logs] == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: str(number.name))
def test_stopping_it_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    """SPEC 17: it stops everything it started, and says so in its files."""
    with running_dev(tmp_path / "data") as stack:
        pids = stack.pids
        assert stack.end(number) == 0
        assert [name for name, pid in pids.items() if is_alive(pid)] == []
        assert stack.pids == dict.fromkeys(NAMES)
        assert not (stack.data_dir / "dev.json").exists()


def test_a_kill_of_the_parent_leaves_nothing_and_the_data_goes_on(tmp_path: Path) -> None:
    """SPEC 17: starts again on the same data and ports after a kill -9, with the same development user."""
    with running_dev(tmp_path / "data") as first:
        pids, ports = first.pids, ports_of(first)
        first.end(signal.SIGKILL)
        until(lambda: not any(is_alive(pid) for pid in pids.values()))
    again = tuple(part for option in ports.items() for part in option)
    with running_dev(tmp_path / "data", ports=again) as second:
        assert ports_of(second) == ports
        assert second.description["api_key"] == first.description["api_key"]
        assert is_whole(second)


def test_who_revoked_the_key_of_the_development_user_is_not_locked_out(
    tmp_path: Path, empty_database_url: str, temporal_address: str
) -> None:
    """SPEC 17, Y1: the next start makes another one; the old one stays revoked."""
    environment = {"DATABASE_URL": empty_database_url, "TEMPORAL_ADDRESS": temporal_address}
    with running_dev(tmp_path / "data", environment=environment) as first:
        asking = {"AGENTLOOM_API": first.description["api"], "AGENTLOOM_API_KEY": first.description["api_key"]}
        [key] = json.loads(run_agentloom("keys", "list", "--json", environment=asking).stdout)
        assert run_agentloom("keys", "revoke", key["key_id"], environment=asking).returncode == 0
    with running_dev(tmp_path / "data", environment=environment) as second:
        asking = {"AGENTLOOM_API": second.description["api"]}
        for told, code in ((first, 4), (second, 0)):
            key = {"AGENTLOOM_API_KEY": told.description["api_key"]}
            assert run_agentloom("sessions", "list", environment=asking | key).returncode == code
    kept = json.loads((tmp_path / "data" / "secrets.json").read_text())
    assert kept["api_key"] == second.description["api_key"]


def test_servers_named_in_the_environment_are_used(
    tmp_path: Path, postgres_server: PostgresServer, empty_database_url: str, temporal_address: str
) -> None:
    """SPEC 17: DATABASE_URL and the Temporal variables."""
    environment = {"DATABASE_URL": empty_database_url, "TEMPORAL_ADDRESS": temporal_address}
    with running_dev(tmp_path / "data", environment=environment) as stack:
        assert stack.description["database"] == empty_database_url
        assert stack.description["temporal"] == temporal_address
        assert stack.description["temporal_ui"] is None
        assert (stack.pids["postgres"], stack.pids["temporal"]) == (None, None)
        assert is_ready(stack)


def test_a_database_that_is_not_there_is_said_in_three_lines(tmp_path: Path) -> None:
    """SPEC 17: what, why, next; never a traceback, never a password."""
    address = "postgresql://ann:geheim@127.0.0.1:1/loom"
    answer = run_agentloom(
        "dev", "--data-dir", str(tmp_path / "data"), "--api-port", "0", "--temporal-port", "0", "--ui-port", "0",
        environment={"DATABASE_URL": address},
    )  # fmt: skip
    assert answer.returncode == 3
    assert "127.0.0.1:1" in answer.stderr
    assert "geheim" not in answer.stderr
    assert len(answer.stderr.splitlines()) <= 3
    assert not (tmp_path / "data").exists()


async def test_a_database_that_was_written_with_other_keys_is_left_alone(
    tmp_path: Path, database_url: str, temporal_address: str
) -> None:
    """SPEC 17, Y2: the keys of a new folder open nothing there; nothing is written with them, and the folder goes."""
    store = Store.open(database_url, KEYS, pool_size=1)
    await build_world(store)
    users = await count(store, "users")
    servers = {"DATABASE_URL": database_url, "TEMPORAL_ADDRESS": temporal_address}
    answer = run_agentloom("dev", "--data-dir", str(tmp_path / "data"), "--api-port", "0", environment=servers)
    assert (answer.returncode, len(answer.stderr.splitlines())) == (2, 3)
    assert "keys that are not given: k1" in answer.stderr
    assert "Set AGENTLOOM_MASTER_KEYS and AGENTLOOM_INDEX_KEY" in answer.stderr
    assert not (tmp_path / "data").exists()
    assert await count(store, "users") == users
    await store.aclose()


def test_a_port_in_use_names_the_option_that_mends_it(tmp_path: Path) -> None:
    """SPEC 17."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        others = ("--pg-port", "0", "--temporal-port", "0", "--ui-port", "0")
        answer = run_agentloom("dev", "--data-dir", str(tmp_path / "data"), "--api-port", port, *others)
    assert answer.returncode == 2
    assert f"Port {port} is in use" in answer.stderr
    assert "agentloom dev … --api-port 0" in answer.stderr
    assert not (tmp_path / "data").exists()  # with its new secrets and database, that nobody has seen


@pytest.mark.parametrize("name", ["data", "two words ü's %s $x"])
def test_a_folder_that_lost_its_secrets_is_not_given_others(tmp_path: Path, name: str) -> None:
    """SPEC 17, Y2: with new keys nothing that is stored could be read, and the database would let nobody in."""
    with running_dev(tmp_path / name) as stack:
        stack.end()
    (tmp_path / name / "secrets.json").unlink()
    answer = run_agentloom("dev", "--data-dir", str(tmp_path / name))
    assert (answer.returncode, len(answer.stderr.splitlines())) == (3, 3)
    assert "secrets.json is missing" in answer.stderr
    assert not (tmp_path / name / "secrets.json").exists()


def test_an_app_folder_whose_module_clashes_with_ours_is_refused_by_name(tmp_path: Path) -> None:
    """SPEC 17."""
    (tmp_path / "tools.py").touch()
    answer = run_agentloom("dev", "--data-dir", str(tmp_path / "data"), "--app-dir", str(tmp_path))
    assert answer.returncode == 2
    assert "own: tools" in answer.stderr
    assert not (tmp_path / "data").exists()

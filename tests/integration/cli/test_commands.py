"""The command line as a person meets it: short errors, the promised exit codes, data on standard output only."""

import asyncio
import json
import subprocess
from importlib.metadata import version
from pathlib import Path

import asyncpg
import pytest

from stack.findings import Broken, Sound
from stack.workers import judge_polling
from storage.migrate import head, upgrade
from tests.support.certificates import tls_server
from tests.support.dev_stack import AGENTLOOM, run_agentloom
from tests.support.servers import run_now

NOWHERE = "postgresql://ann:geheim@127.0.0.1:1/loom"


@pytest.mark.parametrize(
    ("arguments", "next_command"),
    [
        (["no-such-command"], "agentloom --help"),
        (["dev", "--no-such-option"], "agentloom dev --help"),
        (["dev", "--api-port", "many"], "agentloom dev --help"),
        (["dev", "--api-port", "99999"], "agentloom dev --help"),
        (["dev", "--pg-port", "-1"], "agentloom dev --help"),
        (["dev", "--api-port", "7233"], "Choose any free port: agentloom dev … --temporal-port 0"),
        (["--stack", "elsewhere", "dev"], "agentloom dev --data-dir FOLDER"),
        (["--stack", "elsewhere", "doctor"], "agentloom doctor --data-dir FOLDER"),
        (["--stack", "elsewhere", "migrate"], "agentloom migrate"),
        (["dev", "--data-dir", "/dev/null"], "agentloom dev --data-dir OTHER"),
        (["dev", "--data-dir", "/dev/null/below"], "agentloom dev --data-dir OTHER"),
    ],
)
def test_a_mistake_in_the_command_line_is_answered_shortly(arguments: list[str], next_command: str) -> None:
    """SPEC 17: at most three lines, exit code 2, nothing on standard output."""
    answer = run_agentloom(*arguments)
    assert answer.returncode == 2
    assert answer.stdout == ""
    assert answer.stderr.startswith("error: ")
    assert answer.stderr.splitlines()[-1] == f"  next: {next_command}"
    assert len(answer.stderr.splitlines()) <= 3


def test_without_a_database_address_migrate_says_what_to_set() -> None:
    """SPEC 17: what, why, next command."""
    answer = run_agentloom("migrate")
    assert answer.returncode == 2
    assert "DATABASE_URL is not set" in answer.stderr
    assert "agentloom dev" in answer.stderr


def test_an_unreachable_database_is_exit_code_3_without_its_password() -> None:
    """SPEC 17, Y6."""
    answer = run_agentloom("migrate", environment={"DATABASE_URL": NOWHERE})
    assert answer.returncode == 3
    assert "127.0.0.1:1" in answer.stderr
    assert "geheim" not in answer.stderr
    assert len(answer.stderr.splitlines()) == 3


def test_migrate_brings_an_empty_database_to_the_newest_schema_and_repeats(empty_database_url: str) -> None:
    """SPEC 17."""
    environment = {"DATABASE_URL": empty_database_url}
    first = run_agentloom("migrate", "--json", environment=environment)
    assert json.loads(first.stdout) == {"before": None, "after": head()}
    again = run_agentloom("migrate", environment=environment)
    assert again.stdout == f"The schema is at {head()}, the newest.\n"
    assert (first.returncode, again.returncode) == (0, 0)


KEYS = {"AGENTLOOM_MASTER_KEYS": f"k1:{'A' * 43}=", "AGENTLOOM_INDEX_KEY": f"{'A' * 43}="}


@pytest.mark.parametrize("command", ["bootstrap", "reencrypt"])
def test_a_command_that_works_on_the_database_says_what_it_lacks(empty_database_url: str, command: str) -> None:
    """SPEC 17, Y6: no database, no way in, no schema: three lines, with the command that mends it."""
    refused = empty_database_url.replace("agentloom:", "nobody:")
    for url, code, said in (
        (NOWHERE, 3, "Nothing answers at 127.0.0.1:1."),
        (refused, 3, "user or password is wrong"),
        (f"{empty_database_url}_gone", 3, "it has no database of this name"),
        (empty_database_url, 4, f"next: agentloom migrate, then: agentloom keys {command}"),
    ):
        answer = run_agentloom("keys", command, environment=KEYS | {"DATABASE_URL": url})
        assert (answer.returncode, answer.stdout, len(answer.stderr.splitlines())) == (code, "", 3)
        assert said in answer.stderr


def test_a_name_that_can_be_none_makes_no_administrator() -> None:
    """SPEC 17, Y5: as the API refuses it."""
    for name in ("", "a b", "ann\n", "x" * 65):
        answer = run_agentloom("keys", "bootstrap", name, environment=KEYS | {"DATABASE_URL": NOWHERE})
        assert (answer.returncode, answer.stdout, len(answer.stderr.splitlines())) == (2, "", 2)


def test_a_schema_that_a_newer_version_brought_is_said_to_be_that(tmp_path: Path, empty_database_url: str) -> None:
    """SPEC 17: whoever goes back to an older version is sent to the newer one, not into `agentloom migrate`."""

    async def bring_forward() -> None:
        await upgrade(empty_database_url)
        connection = await asyncpg.connect(empty_database_url)
        await connection.execute("UPDATE alembic_version SET version_num = '9999'")
        await connection.close()

    run_now(bring_forward())
    environment = KEYS | {"DATABASE_URL": empty_database_url}
    for arguments in (("migrate",), ("keys", "bootstrap")):
        answer = run_agentloom(*arguments, environment=environment)
        assert (answer.returncode, answer.stdout, len(answer.stderr.splitlines())) == (4, "", 3)
        assert "The database is at 9999, which this version does not know." in answer.stderr
    checked = run_agentloom("doctor", "--json", "--part", "schema", environment=environment, folder=tmp_path)
    assert "newer version" in json.loads(checked.stdout)["checks"][0]["mend"]


def test_migrate_registers_the_search_attributes_when_asked(empty_database_url: str, temporal_address: str) -> None:
    """SPEC W3: for servers that `agentloom dev` did not start."""
    environment = {"DATABASE_URL": empty_database_url, "TEMPORAL_ADDRESS": temporal_address}
    assert run_agentloom("migrate", "--search-attributes", environment=environment).returncode == 0
    answer = run_agentloom(
        "migrate", "--search-attributes", environment=environment | {"TEMPORAL_ADDRESS": "127.0.0.1:1"}
    )
    assert answer.returncode == 3
    assert len(answer.stderr.splitlines()) == 3


def test_doctor_names_a_command_for_each_failure(tmp_path: Path) -> None:
    """SPEC 17: every failure names the command that mends it."""
    answer = run_agentloom("doctor", "--json", folder=tmp_path)
    report = json.loads(answer.stdout)
    broken = [check for check in report["checks"] if check["state"] == "broken"]
    assert {"PostgreSQL", "Temporal", "API"} <= {check["part"] for check in broken}
    assert all("agentloom dev" in check["mend"] for check in broken)
    assert not report["ok"]
    assert answer.returncode == 3


def test_no_worker_is_well_where_temporal_is_away(tmp_path: Path) -> None:
    """SPEC 17: the health check of a container asks for the worker alone."""
    for environment in ({}, {"TEMPORAL_ADDRESS": "127.0.0.1:1"}):
        assert run_agentloom("doctor", "--part", "worker", environment=environment, folder=tmp_path).returncode == 3


def test_doctor_names_the_folder_that_it_looked_at(tmp_path: Path) -> None:
    """SPEC 17: a stack that is started elsewhere would mend nothing."""
    folder = tmp_path / "mine"
    answer = run_agentloom("doctor", "--json", "--data-dir", str(folder), folder=tmp_path)
    mends = [check["mend"] for check in json.loads(answer.stdout)["checks"] if check["state"] == "broken"]
    assert mends
    assert all(mend.startswith(f"agentloom dev --data-dir {folder}") for mend in mends)


def test_doctor_sees_an_old_schema_and_a_missing_worker(
    tmp_path: Path, empty_database_url: str, temporal_address: str
) -> None:
    """SPEC 17."""
    environment = {"DATABASE_URL": empty_database_url, "TEMPORAL_ADDRESS": temporal_address}
    checks = json.loads(run_agentloom("doctor", "--json", environment=environment, folder=tmp_path).stdout)["checks"]
    by_part = {check["part"]: check for check in checks}
    assert by_part["PostgreSQL"]["state"] == "sound"
    assert by_part["schema"]["mend"] == "agentloom migrate"
    assert by_part["Temporal"]["state"] == "sound"
    assert "python -m worker" in by_part["worker"]["mend"]
    run_now(upgrade(empty_database_url))
    one_part = run_agentloom("doctor", "--part", "Schema", environment=environment, folder=tmp_path)
    assert one_part.returncode == 0


@pytest.mark.parametrize(("seconds", "is_sound"), [(0.5, True), (59, True), (95, False), (None, False)])
def test_doctor_tells_a_frozen_worker_by_the_time_of_its_last_poll(seconds: float | None, is_sound: bool) -> None:
    """SPEC 17: Temporal lists a stopped process for minutes, so its last poll is what counts."""
    found = judge_polling("queue", seconds, count=1, shows_after_s=60)
    assert isinstance(found, Sound) == is_sound
    assert not isinstance(found, Broken) or "python -m worker" in found.mend


def test_doctor_looks_at_the_model_address_it_is_given(tmp_path: Path) -> None:
    """SPEC 17: the model endpoint."""
    answer = run_agentloom(
        "doctor", "--json", "--part", "model", "--model-url", "http://127.0.0.1:1/v1", folder=tmp_path
    )
    assert json.loads(answer.stdout)["checks"][0]["state"] == "broken"


async def test_doctor_tells_a_certificate_that_is_not_trusted_from_a_server_that_is_away(tmp_path: Path) -> None:
    """SPEC 17: what somebody has to do is another thing."""
    async with tls_server(tmp_path) as server:
        asking = ("doctor", "--json", "--part", "model", "--model-url", server.url)
        answer = await asyncio.to_thread(run_agentloom, *asking, folder=tmp_path)
    [found] = json.loads(answer.stdout)["checks"]
    assert (found["state"], "certificate" in found["detail"], "certificate" in found["mend"]) == ("broken", True, True)


def test_a_table_for_people_has_no_colours_in_a_pipe(tmp_path: Path) -> None:
    """SPEC 17: NO_COLOR is kept, and a pipe is no terminal."""
    answer = run_agentloom("doctor", environment={"NO_COLOR": "1"}, folder=tmp_path)
    assert "\x1b" not in answer.stdout + answer.stderr
    assert "FAILED" in answer.stdout


def test_a_reader_that_goes_away_gets_no_traceback(tmp_path: Path) -> None:
    command = f"'{AGENTLOOM}' doctor | true"
    answer = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=50)
    assert "Traceback" not in answer.stderr


def test_shell_completion_is_offered() -> None:
    """SPEC 17."""
    answer = run_agentloom("completion", "bash")
    assert "agentloom" in answer.stdout


@pytest.mark.parametrize("where", ["> /dev/full", ">&-"])
def test_a_standard_output_that_takes_nothing_is_said_shortly(tmp_path: Path, where: str) -> None:
    """SPEC 17: exit code 1, no traceback."""
    for arguments in ("--version", "--help", "doctor", "doctor --json"):
        answer = subprocess.run(
            ["bash", "-c", f"'{AGENTLOOM}' {arguments} {where}"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=50,
        )
        assert answer.returncode == 1
        assert answer.stderr.startswith("error: ")
        assert len(answer.stderr.splitlines()) <= 3


def test_a_character_that_standard_output_lacks_is_written_as_an_escape(tmp_path: Path) -> None:
    answer = run_agentloom("doctor", environment={"PYTHONIOENCODING": "ascii"}, folder=tmp_path)
    assert "\\u2192 agentloom dev" in answer.stdout
    assert "Traceback" not in answer.stderr


def test_a_text_that_is_not_utf_8_is_refused_before_anything_is_asked_for(tmp_path: Path) -> None:
    """SPEC 17: the address leads nowhere, so that reaching for it would be exit code 3."""
    answer = run_agentloom(
        "ask", "--agent", "scout", "a\udcff", environment={"AGENTLOOM_API": "http://127.0.0.1:1"}, folder=tmp_path
    )
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.startswith("error: The text is not UTF-8.")
    assert len(answer.stderr.splitlines()) == 3


def test_the_version_is_that_of_the_package() -> None:
    answer = run_agentloom("--version")
    assert (answer.returncode, answer.stdout) == (0, f"agentloom {version('agentloom')}\n")

"""The commands as a person starts them, against the application on its socket (SPEC 17)."""

import asyncio
import json
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from storage.store import Store
from tests.api.conftest import Person, asked, opened
from tests.api.test_events import end, grow

AGENTLOOM = Path(sys.executable).parent / "agentloom"


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Shell:
    """Runs commands in a folder, with the address and key of the API in the environment."""

    folder: Path
    environment: dict[str, str]

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            AGENTLOOM,
            *arguments,
            cwd=self.folder,
            env={"PATH": "/usr/bin:/bin", "NO_COLOR": "1", "COLUMNS": "200"} | self.environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def __call__(self, *arguments: str, stdin: bytes | None = None) -> Ended:
        process = await self.start(*arguments)
        out, err = await process.communicate(stdin or b"")
        return Ended(process.returncode or 0, out.decode(), err.decode())


@pytest.fixture
def shell(ann: Person, address: str, tmp_path: Path) -> Shell:
    return Shell(tmp_path, {"AGENTLOOM_API": address, "AGENTLOOM_API_KEY": ann.key})


async def test_an_agent_is_published_asked_and_its_run_stopped(shell: Shell, store: Store) -> None:
    """17: the text comes from the argument, a file or standard input."""
    (shell.folder / "a.yaml").write_text("name: helper\nmodel: {provider: demo, model: demo}\n")
    published = await shell("publish", "a.yaml", "--json")
    assert (published.code, published.json["release_no"]) == (0, 1)
    begun = (await shell("ask", "--agent", "helper", "--no-wait", "--json", "What?")).json
    assert begun["kind"] == "question"
    said = await shell("say", "--session", begun["session_id"], "--json", stdin=b"And from standard input.")
    assert (said.json["kind"], said.json["run_id"]) == ("supplement", begun["run_id"])
    (shell.folder / "q.txt").write_text("From a file.")
    assert (await shell("say", "--run", begun["run_id"], "--file", "q.txt", "--json")).json["input_seq"] == 3
    stopping = asyncio.create_task(shell("stop", begun["run_id"], "--json"))
    await end(store, begun["run_id"])
    assert (await stopping).json["status"] == "stopped"


async def test_publishing_an_edited_tool_says_that_workers_have_to_be_restarted(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """17, T1: on standard error, and only when its code is other than that of the release before."""
    monkeypatch.syspath_prepend(str(shell.folder))
    tool = "{kind: python, name: count, entry: 'tools_of_a_command:count', effect: read_only}"
    (shell.folder / "a.yaml").write_text(f"name: counter\nmodel: {{provider: demo, model: demo}}\ntools: [{tool}]\n")
    said = []
    for code in ("def count() -> int:\n    return 1\n", "def count() -> int:\n    return 2\n"):
        (shell.folder / "tools_of_a_command.py").write_text(code)
        said += [await shell("publish", "a.yaml"), await shell("publish", "a.yaml")]
    assert [one.code for one in said] == [0] * 4
    assert ["edited: tools_of_a_command; a worker" in one.err for one in said] == [False, False, True, False]
    assert [one.out.split()[:3] for one in said] == [["counter", "release", no] for no in ("1", "1", "2", "2")]


async def test_a_watched_run_ends_with_its_own_exit_code(shell: Shell, ann: Person, store: Store) -> None:
    """17: 1 if the Run ended otherwise; events as lines of JSON."""
    run = (await asked(ann, await opened(ann)))["run_id"]
    watching = asyncio.create_task(shell("watch", run, "--json"))
    await grow(store, run, 2)
    await end(store, run)
    watched = await watching
    assert watched.code == 1
    assert [json.loads(line)["run_seq"] for line in watched.out.splitlines()] == [1, 2, 3, 4]
    shown = await shell("show", "run", run)
    assert "stopped (user_stop)" in shown.out


async def test_ctrl_c_leaves_the_run_alone_and_says_how_to_come_back(shell: Shell, ann: Person, address: str) -> None:
    """17: exit code 130."""
    session = await opened(ann)
    process = await shell.start("ask", "--session", session, "q")
    while not (runs := (await ann.http.get(f"/sessions/{session}/runs")).json()["items"]):
        await asyncio.sleep(0.05)
    # The events are being followed once the API has begun to answer: their request is the one that stays open.
    while "agentloom_http_open_requests 2.0" not in (await ann.http.get(f"{address}/metrics")).text:
        await asyncio.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = await process.communicate()
    assert (process.returncode, out) == (130, b"")
    assert f"agentloom watch {runs[0]['run_id']}" in err.decode()
    assert b"Traceback" not in err
    assert (await ann.http.get(f"/runs/{runs[0]['run_id']}")).json()["stop_requested"] is False


async def test_sessions_are_listed_renamed_archived_and_shown(shell: Shell, ann: Person) -> None:
    """17: tables for people, --json for programs."""
    session = await opened(ann)
    assert (await shell("sessions", "rename", session, "[bold]Mine")).code == 0
    table = await shell("sessions", "list")
    assert session in table.out
    assert "[bold]Mine" in table.out
    assert (await shell("sessions", "archive", session)).code == 0
    assert (await shell("sessions", "list", "--json")).json == []
    assert [one["session_id"] for one in (await shell("sessions", "list", "--archived", "--json")).json] == [session]
    assert (await shell("sessions", "unarchive", session)).code == 0
    assert (await shell("sessions", "show", session, "--json")).json["runs"] == []
    assert (await shell("sessions", "messages", session, "--json")).json == []


async def test_agents_are_listed_and_shown_with_their_releases(shell: Shell) -> None:
    """17: the newest release in full, the others in a line; any one of them by its number."""
    model = "model: {provider: demo, model: demo"
    tools = "tools: [{kind: builtin, name: result_read, effect: read_only}]\n"
    for text in (f"{model}}}\n{tools}", f"instructions: Be [brief].\n{model}, context_window: 9000}}\n"):
        (shell.folder / "a.yaml").write_text(f"name: helper\n{text}")
        assert (await shell("publish", "a.yaml")).code == 0
    listed = await shell("agents", "list")
    assert (listed.code, "helper" in listed.out, "2" in listed.out) == (0, True, True)
    assert [one["release_no"] for one in (await shell("agents", "list", "--json")).json] == [2]
    shown = await shell("agents", "show", "helper")
    assert (shown.code, "9000 tokens" in shown.out, "Be [brief]." in shown.out) == (0, True, True)
    assert [line.split()[0] for line in shown.out.splitlines()[-2:]] == ["2", "1"]
    assert "result_read" in shown.out.splitlines()[-1]
    first = await shell("agents", "show", "helper", "--release", "1")
    assert ("9000 tokens" in first.out, "result_read (builtin, read_only)" in first.out) == (False, True)
    found = (await shell("agents", "show", "helper", "--json")).json
    assert [one["release_no"] for one in found["releases"]] == [2, 1]
    assert found["releases"][0]["release"]["context_window"] == 9000
    one = (await shell("agents", "show", "helper", "--release", "1", "--json")).json
    assert (one["release_no"], one["release"]["tools"][0]["name"]) == (1, "result_read")


async def test_an_input_that_waits_is_found_and_withdrawn(shell: Shell, ann: Person) -> None:
    """17, S12: by the id that `say` and both lists tell; what became of it is in the lists."""
    session = await opened(ann)
    run = (await asked(ann, session))["run_id"]
    said = await shell("say", "--session", session, "[also] in metres")
    [waiting] = [one for one in (await shell("sessions", "inputs", session, "--json")).json if one["input_seq"] == 2]
    assert f"agentloom withdraw {waiting['input_id']}" in said.err
    withdrawn = await shell("withdraw", waiting["input_id"])
    assert (withdrawn.code, withdrawn.out) == (0, f"input {waiting['input_id']} was withdrawn\n")
    assert (await shell("withdraw", waiting["input_id"], "--json")).json["state"] == "withdrawn"
    for listed in (await shell("sessions", "inputs", session), await shell("show", "inputs", run)):
        [row] = [line for line in listed.out.splitlines() if waiting["input_id"] in line]
        assert "was withdrawn" in row
        assert "[also] in metres" in row


async def test_what_can_not_be_withdrawn_says_what_can_be_done(shell: Shell, ann: Person) -> None:
    """17, S12: the question of a Run can't be taken away from it; three lines, exit code 4."""
    question = await asked(ann, await opened(ann))
    refused = await shell("withdraw", question["input_id"])
    assert (refused.code, refused.out, len(refused.err.splitlines())) == (4, "", 3)
    assert "stop the run instead" in refused.err


async def test_a_key_made_on_the_command_line_works_until_it_is_revoked(shell: Shell) -> None:
    """17, Y1: the key alone is on standard output."""
    made = await shell("keys", "create", "--user", "carl", "--json")
    theirs = Shell(shell.folder, shell.environment | {"AGENTLOOM_API_KEY": made.json["api_key"]})
    assert (await theirs("sessions", "list", "--json")).code == 0
    assert made.json["key_id"] in (await shell("keys", "list")).out
    assert (await shell("keys", "revoke", made.json["key_id"])).code == 0
    refused = await theirs("sessions", "list")
    assert (refused.code, refused.out) == (4, "")
    assert "AGENTLOOM_API_KEY" in refused.err


async def test_a_key_of_a_provider_is_stored_from_standard_input_and_never_shown(shell: Shell) -> None:
    """17, L6: on the command line it would stay in the shell's history."""
    wanted = ("connections", "set", "mine", "--provider", "openai_compatible", "--base-url", "http://127.0.0.1:9/v1")
    stored = await shell(*wanted, stdin=b"sk-secret-of-mine\n")
    assert (stored.code, stored.out) == (0, "connection mine stored, with a key\n")
    kept = await shell(*wanted, "--without-key", "--json")
    assert (kept.json["has_key"], kept.json["base_url"]) == (True, "http://127.0.0.1:9/v1")
    listed = await shell("connections", "list")
    assert listed.out.splitlines()[-1].split() == ["mine", "openai_compatible", "http://127.0.0.1:9/v1", "yes"]
    said = [text for ended in (stored, kept, listed) for text in (ended.out, ended.err)]
    assert not [text for text in said if "secret-of-mine" in text]
    empty = await shell(*wanted, stdin=b" \n")
    assert (empty.code, empty.err.splitlines()[0]) == (2, "error: No key came on standard input.")
    assert (await shell("connections", "delete", "mine")).code == 0
    assert (await shell("connections", "list", "--json")).json == []


MISTAKES: list[tuple[tuple[str, ...], int, str]] = [
    (("ask", "q"), 2, "agentloom ask --agent NAME"),
    (("ask", "--agent", "helper"), 2, "no text"),
    (("ask", "--agent", "unknown", "q"), 4, "NOT_FOUND"),
    (("ask", "--session", "x", "q"), 4, "the id of a session is a UUID"),
    (("ask", "--agent", "helper", "--session", str(UUID(int=0)), "q"), 2, "either --agent NAME or --session ID"),
    (("show", "diff", str(UUID(int=0)), "../x"), 4, "There is no run or model call ../x."),
    (("keys", "revoke", "../connections/mine"), 4, "agentloom keys list"),
    (("connections", "delete", "../keys/mine"), 4, "agentloom connections list"),
    (("connections", "delete", "gone"), 4, "agentloom connections list"),
    (("connections", "set", "ä b", "--provider", "openai", "--without-key"), 2, "can't be the name of a connection"),
    (("watch", str(UUID(int=0)), "--after", str(10**15)), 2, "--after"),
    (("ask", "--agent", "helper", "--file", "/dev/zero"), 2, "longer than 1000000 characters"),
    (("connections", "set", "mine", "--provider", "nobody", "--without-key"), 4, "--provider should be 'openai'"),
    (("connections", "set", "mine", "--provider", "openai", "--base-url", "x", "--without-key"), 4, "--base-url must"),
    (("completion", "tcsh"), 2, "Invalid value for 'shell': 'tcsh' is not one of"),
    (("say", "--session", str(UUID(int=0)), "q"), 4, "NOT_FOUND"),
    (("publish", "gone.yaml"), 2, "can't be read"),
    (("show", "request", str(UUID(int=0))), 4, "NOT_FOUND"),
    (("watch", str(UUID(int=0))), 4, "NOT_FOUND"),
    (("withdraw", str(UUID(int=0))), 4, "agentloom sessions inputs SESSION"),
    (("withdraw", "../sessions"), 4, "There is no input ../sessions."),
    (("sessions", "inputs", str(UUID(int=0))), 4, "agentloom sessions list"),
    (("agents", "show", "unknown"), 4, "agentloom agents list"),
    (("agents", "show", "../keys"), 4, "There is no agent ../keys."),
    (("agents", "show", "unknown", "--release", "1"), 4, "agentloom agents list"),
]


async def test_a_mistake_gets_three_lines_and_its_exit_code(shell: Shell, subtests: pytest.Subtests) -> None:
    """17: what, why, next command; data only on standard output."""
    for arguments, code, said in MISTAKES:
        with subtests.test(" ".join(arguments)):
            ended = await shell(*arguments)
            assert (ended.code, ended.out) == (code, "")
            assert said in ended.err
            assert len(ended.err.splitlines()) <= 3


async def test_an_api_that_is_not_there_is_exit_code_3(tmp_path: Path) -> None:
    """17: not reachable, or not known at all."""
    nowhere = await Shell(tmp_path, {"AGENTLOOM_API": "http://127.0.0.1:1"})("sessions", "list")
    assert (nowhere.code, nowhere.out) == (3, "")
    unknown = await Shell(tmp_path, {})("sessions", "list")
    assert (unknown.code, unknown.out) == (3, "")
    assert "agentloom dev" in unknown.err


@pytest.mark.parametrize(
    "address",
    [
        "notaurl",
        "127.0.0.1:8700",
        "ftp://host",
        "http://",
        "http://host:port",
        "http://ann:pass@host",
        "http://host?x=1",
    ],
)
async def test_an_address_that_is_none_is_exit_code_2(tmp_path: Path, address: str) -> None:
    """17: said as the mistake it is, before anything is sent."""
    ended = await Shell(tmp_path, {"AGENTLOOM_API": address})("sessions", "list")
    assert (ended.code, ended.out) == (2, "")
    assert "AGENTLOOM_API must be an address such as http://127.0.0.1:8700" in ended.err
    assert len(ended.err.splitlines()) <= 3


async def test_the_running_dev_stack_of_the_folder_is_found(ann: Person, address: str, tmp_path: Path) -> None:
    """17: without AGENTLOOM_API, and its key goes to no other address."""
    (tmp_path / ".agentloom").mkdir()
    (tmp_path / ".agentloom" / "dev.json").write_text(json.dumps({"api": address, "api_key": ann.key}))
    assert (await Shell(tmp_path, {})("sessions", "list", "--json")).json == []
    for said in ("[]", '{"api": 5}', "half a fi"):
        (tmp_path / "dev.json").write_text(said)
        assert (await Shell(tmp_path, {})("--stack", str(tmp_path), "sessions", "list")).code == 3
    elsewhere = address.replace("127.0.0.1", "localhost")
    assert (await Shell(tmp_path, {"AGENTLOOM_API": elsewhere})("sessions", "list")).code == 4


async def test_completion_scripts_are_printed(tmp_path: Path) -> None:
    """17."""
    for shell_name in ("bash", "zsh", "fish"):
        printed = await Shell(tmp_path, {})("completion", shell_name)
        assert (printed.code, "agentloom" in printed.out) == (0, True)


async def test_the_first_key_of_an_installation_is_made_in_the_database(
    store: Store, address: str, tmp_path: Path
) -> None:
    """17, Y1: whoever holds the environment of the API can make an administrator."""
    from base64 import b64encode

    keys = store.payloads.vault._keys
    environment = {
        "DATABASE_URL": store.database.url,
        "AGENTLOOM_MASTER_KEYS": f"k1:{b64encode(keys.master['k1']).decode()}",
        "AGENTLOOM_INDEX_KEY": b64encode(keys.index).decode(),
    }
    made = await Shell(tmp_path, environment)("keys", "bootstrap")
    assert (made.code, made.out[:3]) == (0, "al_")
    reaching = Shell(tmp_path, {"AGENTLOOM_API": address, "AGENTLOOM_API_KEY": made.out.strip()})
    assert (await reaching("keys", "list")).code == 0


async def test_a_misspelt_key_of_a_definition_is_named(ann: Person, address: str, tmp_path: Path) -> None:
    """17, 18: in three lines, by the file's own names."""
    (tmp_path / "a.yaml").write_text("name: a\ninstrucions: x\nmodel: {provider: demo, model: demo}\n")
    shell = Shell(tmp_path, {"AGENTLOOM_API": address, "AGENTLOOM_API_KEY": ann.key})
    refused = await shell("publish", "a.yaml")
    assert refused.code == 4
    assert "why:  instrucions is not a known field; perhaps instructions is meant" in refused.err

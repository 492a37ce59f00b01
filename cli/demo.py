"""`agentloom demo`: a real Run on real servers that loses its worker in the middle, and what shows that it is so.

Progress goes to standard error as it happens; the answer and each claim, with the command that shows it, are the data.

The stack and its data are the demo's own, in `.agentloom/demo`; they are made anew each time, and everything that was
started is stopped at the end. No server that the environment names is touched. What it says can be looked at again when
a stack is started on that folder: each command names the folder, so that it asks no other stack.
"""

import asyncio
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from cli.output import CommandError, note, print_lines

if TYPE_CHECKING:
    from cli.client import Api
    from stack.dev import DevStack

DATA_DIR = Path(".agentloom/demo")
EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "docs_agent"
QUESTION = "How does a run survive the crash of a worker?"
SUPPLEMENT = "And which calls are made again after the crash?"
STRIKE_AT = "tools_started"  # the first model call is finished and its tools are under way
# Compacted after every second step, whatever its size: a demonstration never comes near its window.
COMPACT_EARLY = {"model_steps": 2, "keep_recent_tokens": 0}
MOST_STEPS = 9
# Said already by the lines of the kill, by a loop's own line, or by the claims at the end.
UNTOLD = ("run_started", "input_accepted", "compaction_started", "compaction_progress", "run_ended")
ANSWER_LINES = 4
LINE_CHARS = 110


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(demo)


def demo(
    question: Annotated[str, typer.Argument(help="What to ask about this repository's documents.")] = QUESTION,
) -> int:
    """Watch an agent lose its worker and answer all the same.

    It reads this repository's documents and needs no key. The stack is the demo's own, and stopped at the end; the data
    stays in .agentloom/demo until the next demo.
    """
    began = time.monotonic()
    _make_room()
    return asyncio.run(_demo(question, began))


@dataclass
class Watched:
    """What was seen of the Run."""

    run_id: str
    session_id: str
    steps: int = 0
    killed_at: datetime | None = None
    back: bool = False


def _make_room() -> None:
    """An empty data folder, unless a stack is running on it."""
    from stack.files import make_private
    from stack.lock import locked

    make_private(DATA_DIR)
    with locked(DATA_DIR):
        for found in DATA_DIR.iterdir():
            shutil.rmtree(found) if found.is_dir() else found.unlink()


async def _demo(question: str, began: float) -> int:
    from cli.client import Api, Target
    from cli.following import exit_code
    from settings import DevOverrides
    from stack.dev import DevOptions, running_stack

    options = DevOptions(DATA_DIR, api_port=0, temporal_port=0, ui_port=0, pg_port=0, app_dir=EXAMPLE)
    async with running_stack(options, overrides=DevOverrides.none()) as stack:
        description = stack.description
        note(_stack_line(description, time.monotonic() - began))
        async with Api(Target(description["api"], description["api_key"])) as api:
            watched = await _ask(api, question)
            await _watch(api, stack, watched)
            run = await api.run(watched.run_id)
            print_lines(_answer_lines(run))
            claims = await _evidence(api, run)
    print_lines([_first_command(ui_port := _ui_port()), *claims, _workflow(run, ui_port)])
    print_lines([f"Run {run['status']}. Everything is stopped again. {time.monotonic() - began:.1f} s."])
    return exit_code(run)


async def _ask(api: "Api", question: str) -> Watched:
    from cli.definitions import read_definition

    definition = read_definition(EXAMPLE / "agent.yaml")
    definition["context"] = definition.get("context", {}) | COMPACT_EARLY
    published = await api.post("/agents", {"definition": definition})
    session = await api.post("/sessions", {"agent": definition["name"]})
    accepted = await api.post(f"/sessions/{session['session_id']}/inputs", {"text": question})
    note(f"Asked agent {definition['name']} (release {published['release_no']}): {question}")
    return Watched(accepted["run_id"], session["session_id"])


async def _watch(api: "Api", stack: "DevStack", watched: Watched) -> None:
    """Tell each step as it comes; kill the worker once the Run is well under way, and say something meanwhile."""
    from cli.following import ToolNames, describe

    names = ToolNames(api, watched.run_id)
    async with aclosing(api.events(watched.run_id)) as events:
        async for event in events:
            _note_return(event, watched)
            if _is_told(event, watched) and (line := describe(event, await names.of(event))):
                _note_step(line, watched)
            if event["type"] == STRIKE_AT and watched.killed_at is None:
                _kill_worker(stack, watched)
                await api.post(f"/sessions/{watched.session_id}/inputs", {"text": SUPPLEMENT, "mode": "supplement"})


def _is_told(event: dict[str, Any], watched: Watched) -> bool:
    """Whether the event has a line: the delivery of the question has none, that of the supplement has."""
    before_kill = watched.killed_at is None and event["type"] == "input_delivered"
    return not before_kill and event["type"] not in UNTOLD


def _note_step(line: str, watched: Watched) -> None:
    watched.steps += 1
    if watched.steps <= MOST_STEPS:
        note(f"  {line}{' …' if watched.steps == MOST_STEPS else ''}")


def _note_return(event: dict[str, Any], watched: Watched) -> None:
    """Say how long nothing went on: until the first event of the Run itself that came about after the kill."""
    if watched.killed_at is None or watched.back or event["type"] == "input_accepted":
        return
    pause = datetime.fromisoformat(event["at"]) - watched.killed_at
    if pause > timedelta():  # else it was committed before, and is only told now
        watched.back = True
        note(f"  *** the next step came {pause.total_seconds():.1f} s later")


def _kill_worker(stack: "DevStack", watched: Watched) -> None:
    pid = stack.pids["worker"]
    if pid is None:
        raise CommandError("The worker is not running.", mend=f"less {DATA_DIR}/logs/worker.log")
    os.kill(pid, signal.SIGKILL)
    watched.killed_at = datetime.now(UTC)
    note(f"  *** kill -9 of worker {pid}, and said while there is none: {SUPPLEMENT}")


def _stack_line(description: dict[str, Any], seconds: float) -> str:
    pids = description["pids"]
    return (
        f"PostgreSQL {pids['postgres']}, Temporal {pids['temporal']}, worker {pids['worker']} and API {pids['api']} "
        f"are up ({seconds:.1f} s)."
    )


def _answer_lines(run: dict[str, Any]) -> list[str]:
    words = [line for line in (run["answer"] or f"no answer: {run['end_reason']}").splitlines() if line.strip()]
    shown = [f"{line[:LINE_CHARS]}{'…' if len(line) > LINE_CHARS else ''}" for line in words[:ANSWER_LINES]]
    return [f"Answer: {shown[0]}", *(f"  | {line}" for line in shown[1:])]


async def _evidence(api: "Api", run: dict[str, Any]) -> list[str]:
    """Each claim with the command that shows it."""
    from cli.following import compacted, gauge

    run_id, session_id = run["run_id"], run["session_id"]
    operations = await api.pages(f"/runs/{run_id}/operations", limit=200)
    calls = [one for one in operations if one["purpose"] != "tool"]
    business = [one["operation_id"] for one in calls if one["purpose"] == "business"]
    inputs = await api.pages(f"/runs/{run_id}/inputs")
    reached = sum(one["state"] == "delivered" for one in inputs)
    compactions = await api.pages(f"/runs/{run_id}/compactions")
    last = (await api.get(f"/runs/{run_id}/manifests", operation=business[-1]))["items"][0]
    rebuilt = await api.get(f"/operations/{business[-1]}/request")
    checked = await api.get(f"/sessions/{session_id}/verify")
    budget = gauge(last["estimated_input_tokens"], last["input_limit"])
    asking = f"{program()} --stack {DATA_DIR}"
    show = f"{asking} show"
    return [
        f"{len(calls)} model and {len(operations) - len(calls)} tool calls, {_repeats(operations)}: "
        f"{show} operations {run_id}",
        f"{reached} of {len(inputs)} inputs reached the model: {show} inputs {run_id}",
        *(f"{compacted(one)}: {show} compactions {run_id}" for one in compactions[:1]),
        f"last request {budget}: {show} view {run_id}",
        f"rebuilt, sha256 {rebuilt['sha256'][:12]}: {show} request {business[-1]}",
        f"{checked['records']} records and {checked['requests']} requests checked, {len(checked['breaks'])} broken: "
        f"{asking} verify {session_id}",
    ]


def _repeats(operations: Sequence[dict[str, Any]]) -> str:
    """How many calls were begun twice: those that were under way when the worker died, and no finished one."""
    twice = [one["name"] for one in operations if len(one["attempts"]) > 1]
    return f"only {', '.join(twice)} begun again" if twice else "none begun twice"


def program() -> str:
    """How this program is called from here: by its name if the PATH leads to it, else by its path."""
    mine = Path(sys.executable).with_name("agentloom")
    found = shutil.which("agentloom")
    return "agentloom" if found and Path(found).samefile(mine) else os.path.relpath(mine)


def _first_command(ui_port: int) -> str:
    """What has to run while the claims are looked at; beside a stack of one's own too."""
    from settings import load_dev_overrides

    ports = f"--api-port 0 --temporal-port 0 --pg-port 0 --ui-port {ui_port}"
    command = f"{program()} dev --data-dir {DATA_DIR} --app-dir {os.path.relpath(EXAMPLE)} {ports}"
    if others := "".join(f" -u {name}" for name in load_dev_overrides().variables):  # `dev` would use them
        command = f"env{others} {command}"
    return f"To look closer, first in another terminal: {command}"


def _ui_port() -> int:
    """A port for the Temporal UI that the link can name."""
    from stack.dev import DevOptions
    from stack.ports import any_free_port, is_free

    usual = DevOptions().ui_port
    return usual if is_free(usual) else any_free_port()


def _workflow(run: dict[str, Any], ui_port: int) -> str:
    workflow = quote(run["workflow_id"], safe="")
    return f"its workflow: http://127.0.0.1:{ui_port}/namespaces/default/workflows/{workflow}"

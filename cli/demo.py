"""`agentloom demo`: a real Run on real servers that loses its worker in the middle, and what shows that it is so.

The stack and its data are the demo's own, in `.agentloom/demo`; they are made anew each time, and everything that was
started is stopped at the end. What it says can be looked at again with `agentloom dev --data-dir .agentloom/demo`.
"""

import asyncio
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from cli.output import CommandError, print_lines, progress

if TYPE_CHECKING:
    from cli.client import Api
    from stack.dev import DevStack

DATA_DIR = Path(".agentloom/demo")
EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "docs_agent"
QUESTION = "How does a run survive the crash of a worker?"
SUPPLEMENT = "And what becomes of a tool call whose outcome is unknown?"
STRIKE_AT = "tools_started"  # the first model call is finished and its tools are under way
ANSWER_LINES = 4
LINE_CHARS = 110


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(demo)


def demo(
    question: Annotated[str, typer.Argument(help="What to ask about this repository's documents.")] = QUESTION,
) -> int:
    """Ask about this repository's documents, kill the worker half-way, and see the answer come all the same."""
    began = time.monotonic()
    _make_room()
    return asyncio.run(_demo(question, began))


@dataclass
class Watched:
    """What was seen of the Run."""

    run_id: str
    session_id: str
    steps: list[str] = field(default_factory=list)
    killed_pid: int | None = None
    killed_at: float = 0.0
    back_after_s: float | None = None


def _make_room() -> None:
    """An empty data folder, unless a stack is running on it."""
    from stack.lock import locked

    DATA_DIR.mkdir(parents=True, exist_ok=True, mode=0o700)
    with locked(DATA_DIR):
        for found in DATA_DIR.iterdir():
            shutil.rmtree(found) if found.is_dir() else found.unlink()


async def _demo(question: str, began: float) -> int:
    from cli.client import Api, Target
    from cli.following import exit_code
    from stack.dev import DevOptions, running_stack

    options = DevOptions(DATA_DIR, api_port=0, temporal_port=0, ui_port=0, pg_port=0, app_dir=EXAMPLE)
    async with running_stack(options) as stack:
        description = stack.description
        print_lines(_stack_lines(description, time.monotonic() - began))
        async with Api(Target(description["api"], description["api_key"])) as api:
            watched = await _ask(api, question)
            with progress("working"):
                await _watch(api, stack, watched)
            run = await api.run(watched.run_id)
            print_lines(_run_lines(watched))
            print_lines(_answer_lines(run))
            print_lines(await _evidence(api, run))
    print_lines(_last_lines(run, time.monotonic() - began))
    return exit_code(run)


async def _ask(api: "Api", question: str) -> Watched:
    from cli.definitions import read_definition

    definition = read_definition(EXAMPLE / "agent.yaml")
    published = await api.post("/agents", {"definition": definition})
    session = await api.post("/sessions", {"agent": definition["name"]})
    accepted = await api.post(f"/sessions/{session['session_id']}/inputs", {"text": question})
    print_lines([f"Asked agent {definition['name']} (release {published['release_no']}): {question}"])
    return Watched(accepted["run_id"], session["session_id"])


async def _watch(api: "Api", stack: "DevStack", watched: Watched) -> None:
    """Follow the Run to its end; kill the worker once it is well under way, and say something while there is none."""
    from cli.following import ToolNames, describe

    names = ToolNames(api, watched.run_id)
    async with aclosing(api.events(watched.run_id)) as events:
        async for event in events:
            by_the_run = event["type"] != "input_accepted"
            if by_the_run and watched.killed_pid and watched.back_after_s is None:
                watched.back_after_s = time.monotonic() - watched.killed_at
            if event["type"] == STRIKE_AT and watched.killed_pid is None:
                _kill_worker(stack, watched)
                await api.post(f"/sessions/{watched.session_id}/inputs", {"text": SUPPLEMENT, "mode": "supplement"})
            if line := describe(event, await names.of(event)):
                watched.steps.append(line)


def _kill_worker(stack: "DevStack", watched: Watched) -> None:
    pid = stack.pids["worker"]
    if pid is None:
        raise CommandError("The worker is not running.", mend=f"less {DATA_DIR}/logs/worker.log")
    os.kill(pid, signal.SIGKILL)
    watched.killed_pid, watched.killed_at = pid, time.monotonic()


def _stack_lines(description: dict[str, Any], seconds: float) -> list[str]:
    pids = description["pids"]
    return [
        f"PostgreSQL {pids['postgres']}, Temporal {pids['temporal']}, worker {pids['worker']} and API {pids['api']} "
        f"are up ({seconds:.1f} s)."
    ]


def _run_lines(watched: Watched) -> list[str]:
    """The steps, with the kill between the one that it met and the one that followed."""
    lines = [f"  {step}" for step in watched.steps]
    at = next((place for place, step in enumerate(watched.steps, 1) if ": tools " in step), len(lines))
    back = "" if watched.back_after_s is None else f"; the next step came {watched.back_after_s:.1f} s later"
    said = f"  *** said meanwhile: {SUPPLEMENT} ({program()} show inputs {watched.run_id})"
    kill = [f"  *** kill -9 of worker {watched.killed_pid}{back}", said]
    return [*lines[:at], *kill, *_shortened(lines[at:], 6)]


def _shortened(lines: Sequence[str], most: int) -> list[str]:
    if len(lines) <= most:
        return list(lines)
    return [*lines[: most - 2], f"  … {len(lines) - most + 1} more", lines[-1]]


def _answer_lines(run: dict[str, Any]) -> list[str]:
    words = [line for line in (run["answer"] or f"no answer: {run['end_reason']}").splitlines() if line.strip()]
    shown = [f"  | {line[:LINE_CHARS]}{'…' if len(line) > LINE_CHARS else ''}" for line in words[:ANSWER_LINES]]
    return ["Answer:", *shown]


async def _evidence(api: "Api", run: dict[str, Any]) -> list[str]:
    """Each claim with the command that shows it."""
    from cli.following import gauge

    operations = await api.pages(f"/runs/{run['run_id']}/operations", limit=200)
    calls = [one for one in operations if one["purpose"] != "tool"]
    rebuilt = await api.get(f"/operations/{calls[-1]['operation_id']}/request")
    manifests = await api.pages(f"/runs/{run['run_id']}/manifests")
    last = manifests[-1]
    budget = gauge(last["estimated_input_tokens"], last["input_limit"])
    show = f"{program()} show"
    return [
        f"{len(calls)} model and {len(operations) - len(calls)} tool calls, {_repeats(operations)}: "
        f"{show} operations {run['run_id']}",
        f"last request {budget}: {show} manifest {run['run_id']}",
        f"rebuilt, sha256 {rebuilt['sha256'][:12]}: {show} request {calls[-1]['operation_id']}",
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


def _last_lines(run: dict[str, Any], seconds: float) -> list[str]:
    workflow = quote(run["workflow_id"], safe="")
    return [
        f"its workflow: http://127.0.0.1:8233/namespaces/default/workflows/{workflow}",
        f"(for the link and the commands: {program()} dev --data-dir {DATA_DIR} --app-dir {os.path.relpath(EXAMPLE)})",
        f"Run {run['status']}. Everything is stopped again. {seconds:.1f} s.",
    ]

"""`ask`, `say`, `withdraw`, `stop` and `resume`: what a person does to a Run, and the waiting for its end."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer

from cli.folders import named_path
from cli.ids import id_of, known_name
from cli.output import CommandError, note, print_error, print_json, print_lines

if TYPE_CHECKING:
    from cli.client import Api

Text = Annotated[str | None, typer.Argument(help="The text; '-' reads it from standard input.", show_default=False)]
File = Annotated[
    Path | None,
    typer.Option(
        "--file", "-f", metavar="FILE", parser=named_path, help="File that holds the text; '-' is standard input."
    ),
]
RunId = Annotated[
    str, typer.Argument(help="Id of the Run; `ask` tells it, and `agentloom sessions show`.", callback=id_of("run"))
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one line of JSON.")]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Return as soon as the text is accepted.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(ask)
    app.command()(say)
    app.command()(withdraw)
    app.command()(stop)
    app.command()(resume)


def ask(
    text: Text = None,
    agent: Annotated[
        str | None, typer.Option(metavar="NAME", help="Open a session with this agent.", callback=known_name("agent"))
    ] = None,
    session: Annotated[
        str | None, typer.Option(metavar="ID", help="Go on in this session.", callback=id_of("session"))
    ] = None,
    file: File = None,
    no_wait: NoWait = False,
    json: AsJson = False,
) -> int:
    """Ask a question and wait for the answer.

    The answer goes to standard output; progress goes to standard error, first the ids of Run and session. Ctrl-C
    ends the waiting and not the Run.
    """
    from cli.client import call_api
    from cli.texts import needed_text

    if (agent is None) == (session is None):
        raise CommandError(
            "Say whom to ask: either --agent NAME or --session ID.", mend='agentloom ask --agent NAME "your question"'
        )
    question = needed_text(text, file, command=f"ask {'--agent NAME' if agent else '--session ID'}")

    async def work(api: "Api") -> int:
        session_id = session or (await api.post("/sessions", {"agent": agent}))["session_id"]
        accepted = await _send(api, session_id, question, mode="question")
        return await _outcome(api, accepted | {"session_id": session_id}, no_wait=no_wait, as_json=json)

    return call_api(work)


def say(
    text: Text = None,
    session: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Session whose active Run gets the text.", callback=id_of("session")),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(metavar="ID", help="A Run of that session, instead of --session.", callback=id_of("run")),
    ] = None,
    file: File = None,
    json: AsJson = False,
) -> int:
    """Add something to the Run that is active now.

    This is a supplement: the model gets it with its next request, and it starts nothing new.
    """
    from cli.client import call_api
    from cli.following import DELIVERY
    from cli.texts import needed_text

    if (session is None) == (run is None):
        raise CommandError("Say where: either --session ID or --run ID.", mend="agentloom sessions list")
    supplement = needed_text(text, file, command="say --session ID")

    async def work(api: "Api") -> dict[str, Any]:
        session_id = session or (await api.run(str(run)))["session_id"]
        return await _send(api, session_id, supplement, mode="supplement")

    accepted = call_api(work)
    if json:
        print_json(accepted)
    else:
        print_lines([f"input {accepted['input_seq']} of run {accepted['run_id']} {DELIVERY[accepted['state']]}"])
        note(f"take it back while it waits: agentloom withdraw {accepted['input_id']}")
    return 0


def withdraw(
    input_id: Annotated[str, typer.Argument(metavar="INPUT", help="Id of the input.", callback=id_of("input"))],
    json: AsJson = False,
) -> int:
    """Take back something said that still waits.

    It never reaches the model, and stays in the lists as withdrawn. `say` tells the id, and so does `agentloom
    sessions inputs SESSION`.
    """
    from cli.client import call_api
    from cli.following import DELIVERY

    withdrawn = call_api(lambda api: api.delete(f"/inputs/{input_id}"))
    if json:
        print_json(withdrawn)
    else:
        print_lines([f"input {input_id} {DELIVERY[withdrawn['state']]}"])
    return 0


def stop(run: RunId, json: AsJson = False) -> int:
    """Stop a Run: nothing new starts, and it ends as stopped."""
    from cli.client import call_api

    async def work(api: "Api") -> dict[str, Any]:
        await api.post(f"/runs/{run}/stop")
        ended: dict[str, Any] = await api.get(f"/runs/{run}", wait_s=10)
        return ended

    ended = call_api(work)
    if json:
        print_json(ended)
    else:
        print_lines([f"run {run} {'is being stopped' if ended['ended_at'] is None else ended['status']}"])
    return 0


def resume(run: RunId, text: Text = None, file: File = None, no_wait: NoWait = False, json: AsJson = False) -> int:
    """Let a failed or stopped Run go on.

    It is the same Run, with what is left of its loops and time; a text is added to it as `say` would.
    """
    from cli.client import call_api
    from cli.texts import given_text

    supplement = given_text(text, file)

    async def work(api: "Api") -> int:
        before = await api.run(run)
        resumed = await api.post_again(f"/runs/{run}/resume", {"text": supplement, "client_key": str(uuid4())})
        place = {"run_id": run, "session_id": before["session_id"], "after": before["event_head"]}
        return await _outcome(api, resumed | place, no_wait=no_wait, as_json=json)

    return call_api(work)


async def _send(api: "Api", session_id: str, text: str, *, mode: str) -> dict[str, Any]:
    """Send an input under a client key, so that a lost answer can be asked for again without a second input."""
    body = {"text": text, "mode": mode, "client_key": str(uuid4())}
    accepted: dict[str, Any] = await api.post_again(f"/sessions/{session_id}/inputs", body)
    return accepted


async def _outcome(api: "Api", begun: Mapping[str, Any], *, no_wait: bool, as_json: bool) -> int:
    """Print what was begun, or wait for the end and print that."""
    from cli.following import exit_code, follow, left_over

    if no_wait:
        if as_json:
            print_json(begun)
        else:
            print_lines([f"run {begun['run_id']} in session {begun['session_id']}"])
        return 0
    if not as_json:
        note(f"run {begun['run_id']} in session {begun['session_id']}")
    try:
        run = await follow(api, str(begun["run_id"]), after=begun.get("after", 0), quiet=as_json)
    except asyncio.CancelledError:  # Ctrl-C
        note(f"the run goes on: agentloom watch {begun['run_id']}   (or: agentloom stop {begun['run_id']})")
        raise
    say_outcome(run, as_json=as_json)
    if not as_json and (left := await left_over(api, run["run_id"])):
        note(left)
    return exit_code(run)


def say_outcome(run: Mapping[str, Any], *, as_json: bool) -> None:
    """The answer on standard output, or why there is none on standard error."""
    from cli.following import SUCCEEDED, ending, figures, next_after

    if as_json:
        print_json(run)
        return
    if run["answer"]:
        print_lines([run["answer"]])
    if run["status"] != SUCCEEDED:
        print_error(ending(run), why=figures(run), mend=next_after(run) or "")

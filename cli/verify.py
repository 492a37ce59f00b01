"""`agentloom verify SESSION`: whether everything stored of a session still is what was written."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from cli.ids import id_of
from cli.output import ExitCode, print_error, print_json, print_lines, print_table, progress

MEANINGS = {
    "content": "what is stored is gone, or not what its id, size and hash say",
    "chain": "the hash chain of the context does not lead here: changed, moved or missing",
    "order": "the session's own numbering has a gap or another order",
    "record": "the record does not fit its message, or a request shows it in other words",
    "revision": "a revision of the context is missing or disagrees with its records",
    "input": "the input is missing, or shown in other words than it came in",
    "coverage": "the summary does not cover what it says, or is shown in other words",
    "view": "the list has lost items, shows another thing than it names, or claims what the run could not see",
    "doubled": "the request shows this piece twice",
    "operation": "the call is not what its batch, its event or its record say of it",
    "run": "its number, end or answer is not what its events, inputs and calls say",
    "request": "the request can't be rebuilt with the hash it was sent with",
}
"""What each kind of break means to a person (SPEC M7)."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(verify)


def verify(
    session: Annotated[str, typer.Argument(help="Id of the session.", callback=id_of("session"))],
    json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> int:
    """Check that all of a session is as it was written.

    That is its content, hash chains, summaries and requests. Exit code 1 if anything is broken.
    """
    from cli.client import call_api

    with progress("opening and hashing everything"):
        found = call_api(lambda api: api.get(f"/sessions/{session}/verify"))
    breaks = found["breaks"]
    if json:
        print_json(found)
        return ExitCode.ENDED_OTHERWISE if breaks else ExitCode.DONE
    print_lines([_looked_at(found)])
    if not breaks:
        print_lines(["everything is as it was written"])
        return ExitCode.DONE
    print_table(("broken", "of", "no", "what that means"), map(_row, breaks))
    print_error(
        f"{len(breaks)} break{'s' if len(breaks) > 1 else ''} in session {session}.",
        why="Something has changed what was stored, past AgentLoom.",
        mend="compare with a backup: docs/operations.md",
    )
    return ExitCode.ENDED_OTHERWISE


def _looked_at(found: Mapping[str, Any]) -> str:
    counts = (f"{found[name]} {name}" for name in ("records", "contents", "snapshots", "requests"))
    return f"session {found['session_id']}: looked at {', '.join(counts)}"


def _row(one: Mapping[str, Any]) -> tuple[object, ...]:
    return one["kind"], one["subject"], "" if one["place"] is None else one["place"], MEANINGS[one["kind"]]

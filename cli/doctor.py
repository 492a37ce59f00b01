"""`agentloom doctor`: looks at every part of a stack and says, for each that fails, which command mends it."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.folders import named_path
from cli.output import CommandError, ExitCode, print_json, print_table, progress


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(doctor)


def doctor(
    data_dir: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER", parser=named_path, help="Data folder of the stack, if the environment names none."
        ),
    ] = Path(".agentloom"),
    model_url: Annotated[
        str | None, typer.Option(help="Address of a model API to look at besides those of the published agents.")
    ] = None,
    part: Annotated[
        list[str] | None, typer.Option(help="Judge only this part, for example worker; may be repeated.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> int:
    """Look at every part of a stack, and say what mends it.

    The parts are Python, PostgreSQL and its schema, Temporal, the workers, ports, the API and the models'
    addresses. Exit code 3 if one is broken.
    """
    from stack.checks import examine

    with progress("looking at every part"):
        findings = _chosen(asyncio.run(examine(data_dir, model_url=model_url)), part)
    if json:
        print_json({"ok": not any(map(_is_broken, findings)), "checks": [_as_json(finding) for finding in findings]})
    else:
        _show(findings)
    return ExitCode.NOT_REACHABLE if any(map(_is_broken, findings)) else ExitCode.DONE


def _chosen(findings: Sequence[Any], parts: Sequence[str] | None) -> list[Any]:
    wanted = {part.casefold(): part for part in parts or ()}
    names = dict.fromkeys(finding.part for finding in findings)
    if unknown := sorted(wanted.keys() - {name.casefold() for name in names}):
        raise CommandError(f"There is no part {wanted[unknown[0]]}.", why=f"The parts are: {', '.join(names)}.")
    return [finding for finding in findings if not wanted or finding.part.casefold() in wanted]


def _is_broken(finding: Any) -> bool:
    from stack.findings import Broken

    return isinstance(finding, Broken)


def _as_json(finding: Any) -> dict[str, Any]:
    return {"state": type(finding).__name__.lower(), **asdict(finding)}


def _show(findings: Iterable[Any]) -> None:
    marks = {"Sound": "ok", "Broken": "FAILED", "Skipped": "-"}
    rows = []
    for finding in findings:
        rows.append((marks[type(finding).__name__], finding.part, finding.detail))
        if _is_broken(finding):
            rows.append(("", "", f"→ {finding.mend}"))
    print_table(("", "part", "what was found"), rows)

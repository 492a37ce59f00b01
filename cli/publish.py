"""`agentloom publish FILE`: reads a definition in YAML, TOML or JSON and publishes it as the agent's next release."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.definitions import FORMATS, read_definition
from cli.output import note, print_json, print_lines

UNKNOWN_FIELD = re.compile(r"\(field ([0-9]+)\)")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(publish)


def publish(
    file: Annotated[Path, typer.Argument(help=f"The agent's definition: {FORMATS}.")],
    json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> int:
    """Publish an agent definition. Publishing the same content again changes nothing."""
    from cli.client import Api, ApiRefusedError, call_api

    definition = read_definition(file)

    async def work(api: Api) -> dict[str, Any]:
        try:
            published: dict[str, Any] = await api.post("/agents", {"definition": definition})
        except ApiRefusedError as refused:
            if reasons := refused.problem.get("errors"):
                refused.why = "; ".join(f"{place_in_file(definition, one['field'])} {one['reason']}" for one in reasons)
            raise
        return published

    published = call_api(work)
    if json:
        print_json(published)
        return 0
    name = definition.get("name", "")
    print_lines([f"{name} release {published['release_no']}  {published['release_id']}"])
    note(f'next: agentloom ask --agent {name} "your question"')
    return 0


def place_in_file(definition: dict[str, Any], place: str) -> str:
    """A place in an answer of the API by the file's own names, which the API tells by position only."""
    value: Any = {"body": {"definition": definition}}
    steps: list[str] = []
    for step in place.split("."):
        steps.append(_named(step, value))
        value = _below(value, steps[-1])
    return ".".join(steps).removeprefix("body.definition.")


def _named(step: str, value: Any) -> str:
    unknown = UNKNOWN_FIELD.fullmatch(step)
    return str(list(value)[int(unknown[1]) - 1]) if unknown and isinstance(value, dict) else step


def _below(value: Any, step: str) -> Any:
    if isinstance(value, dict):
        return value.get(step)
    return value[int(step)] if isinstance(value, list) and step.isdecimal() else None

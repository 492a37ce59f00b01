"""`agentloom publish FILE`: reads a definition in YAML, TOML or JSON and publishes it as the agent's next release."""

from pathlib import Path
from typing import Annotated, Any

import typer

from cli.definitions import FORMATS, read_definition
from cli.output import note, print_json, print_lines


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(publish)


def publish(
    file: Annotated[Path, typer.Argument(help=f"The agent's definition: {FORMATS}.")],
    json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> int:
    """Publish an agent definition. Publishing the same content again changes nothing."""
    from cli.client import Api, call_api

    definition = read_definition(file)

    async def work(api: Api) -> dict[str, Any]:
        published: dict[str, Any] = await api.post("/agents", {"definition": definition})
        return published

    published = call_api(work)
    if json:
        print_json(published)
        return 0
    name = definition.get("name", "")
    print_lines([f"{name} release {published['release_no']}  {published['release_id']}"])
    note(f'next: agentloom ask --agent {name} "your question"')
    return 0

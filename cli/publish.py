"""`agentloom publish FILE`: reads a definition in YAML, TOML or JSON and publishes it as the agent's next release."""

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from cli.definitions import FORMATS, read_definition
from cli.folders import named_path
from cli.output import note, print_json, print_lines

if TYPE_CHECKING:
    from cli.client import Api

UNKNOWN_FIELD = re.compile(r"\(field ([0-9]+)\)")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(publish)


def publish(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", parser=named_path, help=f"The agent's definition: {FORMATS}.")
    ],
    json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> int:
    """Publish a definition as its agent's next release.

    Publishing the same content again changes nothing. Runs that have begun keep the release they began with. Every
    key of a definition is in docs/agent-definition.md.
    """
    from cli.client import ApiRefusedError, call_api

    definition = read_definition(file)

    async def work(api: "Api") -> tuple[dict[str, Any], list[str]]:
        before = await _code_of_newest(api, definition)
        try:
            published: dict[str, Any] = await api.post("/agents", {"definition": definition})
        except ApiRefusedError as refused:
            refused.tell_places(partial(place_in_file, definition))
            raise
        return published, _edited(before, await _code_of_newest(api, definition))

    published, edited = call_api(work)
    if json:
        print_json(published)
        return 0
    name = definition.get("name", "")
    print_lines([f"{name} release {published['release_no']}  {published['release_id']}"])
    if edited:
        note(f"edited: {', '.join(edited)}; a worker that has imported the old code has to be restarted")
    note(f'next: agentloom ask --agent {name} "your question"')
    return 0


async def _code_of_newest(api: "Api", definition: dict[str, Any]) -> dict[str, Any]:
    """The hash of each module that Python tools of the agent's newest release stand on; none without a release."""
    from cli.client import ApiRefusedError

    tools = definition.get("tools")
    if not isinstance(tools, list) or not any(isinstance(one, dict) and one.get("kind") == "python" for one in tools):
        return {}
    try:
        agent = await api.get(f"/agents/{quote(str(definition.get('name')), safe='')}")
        release = await api.get(f"/releases/{agent['release_id']}")
    except ApiRefusedError:  # there is no such agent yet; whatever else is wrong, publishing says
        return {}
    return {module: code for tool in release["release"]["tools"] for module, code in (tool["code"] or {}).items()}


def _edited(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """The modules that are other ones now. Which functions of a module were edited cannot be told."""
    return sorted(module for module, code in now.items() if before.get(module, code) != code)


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

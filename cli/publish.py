"""`agentloom publish FILE`: reads a definition in YAML, TOML or JSON and publishes it as the agent's next release."""

import json as json_module
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.output import CommandError, note, print_json, print_lines

FORMATS = ".yaml, .yml, .toml or .json"


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


def read_definition(file: Path) -> dict[str, Any]:
    """The definition in a file, unchecked. Raises CommandError if it can't be read as a mapping."""
    try:
        value = _parse(file, file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandError(f"{file} can't be read.", why=error.strerror or "") from None
    except UnicodeDecodeError:
        raise CommandError(f"{file} is not UTF-8 text.") from None
    if not isinstance(value, dict):
        raise CommandError(
            f"{file} does not hold an agent definition.", why="It must be a mapping with name and model."
        )
    return value


def _parse(file: Path, text: str) -> Any:
    match file.suffix.lower():
        case ".json":
            return _checked(file, json_module.loads, text, json_module.JSONDecodeError)
        case ".toml":
            return _checked(file, tomllib.loads, text, tomllib.TOMLDecodeError)
        case ".yaml" | ".yml":
            import yaml

            return _checked(file, yaml.safe_load, text, yaml.YAMLError)
        case _:
            raise CommandError(f"{file} has no known format.", why=f"The name must end in {FORMATS}.")


def _checked(file: Path, parse: Any, text: str, broken: type[Exception]) -> Any:
    try:
        value = parse(text)
        json_module.dumps(value)
    except broken as error:
        raise CommandError(f"{file} can't be parsed.", why=str(error)) from None
    except (TypeError, ValueError):
        raise CommandError(
            f"{file} holds a value that JSON does not have.", why="Write dates and the like in quotes."
        ) from None
    return value

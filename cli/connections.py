"""`agentloom connections …`: stores, lists and forgets providers' keys and addresses (for administrators).

A key is typed unseen or comes on standard input: on the command line it would stay in the shell's history.
"""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.ids import known_name, name_of
from cli.output import CommandError, ExitCode, note, print_json, print_lines, print_table
from cli.texts import given_text

if TYPE_CHECKING:
    from cli.client import Api

AsJson = Annotated[bool, typer.Option("--json", help="Print one line of JSON.")]
NAME = "Name of the connection, as `connection` in a definition names it."

OPTIONS = {"body.provider": "--provider", "body.base_url": "--base-url", "body.api_key": "the key"}
"""What a person gave, by its place in the request."""


def register(app: typer.Typer) -> None:
    """Add the group of commands."""
    group = typer.Typer(
        help="Keep the keys and addresses of models and tools.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    group.command("set")(set_connection)
    group.command("list")(list_connections)
    group.command()(delete)
    app.add_typer(group, name="connections")


def set_connection(
    name: Annotated[str, typer.Argument(help=NAME, callback=name_of("connection"))],
    provider: Annotated[str, typer.Option(help="openai, deepseek, openai_compatible; tool for the secret of a tool.")],
    base_url: Annotated[
        str | None, typer.Option(help="Address of the server, unless it is the provider's own.")
    ] = None,
    without_key: Annotated[
        bool, typer.Option("--without-key", help="Ask for no key: keep the stored one, or have none.")
    ] = False,
    json: AsJson = False,
) -> int:
    """Store a connection, or replace the one of this name. Its key is asked for, or read from standard input."""
    from cli.client import ApiRefusedError, call_api

    key = None if without_key else _key()
    wanted = {"name": name, "provider": provider, "base_url": base_url, "api_key": key}

    async def work(api: "Api") -> dict[str, Any]:
        try:
            stored: dict[str, Any] = await api.post("/connections", wanted)
        except ApiRefusedError as refused:
            refused.tell_places(lambda place: OPTIONS.get(place, place))
            raise
        return stored

    stored = call_api(work)
    if json:
        print_json(stored)
        return ExitCode.DONE
    print_lines([f"connection {name} stored, {'with a key' if stored['has_key'] else 'without a key'}"])
    note(f"a definition uses it by `connection: {name}`")
    return ExitCode.DONE


def _key() -> str:
    """The key as it was typed unseen, or what comes on standard input."""
    if sys.stdin is not None and sys.stdin.isatty():
        typed: str = typer.prompt("Key", hide_input=True, err=True)
        return typed
    if key := (given_text("-", None) or "").strip():
        return key
    raise CommandError("No key came on standard input.", mend="agentloom connections set NAME … --without-key")


def list_connections(json: AsJson = False) -> int:
    """List the connections of the space. No key is ever shown."""
    from cli.client import call_api

    found = call_api(lambda api: api.pages("/connections"))
    if json:
        print_json(found)
        return ExitCode.DONE
    rows = ((one["name"], one["provider"], one["base_url"] or "", "yes" if one["has_key"] else "no") for one in found)
    print_table(("connection", "provider", "address", "key"), rows)
    return ExitCode.DONE


def delete(name: Annotated[str, typer.Argument(help=NAME, callback=known_name("connection"))]) -> int:
    """Forget a connection and its key.

    Releases that name it can no longer call their model.
    """
    from cli.client import call_api

    call_api(lambda api: api.delete(f"/connections/{name}"))
    print_lines([f"connection {name} and its key are forgotten"])
    return ExitCode.DONE

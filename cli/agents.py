"""`agentloom agents …`: which agents there are, and what each of their releases is made of."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.ids import known_name
from cli.output import CommandError, ExitCode, one_line, print_json, print_table

if TYPE_CHECKING:
    from cli.client import Api

AsJson = Annotated[bool, typer.Option("--json", help="Print one line of JSON.")]
WINDOW_SOURCES = {
    "manual": "from the definition or the connection",
    "provider": "as the provider told the connection",
    "official_manifest": "from the catalogue of official models",
}
"""Where a window comes from (SPEC B3)."""


def register(app: typer.Typer) -> None:
    """Add the group of commands."""
    group = typer.Typer(help="List agents and show their releases.", no_args_is_help=True, rich_markup_mode=None)
    group.command("list")(list_agents)
    group.command()(show)
    app.add_typer(group, name="agents")


def list_agents(json: AsJson = False) -> int:
    """List the agents that can be asked, by name."""
    from cli.client import call_api

    found = call_api(lambda api: api.pages("/agents", limit=200))
    if json:
        print_json(found)
        return 0
    rows = ((one["name"], one["release_no"], one["release_id"], one["created_at"][:19]) for one in found)
    print_table(("agent", "releases", "newest", "created"), rows)
    return 0


def show(
    name: Annotated[str, typer.Argument(help="Name of the agent.", callback=known_name("agent"))],
    release: Annotated[
        int | None, typer.Option(min=1, help="Show the release of this number instead of the newest.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="List at most this many releases, newest first.")] = 20,
    json: AsJson = False,
) -> int:
    """Show an agent's newest release and list the others.

    With model, window, limits and tools, and a line for each release. With --release one of these alone. With
    --json everything that a release holds, instructions and schemas included.
    """
    from cli.client import call_api

    if release is not None:
        found = call_api(lambda api: _release(api, name, release))
        _show(found, [], shown=found, as_json=json)
        return 0

    async def work(api: "Api") -> dict[str, Any]:
        agent: dict[str, Any] = await api.get(f"/agents/{name}")
        return agent | {"releases": await api.pages(f"/agents/{name}/releases", at_most=limit, limit=min(limit, 20))}

    found = call_api(work)
    _show(found["releases"][0], found["releases"], shown=found, as_json=json)
    return 0


async def _release(api: "Api", name: str, number: int) -> dict[str, Any]:
    """The release of that number. Raises CommandError if the agent has fewer."""
    agent = await api.get(f"/agents/{name}")
    for one in await api.pages(f"/agents/{name}/releases") if number <= agent["release_no"] else ():
        if one["release_no"] == number:
            found: dict[str, Any] = one
            return found
    raise CommandError(
        f"Agent {name} has no release {number}.",
        why=f"NOT_FOUND: its newest is release {agent['release_no']}.",
        mend=f"agentloom agents show {name}",
        exit_code=ExitCode.REFUSED,
    )


def _show(one: Mapping[str, Any], releases: list[dict[str, Any]], *, shown: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(shown)
        return
    print_table(("", ""), _facts(one))
    if releases:
        print_table(("no", "release", "published", "model", "window", "tools"), map(_row, releases), title="\nreleases")


def _facts(one: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """What a release is made of."""
    release, definition = one["release"], one["release"]["definition"]
    limits = definition["limits"]
    yield "agent", one["agent"]
    yield "release", f"{one['release_no']}, published {one['created_at'][:19]}"
    yield "id", one["release_id"]
    yield "instructions", one_line(_instructions(definition))
    yield "model", _model(definition["model"])
    yield "address", release["base_url"] or "the demo model of the worker"
    if connection := definition["model"]["connection"]:
        yield "key", f"of the connection {connection}"
    yield "window", f"{release['context_window']} tokens, {WINDOW_SOURCES[release['window_source']]}"
    yield "limits", f"{limits['max_loops']} loops, {limits['deadline_s']:g} s"
    for number, tool in enumerate(release["tools"]):
        yield "" if number else "tools", f"{tool['name']} ({tool['kind']}, {tool['effect']})"


def _instructions(definition: Mapping[str, Any]) -> str:
    said = definition["instructions"]
    return said if isinstance(said, str) else " ".join(part["text"] for part in said)


def _model(settings: Mapping[str, Any]) -> str:
    return f"{settings['model']} ({settings['provider']})"


def _row(one: Mapping[str, Any]) -> tuple[object, ...]:
    release = one["release"]
    tools = ", ".join(tool["name"] for tool in release["tools"])
    model, published = _model(release["definition"]["model"]), one["created_at"][:19]
    return one["release_no"], one["release_id"], published, model, release["context_window"], tools

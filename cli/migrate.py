"""`agentloom migrate`: brings the database to the schema of this code."""

import asyncio
from typing import Annotated

import typer

from cli.output import print_json, print_lines


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(migrate)


def migrate(
    search_attributes: Annotated[
        bool, typer.Option("--search-attributes", help="Also register our search attributes with Temporal.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Bring a database to the newest schema.

    It is the one at DATABASE_URL; `agentloom dev` does it by itself. Fine to repeat, and to run twice at once.
    """
    from settings import load_database_settings

    url = load_database_settings().database_url.get_secret_value()
    before, after = asyncio.run(_migrate(url))
    if search_attributes:
        asyncio.run(_register_search_attributes())
    if json:
        print_json({"before": before, "after": after})
    elif before == after:
        print_lines([f"The schema is at {after}, the newest."])
    else:
        print_lines([f"The schema went from {before or 'nothing'} to {after}."])


async def _migrate(url: str) -> tuple[str | None, str]:
    from cli.databases import check_known, check_reachable
    from storage.migrate import revision, upgrade

    await check_reachable(url, then="agentloom migrate")
    before, after = await revision(url)
    check_known(before)
    await upgrade(url)
    return before, after


async def _register_search_attributes() -> None:
    from temporalio.service import RPCError

    from cli.output import CommandError, ExitCode
    from settings import load_temporal_options
    from stack.temporal import register_search_attributes
    from workflows.connecting import connect

    options = load_temporal_options()
    try:
        await register_search_attributes(await connect(options))
    except (RPCError, RuntimeError):
        raise CommandError(
            "The search attributes could not be registered.",
            why="Nothing healthy answers at the Temporal address of the environment.",
            mend="Start that server or correct TEMPORAL_ADDRESS, then: agentloom migrate --search-attributes",
            exit_code=ExitCode.NOT_REACHABLE,
        ) from None

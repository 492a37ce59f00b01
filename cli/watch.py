"""`agentloom watch RUN`: shows what a Run does until it ends."""

from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated

import typer

from cli.ids import HIGHEST, id_of
from cli.output import print_json

if TYPE_CHECKING:
    from cli.client import Api


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(watch)


def watch(
    run: Annotated[str, typer.Argument(help="Id of the Run.", callback=id_of("run"))],
    after: Annotated[int, typer.Option(min=0, max=HIGHEST, help="Leave out events up to this run_seq.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print each event as a line of JSON.")] = False,
) -> int:
    """Follow a Run to its end; one that has ended is replayed.

    It begins with the first event, or behind --after. The exit code is the Run's: 0 if it succeeded, else 1.
    """
    from cli.client import call_api
    from cli.following import exit_code

    async def work(api: "Api") -> int:
        return exit_code(await (_events(api, run, after) if json else _lines(api, run, after)))

    return call_api(work)


async def _events(api: "Api", run: str, after: int) -> dict[str, object]:
    async with aclosing(api.events(run, after=after)) as events:
        async for event in events:
            print_json(event)
    return await api.run(run)


async def _lines(api: "Api", run: str, after: int) -> dict[str, object]:
    from cli.ask import say_outcome
    from cli.following import follow

    ended = await follow(api, run, after=after)
    say_outcome(ended, as_json=False)
    return ended

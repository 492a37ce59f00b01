"""`agentloom dev`: runs the whole stack until it is told to stop, and says where everything is."""

import asyncio
import signal
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.folders import named_path
from cli.output import note, print_json, print_lines, progress

DataDir = Annotated[
    Path, typer.Option(metavar="FOLDER", parser=named_path, help="Folder that keeps all data of the stack.")
]
HIGHEST_PORT = 65_535


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(dev)


def dev(
    data_dir: DataDir = Path(".agentloom"),
    api_port: Annotated[int, typer.Option(min=0, max=HIGHEST_PORT, help="Port of the API; 0 is any free one.")] = 8700,
    temporal_port: Annotated[
        int, typer.Option(min=0, max=HIGHEST_PORT, help="Port of Temporal; 0 is any free one.")
    ] = 7233,
    ui_port: Annotated[
        int, typer.Option(min=0, max=HIGHEST_PORT, help="Port of the Temporal UI; 0 is any free one.")
    ] = 8233,
    pg_port: Annotated[
        int, typer.Option(min=0, max=HIGHEST_PORT, help="Port of PostgreSQL; 0 is any free one.")
    ] = 5433,
    app_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            parser=named_path,
            help="Folder with Python tools, hooks and sources, appended to the import path.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one line of JSON when everything answers.")] = False,
) -> None:
    """Run the whole stack until Ctrl-C.

    That is PostgreSQL, Temporal, a worker and the API, under one parent. The other commands find it when they are
    started in the same folder. After a stop, and after a crash, it goes on with the data that it kept. With
    DATABASE_URL or TEMPORAL_ADDRESS set, those servers are used instead of own ones.
    """
    from stack.dev import DevOptions

    options = DevOptions(data_dir, api_port, temporal_port, ui_port, pg_port, app_dir)
    asyncio.run(_run(options, as_json=json))


def stop_signals() -> list[signal.Signals]:
    """What ends the stack in order: Ctrl-C, a wish of the system, and a closed terminal unless `nohup` goes before."""
    hang_up = [] if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else [signal.SIGHUP]
    return [signal.SIGINT, signal.SIGTERM, *hang_up]


async def _run(options: Any, *, as_json: bool) -> None:
    """Stopping is cancelling this task: once for an ordered stop, once more to kill what is left."""
    from stack.dev import running_stack

    task = asyncio.current_task()
    assert task is not None
    for number in stop_signals():
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    started = time.monotonic()
    try:
        async with AsyncExitStack() as resources:
            with progress("starting PostgreSQL, Temporal, worker and API"):
                stack = await resources.enter_async_context(running_stack(options, on_note=note))
            _say_ready(stack.description, options.data_dir, time.monotonic() - started, as_json=as_json)
            await asyncio.Event().wait()
    except asyncio.CancelledError:
        note("stopped")


def _say_ready(description: dict[str, Any], data_dir: Path, seconds: float, *, as_json: bool) -> None:
    if as_json:
        print_json(description)
        return
    ui = description["temporal_ui"] or "of the server in the environment"
    print_lines(
        (
            f"AgentLoom is ready ({seconds:.1f} s).",
            "",
            f"  API          {description['api']}",
            f"  Temporal UI  {ui}",
            f"  Temporal     {description['temporal']}",
            f"  API key      {description['api_key']}",
            f"  Data, logs   {data_dir}, {data_dir / 'logs'}",
            "",
            "Next, in another terminal: agentloom publish FILE      Stop: Ctrl-C",
        )
    )

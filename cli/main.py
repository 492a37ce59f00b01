"""The `agentloom` command: collects the commands and turns every expected failure into short lines and an exit code.

Each command lives in a module of its own with `register(app)`, which imports heavy things only inside the command.
"""

import importlib
import os
import sys

import typer

from cli.output import CommandError, ExitCode, print_error
from context.errors import AgentLoomError, ConfigurationInvalidError, RefusedError, UnavailableError

COMMAND_MODULES = (
    "dev",
    "demo",
    "doctor",
    "migrate",
    "publish",
    "ask",
    "watch",
    "show",
    "sessions",
    "keys",
    "completion",
    "docs",
)


def build_app() -> typer.Typer:
    """The command with all its subcommands."""
    app = typer.Typer(
        name="agentloom",
        help="AI agents whose work survives crashes and whose context can be trusted.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,  # it would print local variables, which may be secrets
        rich_markup_mode=None,
    )
    app.callback()(_root)
    for name in COMMAND_MODULES:
        importlib.import_module(f"cli.{name}").register(app)
    return app


def main() -> None:
    """Entry point of the console script. Ends the process."""
    code = run(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            code = code or ExitCode.ENDED_OTHERWISE
    # Left deliberately: at a normal interpreter exit the Temporal SDK's threads can abort the process.
    os._exit(code)


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code; expected failures are printed here."""
    try:
        outcome = build_app()(arguments, standalone_mode=False, prog_name="agentloom")
    except (KeyboardInterrupt, typer.Abort):
        return ExitCode.INTERRUPTED
    except BrokenPipeError:  # whoever read our output has seen enough
        return ExitCode.ENDED_OTHERWISE
    except SystemExit as ended:  # shell completion ends this way
        return ended.code if isinstance(ended.code, int) else ExitCode.USAGE
    except typer.TyperException as mistake:
        return _tell_usage(mistake)
    except AgentLoomError as error:
        return _tell(error)
    return outcome if isinstance(outcome, int) else ExitCode.DONE


def _root() -> None:
    """Collects the commands; does nothing itself."""


def _tell_usage(mistake: typer.TyperException) -> int:
    context = getattr(mistake, "ctx", None)
    path = context.command_path if context else "agentloom"
    message = mistake.format_message()
    if "\n" in message:  # a command without its arguments asks for its help
        sys.stderr.write(f"{message}\n")
    else:
        print_error(message, mend=f"{path} --help")
    return ExitCode.USAGE


def _tell(error: AgentLoomError) -> int:
    print_error(error.message, why=getattr(error, "why", ""), mend=getattr(error, "mend", ""))
    if isinstance(error, CommandError):
        return error.exit_code
    if error.code == ConfigurationInvalidError.code:
        return ExitCode.USAGE
    if error.code == UnavailableError.code:
        return ExitCode.NOT_REACHABLE
    return ExitCode.REFUSED if isinstance(error, RefusedError) else ExitCode.ENDED_OTHERWISE


if __name__ == "__main__":
    main()

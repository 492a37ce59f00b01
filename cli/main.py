"""The `agentloom` command: collects the commands and turns every expected failure into short lines and an exit code.

Each command lives in a module of its own with `register(app)`, which imports heavy things only inside the command.
"""

import errno
import importlib
import importlib.metadata
import io
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from cli.asked import STACK
from cli.folders import named_path
from cli.output import CommandError, ExitCode, print_error, print_lines
from context.errors import AgentLoomError, ConfigurationInvalidError, RefusedError, UnavailableError

COMMAND_MODULES = (
    "dev",
    "demo",
    "doctor",
    "migrate",
    "publish",
    "agents",
    "ask",
    "compact",
    "watch",
    "show",
    "verify",
    "sessions",
    "keys",
    "connections",
    "completion",
    "docs",
)

EPILOG = """\b
To begin, all in one folder, the first command in a terminal of its own:
  agentloom dev
  agentloom publish FILE
  agentloom ask --agent NAME "your question"

\b
A Session is one conversation with an agent; a Run is one question in it, with
everything done to answer it. `agentloom demo` shows it all without a file.
"""

UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
"""How writing to standard output fails where its reader is a file or a device."""


def build_app() -> typer.Typer:
    """The command with all its subcommands."""
    app = typer.Typer(
        name="agentloom",
        help="AI agents whose work survives crashes and whose context can be trusted.",
        epilog=EPILOG,
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
    code = run(sys.argv[1:]) if _prepare_streams() else ExitCode.ENDED_OTHERWISE
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:  # its reader went away, or `run` has said why nothing can be written
            code = code or ExitCode.ENDED_OTHERWISE
    # Left deliberately: at a normal interpreter exit the Temporal SDK's threads can abort the process.
    os._exit(code)


def _prepare_streams() -> bool:
    """Make the streams take any character; false, and said, if there is no standard output to write to."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (lasts as long as the process)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if sys.stdout is None:
        print_error("Standard output is closed.", mend="agentloom … > FILE")
        return False
    return True


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
    except OSError as error:
        return _tell_file(error)
    return outcome if isinstance(outcome, int) else ExitCode.DONE


def _tell_file(error: OSError) -> int:
    """A file, a folder or the output that the system refuses; any other failure of the system is none of a person's."""
    why = os.strerror(error.errno or 0)
    if isinstance(error.filename, str | Path):
        mend = f"ls -ld {error.filename}  (then mend its rights, or name another place)"
        print_error(f"{error.filename} can't be used.", why=why, mend=mend)
        return ExitCode.USAGE
    if error.errno not in UNWRITABLE:
        raise error
    print_error("The output can't be written.", why=why)
    return ExitCode.ENDED_OTHERWISE


def _say_version(wanted: bool) -> None:
    if wanted:
        print_lines([f"agentloom {importlib.metadata.version('agentloom')}"])
        raise typer.Exit


WITHOUT_API = {"dev": "--data-dir FOLDER", "doctor": "--data-dir FOLDER", "demo": "", "migrate": "", "completion": ""}
"""Commands that ask no API, and what they take instead of `--stack`."""


def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    stack: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            parser=named_path,
            help="Ask the stack on this data folder, whatever else the environment or the folder names.",
        ),
    ] = None,
) -> None:
    """Collects the commands; only notes which stack they are to ask."""
    command = context.invoked_subcommand or ""
    if stack is not None and command in WITHOUT_API:
        mend = f"agentloom {command} {WITHOUT_API[command]}".rstrip()
        raise CommandError(f"--stack means nothing to {command}, which asks no API.", mend=mend)
    STACK.set(stack)


def _tell_usage(mistake: typer.TyperException) -> int:
    context = getattr(mistake, "ctx", None)
    path = context.command_path if context else "agentloom"
    message = mistake.format_message().replace("Value error, ", "")  # pydantic's words, not ours
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

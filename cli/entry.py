"""What the console script calls.

Loading the command takes a moment, in which Ctrl-C would show a traceback of whatever was being imported. Until the
command can answer to it, it ends the process as the system does.
"""

import signal


def main() -> None:
    """Load the command and run it. Ends the process."""
    answer = signal.getsignal(signal.SIGINT)
    if answer is signal.default_int_handler:  # else it is ignored, as behind nohup or `&` in a script
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from cli import main as command

    signal.signal(signal.SIGINT, answer)
    command.main()

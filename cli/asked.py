"""Which stack the commands of this process ask, if the command line names one with `--stack`."""

from contextvars import ContextVar
from pathlib import Path

STACK: ContextVar[Path | None] = ContextVar("stack", default=None)
"""The data folder of the stack that is meant; None leaves it to the environment and the folder."""


def start_command(stack: Path) -> str:
    """What starts a stack on this data folder, beside any other: each port is one that is free."""
    return f"agentloom dev --data-dir {stack} --api-port 0 --temporal-port 0 --ui-port 0 --pg-port 0"

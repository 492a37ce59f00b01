"""Ports on the loopback address: finding a free one, and seeing that a wanted one is free."""

import asyncio
import socket

from stack.errors import WrongOptionError

LOOPBACK = "127.0.0.1"


def is_free(port: int) -> bool:
    """Whether a server could listen on this port of the loopback address now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def any_free_port() -> int:
    """A port that is free now, chosen by the kernel."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


async def wanted_port(port: int, *, option: str, patience_s: float = 3.0) -> int:
    """The port itself once it is free; any free one for 0. A predecessor that was just killed gets time to go.

    Raises:
        WrongOptionError: something else keeps listening on it.
    """
    if port == 0:
        return any_free_port()
    try:
        async with asyncio.timeout(patience_s):
            while not is_free(port):
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise WrongOptionError(
            f"Port {port} is in use.",
            why="Another program listens on it.",
            mend=f"Stop that program, or choose any free port: agentloom dev … {option} 0",
        ) from None
    return port


async def accepts_connections(port: int) -> bool:
    """Whether something listens on this port of the loopback address."""
    try:
        _, writer = await asyncio.open_connection(LOOPBACK, port)
    except OSError:
        return False
    writer.close()
    return True

"""One stack per data folder: a file lock that the kernel releases when its holder ends, however it ends."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stack.errors import WrongOptionError


@contextmanager
def locked(data_dir: Path) -> Iterator[None]:
    """Hold the folder for the length of the block.

    Raises:
        WrongOptionError: another stack holds it.
    """
    descriptor = os.open(data_dir / "dev.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(descriptor, 20).decode().strip() or "unknown"
        os.close(descriptor)
        raise WrongOptionError(
            f"A stack is running on {data_dir} already.",
            why=f"Its process id is {holder}.",
            mend="Use it as it is, or start another one: agentloom dev --data-dir OTHER"
            " --api-port 0 --temporal-port 0 --pg-port 0 --ui-port 0",
        ) from None
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)

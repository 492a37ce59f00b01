"""Tools of the agents under test, as users write them. Each call can leave a line in a file, so that tests can count.

`trace` is the path of that file; it is an argument, so that it works in whichever process the tool runs.
"""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any


def noted(trace: str, line: str) -> None:
    """Append one line; short appends are atomic."""
    with Path(trace).open("a") as file:
        file.write(f"{line}\n")


def traced(trace: Path) -> list[str]:
    """The lines so far."""
    return trace.read_text().splitlines() if trace.exists() else []


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def echo(text: str) -> str:
    """Say it again."""
    return text


def moody(n: int = 0, text: str = "") -> str | None:
    """Give nothing back, fail, give half of a surrogate pair, or say the text."""
    if n == 1:
        raise ValueError(text)
    return {0: None, 2: "temp \udcb0"}.get(n, text)


def look(key: str, trace: str) -> str:
    """Look something up."""
    noted(trace, key)
    return f"found {key}"


async def pause(seconds: float, text: str) -> str:
    """Take a while."""
    await asyncio.sleep(seconds)
    return text


def die(key: str, trace: str) -> str:
    """Take the whole process along."""
    noted(trace, key)
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


def book(key: str, trace: str) -> str:
    """Do something that must not be done twice."""
    noted(trace, key)
    return f"booked {key}"


def pay(key: str, trace: str, idempotency_key: str) -> str:
    """Do something that may be repeated under its key."""
    noted(trace, f"{key} {idempotency_key}")
    return f"paid {key}"


async def wait_for(path: str, trace: str) -> str:
    """Wait until a file exists."""
    noted(trace, "waiting")
    while not Path(path).exists():
        await asyncio.sleep(0.01)
    return "it is there"


def ignore_the_stop(seconds: float, trace: str) -> str:
    """Never listen to a stop."""
    noted(trace, "began")
    time.sleep(seconds)
    noted(trace, "ended")
    return "done anyway"


def repeat(text: str, times: int) -> str:
    """Say it many times."""
    return text * times


def read(path: str) -> str:
    """Say what stands in a file."""
    return Path(path).read_text()


def draw(dots: int) -> dict[str, Any]:
    """Draw two pictures."""
    picture = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * dots
    return {"title": "dots", "pictures": [picture, picture[::-1]]}


def nothing() -> None:
    """Give nothing back."""


def now() -> str:
    """Tell the time."""
    return "noon"


def keep(text: str, work_dir: Path) -> str:
    """Keep a text in the Run's own folder, and say what is kept there."""
    (work_dir / f"{len(text)}.txt").write_text(text)
    return " ".join(sorted(path.read_text() for path in work_dir.iterdir()))


def fail() -> str:
    """Fail without a word."""
    raise ValueError


def fail_loudly(words: str) -> str:
    """Fail with these words."""
    raise ValueError(words)


def say_aloud(words: str) -> str:
    """Say these words in every way but as a result."""
    print(words, flush=True)
    os.write(2, words.encode())
    logging.getLogger("their.tool").error(words)
    logging.getLogger("activities.theirs").info("said", exc_info=ValueError(words))
    thread = threading.Thread(target=fail_loudly, args=(words,))
    thread.start()
    thread.join()
    subprocess.run([sys.executable, "-I", "-S", "-c", "import sys; print(sys.argv[1])", words], check=True)
    return "said"


async def say_aloud_async(words: str) -> str:
    """Say these words beside the event loop's back."""
    print(words, file=sys.stderr, flush=True)
    asyncio.get_running_loop().call_soon(fail_loudly, words)
    await asyncio.sleep(0.05)
    return "said"


def half() -> str:
    """Give half of a surrogate pair."""
    return "temp \udcb0"


async def fetch_mark(number: int, gate: str = "", trace: str = "") -> str:
    """Give a mark that no argument holds, with some words around it; wait for the gate first if there is one."""
    if gate:
        noted(trace, "waiting")
    while gate and not Path(gate).exists():
        await asyncio.sleep(0.01)
    return f"M{number:04} " + "found " * 60

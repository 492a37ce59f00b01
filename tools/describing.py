"""Python tools described by processes of their own, which import the files as they are now, and end (SPEC T1).

The process that publishes imports nothing of the user's: what it imported once it could not see change. Each module is
imported in a fork, so that none finds what another one left, and nothing that importing does outlasts the answer.
"""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from context.errors import ConfigurationInvalidError
from tools.python_code import Sources, code_of, load_function, parts_of, sources_of
from tools.signatures import describe

IMPORT_LIMIT_S = 60
"""How long importing one module may take, and how long a process may outlive whoever asked it."""
MOST_KNOWN = 1_000
MAX_LINE = 8 << 20  # bytes of one description
BEGIN = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from tools.describing import main; main()"
"""Looks for modules where the process that asks does."""


@dataclass(frozen=True)
class PythonDescription:
    """What a function says about itself, and the hashes of the source files that it comes from."""

    text: str
    schema: dict[str, Any]
    code: dict[str, str]


def description_of(entry: str) -> PythonDescription:
    """The function of an entry, imported here. Raises ConfigurationInvalidError."""
    described = describe(load_function(entry), entry=entry)
    return PythonDescription(described.text, described.schema, code_of(entry))


class Descriptions:
    """What was described before, by entry: it is not imported again while its sources are what they were."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[Sources, PythonDescription]] = OrderedDict()

    async def of(self, entries: Sequence[str]) -> dict[str, PythonDescription]:
        """The functions as their files are now, by entry.

        Raises ConfigurationInvalidError for the first that can't be.
        """
        wanted = sorted(set(entries), key=parts_of)
        found = {entry: known for entry in wanted if (known := await asyncio.to_thread(self._unchanged, entry))}
        for entry, (sources, description) in (await _asked([one for one in wanted if one not in found])).items():
            self._known[entry] = (sources, description)
            found[entry] = description
        while len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)
        return found

    def _unchanged(self, entry: str) -> PythonDescription | None:
        sources, description = self._known.get(entry, (None, None))
        return description if sources is not None and sources.are_unchanged() else None


async def _asked(wanted: Sequence[str]) -> "dict[str, tuple[Sources, PythonDescription]]":
    if not wanted:
        return {}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-c", BEGIN, json.dumps(_path())),
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        limit=MAX_LINE,
        start_new_session=True,
    )
    try:
        return await _answers(process, wanted)
    finally:
        await _ended(process)


def _path() -> list[str]:
    """Where this process looks for modules, in its order."""
    return [os.path.abspath(folder) for folder in sys.path]


async def _answers(process: Process, wanted: Sequence[str]) -> dict[str, tuple[Sources, PythonDescription]]:
    assert process.stdin is not None
    process.stdin.write(json.dumps(wanted).encode())
    process.stdin.close()
    return {entry: await _answer(process, entry) for entry in wanted}


async def _answer(process: Process, entry: str) -> tuple[Sources, PythonDescription]:
    assert process.stdout is not None
    module_name, _ = parts_of(entry)
    try:
        async with asyncio.timeout(IMPORT_LIMIT_S):
            line = await process.stdout.readline()
    except TimeoutError:
        sentence = f"Importing the Python module '{module_name}' took more than {IMPORT_LIMIT_S} seconds."
        raise ConfigurationInvalidError(sentence) from None
    except ValueError:
        raise ConfigurationInvalidError(f"The Python tool '{entry}' says more about itself than fits.") from None
    if not line:
        raise ConfigurationInvalidError(f"Importing the Python module '{module_name}' ended its process.")
    answer = json.loads(line)
    if "refused" in answer:
        raise ConfigurationInvalidError(answer["refused"])
    return Sources(**answer["sources"]), PythonDescription(**answer["description"])


async def _ended(process: Process) -> None:
    """End what is left of it, with whatever the user's modules started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


# --- in the process of its own ---------------------------------------------------------------------------------------


def main() -> None:
    """Answer on standard output, one line of JSON for each entry; what the modules print goes nowhere."""
    said, nothing = os.dup(1), os.open(os.devnull, os.O_RDWR)
    wanted: list[str] = json.load(sys.stdin)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    for _, entries in groupby(wanted, key=lambda entry: parts_of(entry)[0]):
        if not _told_by_a_fork(list(entries), said):
            break  # whoever reads finds the end where the next answer should be


def _told_by_a_fork(entries: Sequence[str], said: int) -> bool:
    """Whether a process of its own has described the entries of one module."""
    fork = os.fork()
    if fork:
        return os.waitpid(fork, 0)[1] == 0
    signal.alarm(IMPORT_LIMIT_S * 2)
    with os.fdopen(said, "w") as lines:
        for entry in entries:
            lines.write(json.dumps(_told(entry)) + "\n")
            lines.flush()
    os._exit(0)


def _told(entry: str) -> dict[str, Any]:
    try:
        description = description_of(entry)
        return {"description": asdict(description), "sources": asdict(sources_of(entry))}
    except ConfigurationInvalidError as error:
        return {"refused": error.message}

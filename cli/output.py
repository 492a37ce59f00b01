"""What every command says and how: data on standard output, all else on standard error, exit codes, short errors.

A person's mistake is three lines at most: what, why, the next command. Colours and moving progress appear only on a
terminal and never with NO_COLOR.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from context.errors import AgentLoomError

PIPE_WIDTH = 240
WORD_WIDTH = 48  # an id with what stands before it; a longer word is a text of a language without blanks
SENTENCE_WIDTH = 24  # what a column of texts can be folded to
# What terminals obey, beside tabs and line ends: control characters of both sets, and those that turn the direction.
_CONTROLS = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n"} | {0x7F: 0x2421}
_UNSEEN = (*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_SHOWN = _CONTROLS | dict.fromkeys(_UNSEEN, 0xFFFD)
_IN_JSON = {code: f"\\u{code:04x}" for code in (0x7F, *_UNSEEN)}


class ExitCode(IntEnum):
    """How a command ended (SPEC 17)."""

    DONE = 0
    ENDED_OTHERWISE = 1
    """The Run ended in another way than by success."""
    USAGE = 2
    NOT_REACHABLE = 3
    REFUSED = 4
    INTERRUPTED = 130


class CommandError(AgentLoomError):
    """A command can't do what was asked: what happened, why, and the command that mends it."""

    def __init__(self, message: str, *, why: str = "", mend: str = "", exit_code: ExitCode = ExitCode.USAGE) -> None:
        super().__init__(message)
        self.why = why
        self.mend = mend
        self.exit_code = exit_code


def visible(text: str) -> str:
    """The text as a terminal can only show it: one sign for each character that it would obey.

    Answers, tool names and titles hold what models, tools and other people wrote.
    """
    return text.translate(_SHOWN)


def data_console() -> Console:
    """Standard output, for tables; wide where it is no terminal, so that lines stay whole for other programs."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)


def note_console() -> Console:
    """Standard error, for progress and notes."""
    return Console(stderr=True, highlight=False)


def print_json(value: Any) -> None:
    """One line of JSON on standard output, for programs."""
    escaped = sys.stdout.encoding.lower() not in ("utf-8", "utf8")  # what can't be encoded is still JSON then
    sys.stdout.write(json.dumps(value, ensure_ascii=escaped).translate(_IN_JSON) + "\n")
    sys.stdout.flush()


def print_bytes(body: bytes) -> None:
    """Bytes on standard output as they are, whatever its encoding, and a line end."""
    sys.stdout.flush()
    sys.stdout.buffer.write(body + b"\n")
    sys.stdout.flush()


def print_lines(lines: Iterable[str]) -> None:
    """Plain text on standard output: exactly as given to other programs, visibly to a terminal."""
    shown = visible if sys.stdout.isatty() else str
    for line in lines:
        sys.stdout.write(f"{shown(line)}\n")
    sys.stdout.flush()


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """A table on standard output, or a few lines for each row where the terminal is too narrow for its ids.

    Cells are plain text, in which brackets are no markup, or styled text.
    """
    cells = [[_inert(cell if isinstance(cell, Text) else Text(str(cell))) for cell in row] for row in rows]
    console = data_console()
    if title:
        console.print(Text(visible(title), style="italic"))
    if _narrowest(columns, cells) <= console.width:
        console.print(_table(columns, cells))
        return
    wide = max(len(column) for column in columns)
    for number, row in enumerate(cells):
        if number:
            console.print()
        for name, cell in zip(columns, row, strict=True):
            if cell.plain:
                console.print(Text(f"{name:<{wide}}  ").append_text(cell), soft_wrap=True)


def _table(columns: Sequence[str], rows: Sequence[Sequence[Text]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", show_header=any(columns))
    for place, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=_are_words(rows, place))
    for row in rows:
        table.add_row(*row)
    return table


def _narrowest(columns: Sequence[str], rows: Sequence[Sequence[Text]]) -> int:
    """How wide a table has to be: ids and numbers stay whole, so that they can be copied; texts may be folded."""
    widths = [max([len(column), *(row[place].cell_len for row in rows)]) for place, column in enumerate(columns)]
    least = (width if _are_words(rows, place) else min(width, SENTENCE_WIDTH) for place, width in enumerate(widths))
    return sum(least) + 2 * (len(columns) - 1)


def _are_words(rows: Sequence[Sequence[Text]], place: int) -> bool:
    """Whether every cell of a column is one word, such as an id."""
    return not any(" " in row[place].plain or row[place].cell_len > WORD_WIDTH for row in rows)


def print_rich(line: Text) -> None:
    """One line with styles of its own on standard output; they show on a terminal only."""
    data_console().print(_inert(line), soft_wrap=True)


def _inert(line: Text) -> Text:
    """The same styles at the same places."""
    shown = line.copy()
    shown.plain = visible(line.plain)
    return shown


def note(text: str) -> None:
    """One line for a person, on standard error."""
    note_console().print(escape(visible(text)), soft_wrap=True)


@contextmanager
def progress(text: str) -> Iterator[None]:
    """A moving line on standard error while the block runs; nothing where standard error is no terminal."""
    console = note_console()
    if not console.is_terminal:
        yield
        return
    with console.status(escape(visible(text))):
        yield


def print_error(what: str, *, why: str = "", mend: str = "") -> None:
    """An error in three lines at most, on standard error."""
    console = note_console()
    console.print(f"[bold red]error:[/] {escape(_whole_line(what))}", soft_wrap=True)
    if why:
        console.print(f"  why:  {escape(_whole_line(why))}", soft_wrap=True)
    if mend:
        console.print(f"  next: {escape(_whole_line(mend))}", soft_wrap=True)


def one_line(text: str, *, most: int = 80) -> str:
    """The beginning of a text, on one line."""
    words = " ".join(text.split())
    return words if len(words) <= most else f"{words[: most - 1]}…"


def _whole_line(text: str) -> str:
    return visible(" ".join(text.split()))

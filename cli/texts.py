"""Where the text of `ask`, `say` and `resume` comes from: the argument, a file, or standard input."""

import sys
from pathlib import Path

from cli.output import CommandError
from context.inputs import MAX_CHARS

_UTF8_MEND = "iconv -t UTF-8 < FILE | agentloom … -   (or: use a UTF-8 locale)"


def given_text(argument: str | None, file: Path | None) -> str | None:
    """The text, or None if there is none; `-` stands for standard input.

    Raises CommandError if both an argument and a file are given, or the text can't be read.
    """
    if argument is not None and file is not None:
        raise CommandError("Give the text as an argument or as a file, not both.")
    if file is not None and str(file) != "-":
        return _from_file(file)
    if argument == "-" or file is not None:
        return _from_input()
    return None if argument is None else _utf8(argument)


def needed_text(argument: str | None, file: Path | None, *, command: str) -> str:
    """The text, from a redirected standard input if nothing else is given. Raises CommandError if there is none."""
    text = given_text(argument, file)
    if text is None and sys.stdin is not None and not sys.stdin.isatty():
        text = _from_input()
    if text is None or not text.strip():
        raise CommandError("There is no text to send.", mend=f'agentloom {command} … "your text"')
    return text


def _utf8(text: str) -> str:
    """The text; bytes that were no UTF-8 came as lone surrogates, which no request can carry."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise CommandError(
            "The text is not UTF-8.", why="It holds bytes of another encoding.", mend=_UTF8_MEND
        ) from None
    return text


def _short(text: str) -> str:
    """The text; of one that is too long, such as a device without an end, only so much has been read."""
    if len(text) > MAX_CHARS:
        raise CommandError(f"The text is longer than {MAX_CHARS} characters.", why="No input may be longer.")
    return text


def _from_file(file: Path) -> str:
    try:
        with file.open(encoding="utf-8") as opened:
            return _short(opened.read(MAX_CHARS + 1))
    except OSError as error:
        raise CommandError(f"{file} can't be read.", why=error.strerror or "") from None
    except UnicodeDecodeError:
        raise CommandError(f"{file} is not UTF-8 text.") from None


def _from_input() -> str:
    if sys.stdin is None:
        raise CommandError("Standard input is closed.")
    try:
        return _utf8(_short(sys.stdin.read(MAX_CHARS + 1)))
    except UnicodeDecodeError:
        raise CommandError("Standard input is not UTF-8 text.") from None

"""What reaches a terminal: texts of models, tools and titles are shown and never obeyed (SPEC 17, Y)."""

import json
import os
import pty
import subprocess
import sys

import pytest

from cli.output import print_json, print_lines, print_table, visible

HOSTILE = "a\x1b]52;c;cm0=\x07b\x1b[2Jc\rd\x9b31me\x7ff\u202eg"
PRINTING = f"""
from rich.text import Text
from cli.output import note, print_error, print_json, print_lines, print_rich, print_table
hostile = {HOSTILE!r}
print_lines([hostile])
print_table(["one", "two"], [[hostile, Text(hostile)]], title=hostile)
print_rich(Text(hostile))
print_json({{"text": hostile}})
note(hostile)
print_error(hostile, why=hostile, mend=hostile)
"""
OBEYED = ["\x1b]", "\x1b[2J", "\x07", "\x9b", "\x7f", "\u202e", "c\rd"]


def said_on_a_terminal(script: str) -> str:
    """What a terminal gets as standard output and error of a script."""
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", script], stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL) as it:
        os.close(theirs)
        said = b""
        while piece := _read(ours):
            said += piece
        os.close(ours)
        assert it.wait(timeout=30) == 0, said
    return said.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # how Linux says that nobody writes to it any more
        return b""


def test_a_terminal_is_given_nothing_to_obey() -> None:
    """SPEC 17: whichever way a text is printed, styles of our own are all that it acts on."""
    said = said_on_a_terminal(PRINTING)
    assert [sign for sign in OBEYED if sign in said] == []
    assert said.count("␛[2J") >= 6


def test_a_pipe_gets_an_answer_exactly_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """SPEC 17: other programs read it."""
    print_lines([HOSTILE])
    assert capsys.readouterr().out == f"{HOSTILE}\n"


def test_json_keeps_its_value(capsys: pytest.CaptureFixture[str]) -> None:
    """SPEC 17: what could be obeyed is escaped, as JSON may be."""
    print_json({"text": HOSTILE, "答": "é"})
    out = capsys.readouterr().out
    assert json.loads(out) == {"text": HOSTILE, "答": "é"}
    assert [sign for sign in OBEYED if sign in out] == []
    assert '"答": "é"' in out


def test_a_text_of_ordinary_characters_stays_as_it_is() -> None:
    """SPEC 17."""
    text = "tabs\tand\nlines, Grüße, 日本語, 👩‍👩‍👧, עברית"
    assert visible(text) == text


WIDE = """
import os
from cli.output import print_table
os.environ["COLUMNS"] = "{width}"
ids = [str(digit) * 36 for digit in range(2)]
print_table(["session", "active run", "title"], [[*ids, "a title of a few words"], [*ids, "标题" * 20]])
"""


@pytest.mark.parametrize("width", [30, 60, 80, 120])
def test_an_id_is_never_torn_however_narrow_the_terminal(width: int) -> None:
    """SPEC 17: it is there to be copied; what does not fit side by side stands one below the other."""
    lines = said_on_a_terminal(WIDE.format(width=width)).splitlines()
    for digit in ("0", "1"):
        assert [digit * 36 in line for line in lines].count(True) == 2
    assert any("active run" in line for line in lines)
    assert ("0" * 36 in lines[1] and "1" * 36 in lines[1]) is (width == 120)


def test_other_programs_get_a_row_as_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """SPEC 17: long titles are folded and tear no row apart."""
    print_table(["session", "title"], [["0" * 36, "标题" * 200]])
    assert len(capsys.readouterr().out.splitlines()) <= 6

"""How the output of a stdio server is cut into lines (SPEC T1, T9; decision 0124)."""

import json
import random

import anyio
import pytest
from anyio.abc import ObjectReceiveStream

from tools import mcp_streams
from tools.mcp_streams import WholeLines


class Pieces(ObjectReceiveStream[bytes]):
    """Bytes as they came from a pipe."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    async def receive(self) -> bytes:
        if not self._pieces:
            raise anyio.EndOfStream
        return self._pieces.pop(0)

    async def aclose(self) -> None:
        """There is nothing to close."""


def cut(body: bytes, seed: int) -> list[bytes]:
    """The same bytes in pieces of any size."""
    chance, place, pieces = random.Random(seed), 0, []
    while place < len(body):
        end = place + chance.randint(1, 60)
        pieces.append(body[place:end])
        place = end
    return pieces


async def read(pieces: list[bytes]) -> list[str]:
    return [text async for text in WholeLines(Pieces(pieces), errors="surrogateescape")]


@pytest.mark.parametrize("seed", range(20))
async def test_what_is_given_are_whole_lines_wherever_pieces_are_cut(seed: int) -> None:
    """SPEC T1: so that nobody has to look at the beginning of a line again; characters of several bytes included."""
    lines = ["\u4f60\u597d", "", "{}", "z" * 500, "\U0001f642" * 30, "caf\udce9"]
    body = "".join(f"{line}\n" for line in lines).encode(errors="surrogateescape")
    given = await read(cut(body + b"no end", seed))
    assert all(text.endswith("\n") for text in given)
    assert "".join(given).split("\n")[:-1] == lines


@pytest.mark.parametrize("seed", range(20))
async def test_a_line_that_is_too_long_is_given_up_and_the_next_one_taken(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC T9: its call gets an error in its place, and nothing of it is left."""
    monkeypatch.setattr(mcp_streams, "MAX_LINE_BYTES", 1_000)
    long = json.dumps({"jsonrpc": "2.0", "id": 7, "result": "z" * 5_000})
    given = await read(cut(f"first\n{long}\nlast\n".encode(), seed))
    lines = [line for line in "".join(given).split("\n") if line]
    assert (lines[0], lines[-1], len(lines)) == ("first", "last", 3)
    assert json.loads(lines[1])["id"] == 7
    assert "1000 bytes" in json.loads(lines[1])["error"]["message"]

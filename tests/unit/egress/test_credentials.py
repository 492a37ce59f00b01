"""Known credentials disappear from what comes back."""

import json
import time

import pytest

from egress.credentials import REMOVED, Credentials

KEY = 'sk-live/abc+"def'


def test_a_credential_is_replaced_wherever_it_stands() -> None:
    """SPEC L6."""
    known = Credentials([KEY])
    assert known.removed_from(f"a {KEY} b {KEY}") == f"a {REMOVED} b {REMOVED}"
    assert known.removed_from_bytes(f"x{KEY}".encode()) == f"x{REMOVED}".encode()


def test_a_credential_is_found_as_json_text_escapes_it() -> None:
    """SPEC L6: raw answers are JSON."""
    written = json.dumps({"echo": KEY}).encode()
    assert json.loads(Credentials([KEY]).removed_from_bytes(written)) == {"echo": REMOVED}


def test_a_credential_that_contains_another_is_replaced_whole() -> None:
    """SPEC Y3."""
    assert Credentials(["secret-one", "secret-one-two"]).removed_from("secret-one-two") == REMOVED


def test_a_dummy_key_leaves_ordinary_words_alone() -> None:
    """SPEC L6: rebuilt requests stay exact, so nothing else is touched."""
    assert Credentials(["EMPTY", "none"]).removed_from("EMPTY means none") == "EMPTY means none"


@pytest.mark.parametrize(
    "spelt",
    [
        r"\u0073k-live/abc+\"def",
        r"sk-live\/abc+\u0022def",
        r"sk\u002Dlive\u002fabc\u002B\"def",
        r"\u0073\u006b-live/abc+\"def",
    ],
)
def test_a_credential_is_found_however_json_spells_it(spelt: str) -> None:
    """SPEC L6, Y3: each character may stand as its number, in either case; what is stored is read by others later."""
    written = f'{{"echo": "{spelt} and \\u0041"}}'
    assert json.loads(written)["echo"] == f"{KEY} and A"
    known = Credentials([KEY])
    assert known.occur_in(written)
    assert json.loads(known.removed_from(written)) == {"echo": f"{REMOVED} and A"}
    assert json.loads(known.removed_from_bytes(written.encode())) == {"echo": f"{REMOVED} and A"}


def test_a_credential_is_found_in_json_within_json() -> None:
    """SPEC L6: as in the arguments of a call, or in a tool's own answer that is quoted by another."""
    written = json.dumps({"outer": json.dumps({"echo": KEY.replace("-", "MINUS")})}).replace("MINUS", r"\\u002d")
    assert json.loads(json.loads(written)["outer"]) == {"echo": KEY}
    clean = json.loads(Credentials([KEY]).removed_from(written))
    assert json.loads(clean["outer"]) == {"echo": REMOVED}


def test_a_credential_of_any_alphabet_is_found_however_json_spells_it() -> None:
    """SPEC L6: the secret of a tool is any text."""
    key = "gehe\u00edm-\U0001f511-schl\u00fcssel"
    for written in (json.dumps({"k": key}), json.dumps({"k": key}, ensure_ascii=False)):
        clean = Credentials([key]).removed_from_bytes(written.replace("-", r"\u002d").encode())
        assert json.loads(clean) == {"k": REMOVED}


def test_text_full_of_escapes_is_searched_in_no_time() -> None:
    """SPEC Y3: a result of megabytes holds up no worker."""
    body = json.dumps({"t": "\u4f60\u597d <a&b> sk-live/ab caf\u00e9 " * 100_000}).replace("<", "\\u003c").encode()
    began = time.process_time()
    assert Credentials([KEY, "another-key-of-some-length"]).removed_from_bytes(body) == body
    assert time.process_time() - began < 2

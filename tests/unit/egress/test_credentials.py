"""Known credentials disappear from what comes back."""

import json

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

"""Secrets taken out of what a tool answered, wherever the answer has them."""

from tools.outcomes import without_credentials
from tools.port import Artifact, ToolOutcome

SECRET = "Sk-test-4711-abcdef"


def test_a_secret_in_any_part_of_an_outcome_is_replaced() -> None:
    """SPEC Y3, L6: in words, bytes, names and media types alike, also where these were put into small letters."""
    artifact = Artifact(f"image/{SECRET}", SECRET.encode(), SECRET)
    outcome = ToolOutcome(
        "ok",
        f"{SECRET} {SECRET.lower()}",
        SECRET.encode(),
        (artifact,),
        ("kept",),
        raw_media_type=f"text/{SECRET.lower()}",
    )
    clean = without_credentials(outcome, SECRET)
    assert SECRET.lower() not in repr(clean).lower()
    assert clean.transforms == ("kept", "credential_removed")


def test_an_outcome_without_the_secret_stays_the_same() -> None:
    """SPEC A9: nothing is changed that need not be."""
    outcome = ToolOutcome("ok", "fine", b"fine", (Artifact("image/png", b"x", "x.png"),))
    assert without_credentials(outcome, SECRET) is outcome
    assert without_credentials(outcome, None) is outcome


def test_bytes_in_which_a_secret_cannot_be_found_are_not_kept() -> None:
    """SPEC Y3, L6: an answer in UTF-16 is read, and its secret replaced; its bytes would have it still."""
    clean = without_credentials(ToolOutcome("ok", f"key {SECRET}", f"key {SECRET}".encode("utf-16")), SECRET)
    assert (clean.content, clean.raw) == ("key [credential removed]", b"key [credential removed]")


def test_secrets_of_a_release_are_replaced_beside_the_calls_own() -> None:
    """SPEC L6: once for the call, once for its release; the change is told once."""
    first = without_credentials(ToolOutcome("ok", f"{SECRET} other-secret", b"x"), SECRET)
    second = without_credentials(first, SECRET, "other-secret")
    assert second.content == "[credential removed] [credential removed]"
    assert second.transforms == ("credential_removed",)

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

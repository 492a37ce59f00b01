"""What `agentloom show` makes of what the API says (SPEC 17)."""

from typing import Any

import pytest

from cli.show import failures, tries

Json = dict[str, Any]
DONE: Json = {"state": "succeeded", "error": None, "usage": None}
LOST: Json = {"state": "superseded", "error": None, "usage": {"input_tokens": 40}}
UNSENT: Json = LOST | {"usage": None}
BUSY: Json = {"state": "failed", "error": {"reason": "busy", "status": 429}, "usage": None}


def call(*attempts: Json, purpose: str = "business", state: str = "accepted") -> Json:
    return {
        "purpose": purpose,
        "state": state,
        "attempts": [one | {"attempt_no": n} for n, one in enumerate(attempts, 1)],
    }


@pytest.mark.parametrize(
    ("operation", "made", "said"),
    [
        (call(DONE), 1, ""),
        (call(LOST, BUSY, DONE), 3, "lost, busy 429"),
        (call(LOST, LOST, state="cancelled"), 2, "lost, cut off"),
        (call(UNSENT, DONE), 1, "never sent"),
        (call(UNSENT, purpose="tool", state="unknown"), 1, "cut off"),
        (call(UNSENT, DONE, purpose="tool"), 2, "lost"),
        (call({"state": "calling", "error": None, "usage": None}, state="calling"), 1, ""),
    ],
)
def test_tries_that_nobody_reported_on_are_told(operation: Json, made: int, said: str) -> None:
    """17, L5, R2: those that died with their worker, those that the end of their Run cut off, and what was not sent."""
    assert (tries(operation), failures(operation)) == (made, said)


def test_a_call_that_was_only_closed_was_not_made_again() -> None:
    """17, T4: an interrupted side effect is unknown, and not repeated."""
    closed: Json = {"state": "succeeded", "error": {"reason": "interrupted", "status": None}, "usage": None}
    operation = call(UNSENT, closed, purpose="tool", state="unknown")
    assert (tries(operation), failures(operation)) == (1, "interrupted")

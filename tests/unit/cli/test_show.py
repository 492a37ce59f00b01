"""What `agentloom show` makes of what the API says (SPEC 17)."""

from typing import Any

from cli.show import failures, tries


def test_a_call_that_was_only_closed_was_not_made_again() -> None:
    """17, T4: an interrupted side effect is unknown, and not repeated."""
    attempts: list[dict[str, Any]] = [
        {"attempt_no": 1, "error": None},
        {"attempt_no": 2, "error": {"code": "TOOL_UNAVAILABLE", "reason": "interrupted", "status": None}},
    ]
    assert (tries(attempts), failures(attempts)) == (1, "interrupted")
    assert tries([{"attempt_no": 1, "error": {"reason": "timeout"}}, {"attempt_no": 2, "error": None}]) == 2

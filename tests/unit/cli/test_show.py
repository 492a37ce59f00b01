"""How the lines of `agentloom show` are made."""

from cli.show import failures


def test_why_tries_failed_stands_in_their_order() -> None:
    """SPEC 17, T4: reasons and HTTP statuses, nothing for a try that succeeded or is under way."""
    busy = {"error": {"code": "TOOL_UNAVAILABLE", "reason": "busy", "status": 429}}
    late = {"error": {"code": "TOOL_UNAVAILABLE", "reason": "timeout", "status": 0}}
    assert failures([busy, {"error": None}, late]) == "busy 429, timeout"
    assert failures([{"error": None}]) == ""

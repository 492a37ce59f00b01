"""A Run's events as lines for a person."""

from typing import Any, cast

import pytest

from cli.following import became, describe, ending, exit_code, figures, gauge, left_over, next_after


@pytest.mark.parametrize(
    ("event", "line"),
    [
        ({"type": "run_started", "execution_no": 1}, "started"),
        ({"type": "run_started", "execution_no": 2}, "started again (execution 2)"),
        (
            {"type": "context_build", "loop": 4, "estimated": 6_160, "input_limit": 8_000},
            "loop 4: request of [###############.....] 6160/8000 tokens (77%)",
        ),
        ({"type": "tools_started", "loop": 4, "count": 2}, "loop 4: tools read_file, list_files"),
        ({"type": "run_ended", "status": "exhausted", "end_reason": "loops"}, "ended: loops"),
        ({"type": "input_accepted"}, None),
        ({"type": "something_of_a_later_version"}, None),
    ],
)
def test_each_event_becomes_one_short_line_or_none(event: dict[str, Any], line: str | None) -> None:
    """17: progress for people; an event of a later version disturbs nobody."""
    names = ["read_file", "list_files"] if event["type"] == "tools_started" else []
    assert describe(event, names) == line


@pytest.mark.parametrize(
    ("used", "limit", "bar"),
    [(0, 10, "[....]"), (5, 10, "[##..]"), (10, 10, "[####]"), (25, 10, "[####]"), (1, 0, "[####]")],
)
def test_a_gauge_never_leaves_its_frame(used: int, limit: int, bar: str) -> None:
    """17: a request over its budget, or a budget of nothing, is a full bar."""
    assert gauge(used, limit, width=4).startswith(bar)


@pytest.mark.parametrize(
    ("status", "code", "helps"),
    [
        ("succeeded", 0, None),
        ("failed", 1, "agentloom resume r"),
        ("stopped", 1, "agentloom resume r"),
        ("exhausted", 1, "agentloom ask --session s"),
        ("timed_out", 1, "agentloom ask --session s"),
    ],
)
def test_the_exit_code_and_the_next_command_follow_from_how_the_run_ended(
    status: str, code: int, helps: str | None
) -> None:
    """17: 0 done, 1 the Run ended otherwise; only failed and stopped Runs can be resumed (S9)."""
    run = {"run_id": "r", "session_id": "s", "status": status, "end_reason": "x", "error": None}
    assert (exit_code(run), next_after(run)) == (code, helps)


@pytest.mark.parametrize(
    ("reason", "helps"),
    [
        ("model_auth", "agentloom resume r"),
        ("model_connection_unusable", "agentloom resume r"),
        ("model_redirected", "agentloom publish FILE"),
        ("model_not_found", "agentloom publish FILE"),
        ("model_address_refused", "agentloom publish FILE"),
    ],
)
def test_a_cause_that_is_frozen_into_the_release_is_mended_by_publishing(reason: str, helps: str) -> None:
    """17, S9: a resume keeps the release, so it would end the same way."""
    assert next_after({"run_id": "r", "status": "failed", "end_reason": reason}) == helps


def test_a_run_that_did_not_fit_is_looked_into_and_not_resumed() -> None:
    """17, S9, E: the release and with it the window stay as they are; the manifest says what filled it."""
    run = {"run_id": "r", "status": "failed", "end_reason": "context_too_large"}
    assert next_after(run) == "agentloom show manifest r"


def test_an_end_without_success_says_why() -> None:
    """17."""
    run = {"run_id": "r", "status": "failed", "end_reason": "model_auth"}
    assert ending(run | {"error": None}) == "run r failed (model_auth)"
    error = {"code": "MODEL_FAILED", "message": "The model did not answer."}
    assert ending(run | {"error": error}) == "run r failed: The model did not answer. (MODEL_FAILED)"


def test_the_numbers_of_an_error_stand_beside_it() -> None:
    """17, E: none for an end without an error or for an error without numbers."""
    error = {"code": "C", "message": "m", "numbers": {"phase": "preparing", "estimated_input_tokens": 9}}
    assert figures({"error": error}) == "estimated_input_tokens 9, phase preparing"
    assert figures({"error": error | {"numbers": {}}}) == figures({"error": None}) == ""


class Inputs:
    """An API that knows the inputs of one Run."""

    def __init__(self, deliveries: list[dict[str, Any]]) -> None:
        self._deliveries = deliveries

    async def pages(self, path: str, **query: Any) -> list[dict[str, Any]]:
        return self._deliveries


def delivery(number: int, state: str, *, seq: int = 2, after: int | None = None) -> dict[str, Any]:
    """One delivery of an input, by numbers instead of ids."""
    return {"delivery_id": number, "previous_delivery_id": after, "input_seq": seq, "state": state}


async def test_an_input_that_a_resume_took_along_was_not_too_late() -> None:
    """17, S6: the row of before the stop stays, and says no more that the input waits."""
    found = [delivery(1, "carried"), delivery(2, "delivered", after=1), delivery(3, "carried", seq=3)]
    told = await left_over(cast(Any, Inputs(found)), "r")
    assert told == "input 3 came too late for this run and will be in the next one"
    assert [became(one, found) for one in found[:2]] == [
        "waited, and went on with the run when it was resumed",
        "reached the model",
    ]
    assert await left_over(cast(Any, Inputs(found[:2])), "r") is None

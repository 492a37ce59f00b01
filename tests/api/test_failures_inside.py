"""What fails inside is told to the operator, and to the caller only that it did (SPEC E, Y6)."""

import logging

import httpx
import pytest
from fastapi import FastAPI

from api import errors
from context.errors import AgentLoomError, NotFoundError


@pytest.mark.parametrize(
    ("raised", "status", "told"),
    [
        (AgentLoomError("The database refused a statement (SQLSTATE 22P02)."), 500, ["SQLSTATE 22P02"]),
        (NotFoundError("No such thing."), 404, []),
    ],
)
async def test_the_log_says_why_an_answer_is_500(
    caplog: pytest.LogCaptureFixture, raised: AgentLoomError, status: int, told: list[str]
) -> None:
    """SPEC E: a caller's own mistakes are no news in the log."""
    app = FastAPI()
    errors.install(app)

    @app.get("/")
    async def fail() -> None:
        raise raised

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as http:
        with caplog.at_level(logging.WARNING):
            answer = await http.get("/")
    assert answer.status_code == status
    assert "SQLSTATE" not in answer.text
    assert [word in record.getMessage() for record, word in zip(caplog.records, told, strict=True)] == [True] * len(
        told
    )

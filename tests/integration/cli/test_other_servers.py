"""What a person is told where something answers that is not AgentLoom (SPEC 17)."""

import pytest

from cli.client import Api, ApiUnreachableError, NotAgentLoomError, Target
from cli.output import CommandError, ExitCode
from stack.checks import check_api
from stack.findings import Broken
from tests.support.tool_server import Answer, tool_server

HTML = {"Content-Type": "text/html"}
OTHERS: dict[str, tuple[Answer, type[CommandError]]] = {
    "a web page": (Answer(200, b"<html>", HTML), NotAgentLoomError),
    "nothing at all": (Answer(200), NotAgentLoomError),
    "another API": (Answer(404, b'{"code": 5, "message": "Not Found", "details": []}'), NotAgentLoomError),
    "a login page": (Answer(302, b"", {"Location": "https://login.example/"}), NotAgentLoomError),
    "a proxy that takes no body as large": (Answer(413, b"<html>", HTML), NotAgentLoomError),
    "a proxy before an API that is away": (Answer(502, b"<html>", HTML), ApiUnreachableError),
    "a proxy with JSON of its own": (Answer(503, b'{"message": "no upstream"}'), ApiUnreachableError),
}


@pytest.mark.parametrize("case", OTHERS)
async def test_an_answer_that_is_not_agentlooms_is_said_to_be_that(case: str) -> None:
    """SPEC 17: three lines and exit code 3, never a traceback."""
    answer, kind = OTHERS[case]
    async with tool_server(answer) as server, Api(Target(server.url, "al_key")) as api:
        for ask in (api.get("/agents"), api.post("/sessions", {"agent": "a"})):
            with pytest.raises(kind) as told:
                await ask
            assert told.value.exit_code == ExitCode.NOT_REACHABLE
            assert server.url in told.value.message
            assert told.value.mend


async def test_following_a_run_ends_at_once_where_another_server_answers() -> None:
    """SPEC 17: it is not waited for like an API that restarts."""
    answer = Answer(404, b"<html>", HTML)
    async with tool_server(answer) as server, Api(Target(server.url, "al_key")) as api:
        with pytest.raises(NotAgentLoomError):
            await anext(api.events("a-run"))
        assert len(server.requests) == 1


async def test_doctor_takes_no_other_server_for_the_api() -> None:
    """SPEC 17: a web interface may answer 200 at every address."""
    for answer in (Answer(200, b"<html>", HTML), Answer(200, b"[]"), Answer(200, b'{"status": "fine"}')):
        async with tool_server(answer) as server:
            assert isinstance(await check_api(server.url), Broken)

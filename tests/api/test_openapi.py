"""The OpenAPI document is true: what it lists is there, and answers look as it says (SPEC 16)."""

import asyncio
import json
import re
import sys
from pathlib import Path

import httpx
import pytest
from sqlalchemy import text

from api.errors import PATTERNS
from storage.store import Store
from tests.api.conftest import Person, opened

PREFIX = "/api/v1"

DUE = {
    "/agents": {"get", "post"},
    "/agents/{name}": {"get"},
    "/agents/{name}/releases": {"get"},
    "/releases/{release_id}": {"get"},
    "/sessions": {"get", "post"},
    "/sessions/{session_id}": {"get", "patch"},
    "/sessions/{session_id}/inputs": {"get", "post"},
    "/sessions/{session_id}/messages": {"get"},
    "/sessions/{session_id}/runs": {"get"},
    "/inputs/{input_id}": {"delete"},
    "/runs/{run_id}": {"get"},
    "/runs/{run_id}/events": {"get"},
    "/runs/{run_id}/stop": {"post"},
    "/runs/{run_id}/resume": {"post"},
    "/runs/{run_id}/inputs": {"get"},
    "/runs/{run_id}/operations": {"get"},
    "/runs/{run_id}/manifests": {"get"},
    "/runs/{run_id}/compactions": {"get"},
    "/runs/{run_id}/instances": {"get"},
    "/operations/{operation_id}": {"get"},
    "/operations/{operation_id}/request": {"get"},
    "/operations/{operation_id}/result": {"get"},
    "/operations/{operation_id}/explain": {"get"},
    "/operations/{operation_id}/diff": {"get"},
    "/contexts/{context_id}/view": {"get"},
    "/contexts/{context_id}/revisions": {"get"},
    "/sessions/{session_id}/verify": {"get"},
    "/sessions/{session_id}/compact": {"post"},
    "/compactions/{episode_id}": {"get"},
    "/compactions/{episode_id}/stop": {"post"},
    "/connections": {"get", "post"},
    "/connections/{name}": {"get", "put", "delete"},
    "/users": {"get", "post"},
    "/keys": {"get", "post"},
    "/keys/{key_id}": {"delete"},
    "/usage": {"get"},
}
BARE = {"/healthz": {"get"}, "/readyz": {"get"}, "/metrics": {"get"}}


async def test_the_document_lists_every_route_and_no_other(address: str) -> None:
    """16: a new route is added here on purpose."""
    async with httpx.AsyncClient(trust_env=False) as http:
        paths = (await http.get(f"{address}/openapi.json")).json()["paths"]
    listed = {path: set(methods) for path, methods in paths.items()}
    assert listed == {PREFIX + path: methods for path, methods in DUE.items()} | BARE


async def test_every_error_is_listed_as_a_problem_document(address: str) -> None:
    """E: RFC 9457."""
    async with httpx.AsyncClient(trust_env=False) as http:
        document = (await http.get(f"{address}/openapi.json")).json()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            for status, answer in operation["responses"].items():
                if status.startswith(("4", "5")):
                    assert list(answer["content"]) == ["application/problem+json"], (path, method, status)


# Of what answers hold, and of texts, which are judged by a rule of their own.
WITHOUT_REFUSALS = ("^[0-9]+$", r"\S")


async def test_each_rule_that_is_a_pattern_has_words_for_people(address: str) -> None:
    """Y5, E: a refusal is a sentence; the pattern stands in the document, for programs."""
    async with httpx.AsyncClient(trust_env=False) as http:
        patterns = re.findall(r'"pattern":("(?:[^"\\]|\\.)*")', (await http.get(f"{address}/openapi.json")).text)
    assert {json.loads(one) for one in patterns} <= {*PATTERNS, *WITHOUT_REFUSALS}


# Long polls and streams of a Run last as long as the Run does, so here every Run has ended when it begins or goes on.
END_AT_ONCE = (
    "CREATE FUNCTION end_at_once() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN NEW.status := 'stopped'; NEW.end_reason := 'user_stop'; RETURN NEW; END $$",
    "CREATE TRIGGER end_at_once BEFORE INSERT OR UPDATE ON runs FOR EACH ROW EXECUTE FUNCTION end_at_once()",
)


# Refused on purpose though the form is right: cursors never given out, definitions that name what is not there.
LEFT_OUT = "positive_data_acceptance"


@pytest.mark.timeout(180)
async def test_generated_requests_get_answers_as_documented(
    ann: Person, address: str, store: Store, tmp_path: Path
) -> None:
    """16: schemathesis finds no server error, no undocumented status, no answer of another form."""
    async with store.transaction("prepare_test") as connection:
        for statement in END_AT_ONCE:
            await connection.execute(text(statement))
    await opened(ann)
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).parent / "schemathesis"),
        "run",
        f"{address}/openapi.json",
        "--header",
        f"Authorization: Bearer {ann.key}",
        "--phases",
        "examples,coverage,fuzzing",
        "--max-examples",
        "4",
        "--request-timeout",
        "20",
        "--exclude-checks",
        LEFT_OUT,
        "--exclude-path",  # Temporal is nowhere here, which it says with 503
        "/readyz",
        "--suppress-health-check",
        "all",
        "--no-color",
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    report = "\n".join(line[:300] for line in said.decode().splitlines())
    assert process.returncode == 0, report

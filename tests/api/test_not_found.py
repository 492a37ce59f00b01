"""What is not there is named: which kind of thing, under which id or name as the caller gave it (SPEC E, 16)."""

from uuid import UUID

import pytest

from tests.api.conftest import Person, asked, opened

LOST = str(UUID(int=7))

LOOKS: list[tuple[str, str, str]] = [
    ("GET", f"/sessions/{LOST}", "session"),
    ("GET", f"/sessions/{LOST}/runs", "session"),
    ("GET", f"/sessions/{LOST}/inputs", "session"),
    ("GET", f"/sessions/{LOST}/messages", "session"),
    ("GET", f"/sessions/{LOST}/verify", "session"),
    ("PATCH", f"/sessions/{LOST}", "session"),
    ("POST", f"/sessions/{LOST}/inputs", "session"),
    ("POST", f"/sessions/{LOST}/compact", "session"),
    ("GET", f"/runs/{LOST}", "run"),
    ("GET", f"/runs/{LOST}/events", "run"),
    ("GET", f"/runs/{LOST}/operations", "run"),
    ("GET", f"/runs/{LOST}/manifests", "run"),
    ("GET", f"/runs/{LOST}/compactions", "run"),
    ("GET", f"/runs/{LOST}/instances", "run"),
    ("POST", f"/runs/{LOST}/stop", "run"),
    ("POST", f"/runs/{LOST}/resume", "run"),
    ("GET", f"/operations/{LOST}", "operation"),
    ("GET", f"/operations/{LOST}/request", "operation"),
    ("GET", f"/operations/{LOST}/result", "operation"),
    ("GET", f"/operations/{LOST}/explain?input={LOST}", "model call"),
    ("GET", f"/operations/{LOST}/diff?with={LOST}", "model call"),
    ("GET", f"/contexts/{LOST}/view", "context"),
    ("GET", f"/contexts/{LOST}/revisions", "context"),
    ("GET", f"/releases/{LOST}", "release"),
    ("DELETE", f"/inputs/{LOST}", "input"),
    ("DELETE", f"/keys/{LOST}", "key"),
]
BODIES = {"PATCH": {"title": "x"}, "POST": {"text": "x"}}


async def test_what_is_not_there_is_named_by_kind_and_id(ann: Person, subtests: pytest.Subtests) -> None:
    """SPEC E: for people in a sentence, for programs in fields of their own."""
    for method, path, kind in LOOKS:
        with subtests.test(f"{method} {path}"):
            takes_body = path.endswith(("/inputs", "/resume")) or method == "PATCH"
            answer = await ann.http.request(
                method, path, json=BODIES[method] if method in BODIES and takes_body else None
            )
            problem = answer.json()
            assert (answer.status_code, problem["code"]) == (404, "NOT_FOUND")
            assert problem["detail"] == f"There is no {kind} {LOST}."
            assert (problem["kind"], problem["id"]) == (kind, LOST)


async def test_a_name_that_is_not_there_is_named_too(ann: Person) -> None:
    """SPEC E, Y6: a name of ours is told, anything else only by its kind."""
    unknown = await ann.http.get("/agents/nobody")
    assert unknown.json()["detail"] == "There is no agent nobody."
    assert (await ann.http.get("/agents/nobody/releases")).json()["detail"] == "There is no agent nobody."
    opening = await ann.http.post("/sessions", json={"agent": "nobody"})
    assert opening.json()["detail"] == "There is no agent nobody."
    connection = await ann.http.delete("/connections/nothing")
    assert connection.json()["detail"] == "There is no connection nothing."
    told = await ann.http.get("/agents/My dear diary, today")
    assert (told.status_code, "diary" in told.text) == (404, False)


async def test_another_persons_thing_is_told_like_one_that_does_not_exist(ann: Person, bob: Person) -> None:
    """SPEC E, Y1: by the same sentence, so that nobody learns that it is there."""
    session = await opened(ann)
    run = (await asked(ann, session))["run_id"]
    for path, kind, identity in ((f"/sessions/{session}", "session", session), (f"/runs/{run}", "run", run)):
        answer = await bob.http.get(path)
        assert (answer.status_code, answer.json()["detail"]) == (404, f"There is no {kind} {identity}.")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/sessions/search?q=x"),
        ("POST", "/sessions/import"),
        ("GET", f"/sessions/{LOST}/export"),
        ("POST", f"/sessions/{LOST}/fork"),
        ("POST", "/models/discover"),
        ("GET", "/runs/not-an-id"),
        ("POST", "/runs/not-an-id/stop"),
        ("GET", "/operations/1/request"),
        ("GET", "/nothing"),
    ],
)
async def test_an_address_that_leads_nowhere_is_404(ann: Person, method: str, path: str) -> None:
    """SPEC E, Y5: a route that is not there, or an id that is none, is no bad body."""
    answer = await ann.http.request(method, path, json={} if method == "POST" else None)
    assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")
    assert "not-an-id" not in answer.text

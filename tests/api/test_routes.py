"""Each route once over HTTP: what it stores and what it shows (SPEC 16)."""

from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.api.conftest import DEFINITION, Person, asked, opened, published


async def test_publishing_numbers_and_hashes_a_release_and_the_same_content_again_is_the_same(ann: Person) -> None:
    """16."""
    first = await published(ann)
    assert await published(ann) == first
    second = await published(ann, instructions="Help more.")
    assert (first["release_no"], second["release_no"]) == (1, 2)
    assert set(first) == {"agent_id", "release_id", "release_no", "release_hash"}
    read = (await ann.http.get(f"/releases/{second['release_id']}")).json()
    assert read["release"]["definition"]["instructions"] == "Help more."
    assert read["release"]["context_window"] == 32_768
    listed = (await ann.http.get("/agents")).json()
    assert [(agent["name"], agent["release_no"]) for agent in listed["items"]] == [("helper", 2)]
    assert listed["next"] is None
    assert (await ann.http.get("/agents/helper")).json() == listed["items"][0]


async def test_a_session_is_opened_listed_read_renamed_and_archived(ann: Person) -> None:
    """16, C097: archive and unarchive can be repeated."""
    session = await opened(ann)
    assert [one["session_id"] for one in (await ann.http.get("/sessions")).json()["items"]] == [session]
    for archived in (True, True):
        changed = await ann.http.patch(f"/sessions/{session}", json={"title": "Mine", "archived": archived})
        assert changed.status_code == 200
        assert (changed.json()["title"], changed.json()["archived"]) == ("Mine", True)
    assert (await ann.http.get("/sessions")).json()["items"] == []
    assert len((await ann.http.get("/sessions", params={"include_archived": True})).json()["items"]) == 1
    refused = await ann.http.post(f"/sessions/{session}/inputs", json={"text": "q"})
    assert (refused.status_code, refused.json()["code"]) == (409, "SESSION_ARCHIVED")
    assert (await ann.http.get(f"/sessions/{session}/inputs")).json()["items"] == []
    for archived in (False, False):
        assert (await ann.http.patch(f"/sessions/{session}", json={"archived": archived})).json()["archived"] is False
    await asked(ann, session)


async def test_a_title_is_removed_by_null_and_kept_by_silence(ann: Person) -> None:
    """16: PATCH {title?, archived?}; what is left out stays, and `archived: null` means nothing."""
    session = await opened(ann)
    for change, title in (({"title": "Mine"}, "Mine"), ({}, "Mine"), ({"title": None}, None)):
        changed = await ann.http.patch(f"/sessions/{session}", json=change)
        assert (changed.status_code, changed.json()["title"]) == (200, title)
    refused = await ann.http.patch(f"/sessions/{session}", json={"title": "New", "archived": None})
    assert (refused.status_code, refused.json()["code"]) == (422, "INPUT_INVALID")
    assert refused.json()["errors"][0]["field"] == "body.archived"
    assert (await ann.http.get(f"/sessions/{session}")).json()["title"] is None


async def test_messages_of_an_instance_that_is_not_there_are_not_found(ann: Person) -> None:
    """16, X2: an instance is `main`, which every session has, or the id of one of its tasks."""
    session = await opened(ann)
    for instance, status in (("main", 200), ("zzz", 404), (str(uuid4()), 404)):
        answer = await ann.http.get(f"/sessions/{session}/messages", params={"instance": instance})
        assert answer.status_code == status
        if status == 404:
            assert answer.json()["code"] == "NOT_FOUND"


async def test_an_agent_is_published_by_whoever_made_it_and_by_administrators(ann: Person, bob: Person) -> None:
    """Y1: a release decides where everybody's conversations with its agent are sent."""
    of_ann = await published(ann)
    refused = await bob.http.post("/agents", json={"definition": DEFINITION | {"instructions": "Mine now."}})
    assert (refused.status_code, refused.json()["code"]) == (403, "FORBIDDEN")
    assert (await ann.http.get("/agents/helper")).json()["release_no"] == 1
    assert await published(bob) == of_ann  # what is there already changes nothing
    assert (await published(bob, name="of-bob"))["release_no"] == 1
    assert (await published(bob, name="of-bob", instructions="Better."))["release_no"] == 2
    assert (await published(ann, name="of-bob", instructions="Corrected."))["release_no"] == 3
    assert (await published(bob, name="of-bob", instructions="Best."))["release_no"] == 4


async def test_a_question_starts_a_run_that_can_be_read_everywhere(ann: Person) -> None:
    """S1, S4, 16."""
    session = await opened(ann)
    accepted = await asked(ann, session, "What is it?")
    assert set(accepted) == {"input_id", "input_seq", "kind", "run_id", "delivery_id", "state"}
    assert (accepted["input_seq"], accepted["kind"], accepted["state"]) == (1, "question", "pending")
    run = (await ann.http.get(f"/runs/{accepted['run_id']}")).json()
    assert (run["status"], run["run_no"], run["loops"], run["answer"], run["error"]) == ("queued", 1, 0, None, None)
    assert run["workflow_id"] == f"run/{accepted['run_id']}"
    assert (await ann.http.get(f"/sessions/{session}/runs")).json()["items"] == [run]
    inputs = (await ann.http.get(f"/runs/{accepted['run_id']}/inputs")).json()["items"]
    assert [(one["text"], one["state"], one["previous_delivery_id"]) for one in inputs] == [
        ("What is it?", "pending", None)
    ]
    assert (await ann.http.get(f"/sessions/{session}/inputs")).json()["items"] == inputs
    assert (await ann.http.get(f"/sessions/{session}")).json()["active_run_id"] == accepted["run_id"]


async def test_a_second_question_is_refused_and_names_the_run_and_auto_joins_it(ann: Person) -> None:
    """S1, S3, S4."""
    session = await opened(ann)
    first = await asked(ann, session)
    refused = await ann.http.post(f"/sessions/{session}/inputs", json={"text": "q", "mode": "question"})
    assert (refused.status_code, refused.json()["code"]) == (409, "RUN_ACTIVE")
    assert refused.json()["run_id"] == first["run_id"]
    second = await asked(ann, session, "And more.", mode="auto")
    assert (second["kind"], second["run_id"], second["input_seq"]) == ("supplement", first["run_id"], 2)


async def test_a_supplement_without_a_run_is_refused_and_stores_nothing(ann: Person) -> None:
    """S4."""
    session = await opened(ann)
    refused = await ann.http.post(f"/sessions/{session}/inputs", json={"text": "more", "mode": "supplement"})
    assert (refused.status_code, refused.json()["code"]) == (409, "RUN_NOT_ACTIVE")
    assert (await ann.http.get(f"/sessions/{session}/inputs")).json()["items"] == []


async def test_the_same_client_key_gets_the_first_answer_in_body_or_header(ann: Person) -> None:
    """S5, C067."""
    session = await opened(ann)
    first = await asked(ann, session, "q", client_key="key-1")
    headers = {"Idempotency-Key": "key-1"}
    again = await ann.http.post(f"/sessions/{session}/inputs", json={"text": "q"}, headers=headers)
    assert (again.status_code, again.json()) == (202, first)
    other = await ann.http.post(f"/sessions/{session}/inputs", json={"text": "other"}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "CLIENT_KEY_REUSED")
    torn = {"text": "q", "client_key": "key-2"}
    refused = await ann.http.post(f"/sessions/{session}/inputs", json=torn, headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (422, "INPUT_INVALID")
    assert len((await ann.http.get(f"/sessions/{session}/inputs")).json()["items"]) == 1


async def test_a_pending_supplement_can_be_withdrawn_and_a_question_cannot(ann: Person) -> None:
    """S12."""
    session = await opened(ann)
    question = await asked(ann, session)
    supplement = await asked(ann, session, "more")
    withdrawn = await ann.http.delete(f"/inputs/{supplement['input_id']}")
    assert (withdrawn.status_code, withdrawn.json()["state"]) == (200, "withdrawn")
    refused = await ann.http.delete(f"/inputs/{question['input_id']}")
    assert (refused.status_code, refused.json()["code"]) == (409, "INPUT_NOT_PENDING")
    states = [one["state"] for one in (await ann.http.get(f"/sessions/{session}/inputs")).json()["items"]]
    assert states == ["pending", "withdrawn"]


async def test_a_run_that_waits_for_a_worker_is_stopped_at_once_and_resumed_once(ann: Person) -> None:
    """S8, S9."""
    run = (await asked(ann, await opened(ann)))["run_id"]
    for _ in range(2):
        stopped = await ann.http.post(f"/runs/{run}/stop")
        assert (stopped.status_code, stopped.json()["status"], stopped.json()["stop_requested"]) == (
            202,
            "stopped",
            True,
        )
    assert (await ann.http.post(f"/runs/{run}/resume", json={})).json()["status"] == "queued"
    refused = await ann.http.post(f"/runs/{run}/resume", json={})
    assert (refused.status_code, refused.json()["code"]) == (409, "RUN_ACTIVE")


async def test_a_connection_shows_that_it_has_a_key_and_never_the_key(ann: Person) -> None:
    """L6."""
    wanted = {"name": "mine", "provider": "openai", "api_key": "sk-secret", "models": [{"id": "m"}]}
    made = await ann.http.post("/connections", json=wanted)
    assert made.status_code == 201
    assert made.json()["has_key"] is True
    assert made.json()["models"] == [{"id": "m", "context_window": None, "max_output_tokens": None, "source": "manual"}]
    for answer in (made, await ann.http.get("/connections"), await ann.http.get("/connections/mine")):
        assert "sk-secret" not in answer.text
    assert (await ann.http.delete("/connections/mine")).status_code == 204
    assert (await ann.http.get("/connections/mine")).status_code == 404


async def test_a_new_key_is_shown_once_works_and_stops_working_when_revoked(ann: Person) -> None:
    """Y1."""
    assert (await ann.http.post("/users", json={"name": "carl"})).json()["role"] == "member"
    made = (await ann.http.post("/keys", json={"user": "carl"})).json()
    headers = {"Authorization": f"Bearer {made['api_key']}"}
    assert (await ann.http.get("/sessions", headers=headers)).status_code == 200
    listed = await ann.http.get("/keys")
    assert made["api_key"] not in listed.text
    assert made["key_id"] in {key["key_id"] for key in listed.json()["items"]}
    assert (await ann.http.delete(f"/keys/{made['key_id']}")).status_code == 204
    assert (await ann.http.get("/sessions", headers=headers)).status_code == 401
    assert (await ann.http.post("/keys", json={"user": "nobody"})).status_code == 404


async def test_usage_starts_at_zero(ann: Person) -> None:
    """L5."""
    used = (await ann.http.get("/usage")).json()
    assert (used["input_tokens"], used["unknown"]) == (0, 0)


async def test_lists_are_paged_by_a_cursor_to_the_end(ann: Person) -> None:
    """16."""
    await published(ann)
    made = [(await ann.http.post("/sessions", json={"agent": "helper"})).json()["session_id"] for _ in range(5)]
    seen: list[str] = []
    params: dict[str, str | int] = {"limit": 2}
    while True:
        page = (await ann.http.get("/sessions", params=params)).json()
        seen += [one["session_id"] for one in page["items"]]
        if page["next"] is None:
            break
        params["cursor"] = page["next"]
    assert seen == made[::-1]


async def test_an_empty_page_of_messages_keeps_the_cursor(ann: Person) -> None:
    """16."""
    session = await opened(ann)
    page = (await ann.http.get(f"/sessions/{session}/messages", params={"after": 7})).json()
    assert page == {"items": [], "next_after": 7}


async def test_what_belongs_to_somebody_else_looks_like_what_does_not_exist(ann: Person, bob: Person) -> None:
    """E, Y1: sessions are private to their creator."""
    session = await opened(ann)
    accepted = await asked(ann, session)
    run, received = accepted["run_id"], accepted["input_id"]
    calls = [
        ("GET", f"/sessions/{session}", None),
        ("PATCH", f"/sessions/{session}", {"title": "x"}),
        ("POST", f"/sessions/{session}/inputs", {"text": "x"}),
        ("GET", f"/sessions/{session}/inputs", None),
        ("GET", f"/sessions/{session}/messages", None),
        ("GET", f"/sessions/{session}/runs", None),
        ("GET", f"/runs/{run}", None),
        ("GET", f"/runs/{run}/events", None),
        ("GET", f"/runs/{run}/inputs", None),
        ("GET", f"/runs/{run}/operations", None),
        ("GET", f"/runs/{run}/manifests", None),
        ("GET", f"/runs/{run}/instances", None),
        ("POST", f"/runs/{run}/stop", None),
        ("POST", f"/runs/{run}/resume", {}),
        ("DELETE", f"/inputs/{received}", None),
    ]
    for method, path, body in calls:
        theirs = await bob.http.request(method, path, json=body)
        mine = path.split("/")[2]
        unknown = str(uuid4())
        nobodys = await bob.http.request(method, path.replace(mine, unknown), json=body)
        assert theirs.status_code == 404, (method, path, theirs.text)
        assert theirs.text == nobodys.text.replace(unknown, mine), (method, path)
    assert (await bob.http.get("/sessions")).json()["items"] == []


async def test_a_member_manages_no_people_and_no_connections(bob: Person) -> None:
    """Y1."""
    for method, path, body in (
        ("POST", "/users", {"name": "x"}),
        ("GET", "/users", None),
        ("POST", "/keys", {}),
        ("GET", "/keys", None),
        ("DELETE", f"/keys/{uuid4()}", None),
        ("POST", "/connections", {"name": "c", "provider": "openai"}),
        ("DELETE", "/connections/c", None),
    ):
        refused = await bob.http.request(method, path, json=body)
        assert (refused.status_code, refused.json()["code"]) == (403, "FORBIDDEN"), (method, path)


RUNS_CODE: tuple[dict[str, Any], ...] = (
    {"kind": "python", "name": "t", "entry": "os:system"},
    {"kind": "mcp", "name": "t", "command": ["touch", "PLACE"]},
    {"kind": "mcp", "name": "t", "url": "http://127.0.0.1:1/", "command": ["touch", "PLACE"]},
)


async def test_a_member_publishes_nothing_that_runs_code_on_the_server(bob: Person, tmp_path: Path) -> None:
    """Y1: publishing itself imports the module or starts the server, so it is refused before that."""
    ran = tmp_path / "ran"
    for tool in RUNS_CODE:
        entry = tool | ({"command": ["touch", str(ran)]} if "command" in tool else {})
        refused = await bob.http.post("/agents", json={"definition": DEFINITION | {"tools": [entry]}})
        assert (refused.status_code, refused.json()["code"]) == (403, "FORBIDDEN"), tool
    assert not ran.exists()
    assert (await bob.http.get("/agents")).json()["items"] == []


async def test_an_administrator_publishes_a_python_tool_and_a_member_an_http_tool(ann: Person, bob: Person) -> None:
    """Y1."""
    await published(ann, tools=[{"kind": "python", "name": "t", "entry": "tests.support.run_tools:look"}])
    schema = {"type": "object", "properties": {}}
    http = {"kind": "http", "name": "t", "url": "http://127.0.0.1:1/", "description": "Looks.", "schema": schema}
    await published(bob, name="of-bob", tools=[http])
    by_url = DEFINITION | {"tools": [{"kind": "mcp", "name": "t", "url": "http://127.0.0.1:1/"}]}
    refused = await bob.http.post("/agents", json={"definition": by_url})
    assert (refused.status_code, refused.json()["code"]) == (422, "CONFIGURATION_INVALID")  # asked, and nobody there


async def test_a_member_sends_no_stored_secret_to_an_address_of_their_own(bob: Person) -> None:
    """Y1, L6: the address of a tool is part of who gets the secret."""
    tool = {"kind": "http", "name": "t", "url": "http://127.0.0.1:1/", "description": "Looks.", "connection": "x"}
    refused = await bob.http.post("/agents", json={"definition": DEFINITION | {"tools": [tool]}})
    assert (refused.status_code, refused.json()["code"]) == (403, "FORBIDDEN")

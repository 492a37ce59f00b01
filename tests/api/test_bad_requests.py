"""What is refused, over HTTP: a problem document that names the place and echoes nothing; nothing is stored (Y5, E)."""

from typing import Any
from uuid import uuid4

import httpx
import pytest

from api.errors import PROBLEM_MEDIA_TYPE
from api.wiring import ApiOptions
from tests.api.conftest import DEFINITION, Person, asked, opened

MARK = "planted-marker"
JSON = {"Content-Type": "application/json"}


def check_problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The answer is a whole problem document that repeats nothing of what was sent."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == PROBLEM_MEDIA_TYPE
    document: dict[str, Any] = answer.json()
    assert document["code"] == code
    assert document["status"] == status
    assert document["type"].startswith("urn:agentloom:problem:")
    assert document["title"]
    assert document["detail"]
    assert MARK not in answer.text
    return document


BAD_INPUTS: dict[str, tuple[bytes, int, str, str]] = {
    "no body": (b"", 422, "INPUT_INVALID", "body"),
    "an empty object": (b"{}", 422, "INPUT_INVALID", "body.text"),
    "a list": (b"[]", 422, "INPUT_INVALID", "body"),
    "broken": (b'{"text": "planted-marker', 422, "INPUT_INVALID", "JSON"),
    "not UTF-8": (b'{"text": "\xff"}', 422, "INPUT_INVALID", "UTF-8"),
    "a lone surrogate": (b'{"text": "bad \\ud83d planted-marker"}', 422, "INPUT_INVALID", "body.text"),
    "NUL": (b'{"text": "a\\u0000planted-marker"}', 422, "INPUT_INVALID", "body.text"),
    "a field twice": (b'{"text": "planted-marker", "text": "b"}', 422, "INPUT_INVALID", "text"),
    "NaN": (b'{"text": NaN}', 422, "INPUT_INVALID", "NaN"),
    "deep": (b'{"text": ' + b"[" * 500 + b"]" * 500 + b"}", 422, "INPUT_INVALID", "nested"),
    "very deep": (b"[" * 100_000, 422, "INPUT_INVALID", "body"),
    "empty text": (b'{"text": ""}', 422, "INPUT_INVALID", "body.text"),
    "unseen text": (rb'{"text": "\u200b \u2060\ufeff\u0001"}', 422, "INPUT_INVALID", "body.text"),
    "blank text": ('{"text": " \\n\\t\u3000\u00a0"}'.encode(), 422, "INPUT_INVALID", "body.text"),
    "text of a number": (b'{"text": 5}', 422, "INPUT_INVALID", "body.text"),
    "null text": (b'{"text": null}', 422, "INPUT_INVALID", "body.text"),
    "an unknown field": (
        b'{"text": "planted-marker", "texts": "planted-marker"}',
        422,
        "INPUT_INVALID",
        "body.(field 2)",
    ),
    "an unknown field with a telling name": (b'{"text": "x", "planted-marker": 1}', 422, "INPUT_INVALID", "(field 2)"),
    "a misspelt field": (b'{"txet": "x"}', 422, "INPUT_INVALID", "perhaps text is meant"),
    "an unknown mode": (b'{"text": "x", "mode": "planted-marker"}', 422, "INPUT_INVALID", "body.mode"),
    "an empty client key": (b'{"text": "x", "client_key": ""}', 422, "INPUT_INVALID", "body.client_key"),
    "too long a text": (b'{"text": "' + b"a" * 1_000_001 + b'"}', 422, "INPUT_INVALID", "body.text"),
}


async def test_a_bad_input_gets_a_clear_answer_and_nothing_is_stored(ann: Person, subtests: pytest.Subtests) -> None:
    """Y5, C061."""
    session = await opened(ann)
    for case, (body, status, code, named) in BAD_INPUTS.items():
        with subtests.test(case):
            refused = await ann.http.post(f"/sessions/{session}/inputs", content=body, headers=JSON)
            assert named in check_problem(refused, status, code)["detail"]
    assert (await ann.http.get(f"/sessions/{session}/inputs")).json()["items"] == []


async def test_a_text_of_exactly_a_million_characters_is_taken_whole(ann: Person) -> None:
    """Y5."""
    session = await opened(ann)
    text = "ü" * 999_999 + "😀"
    assert (await ann.http.post(f"/sessions/{session}/inputs", json={"text": text})).status_code == 202
    assert (await ann.http.get(f"/sessions/{session}/inputs")).json()["items"][0]["text"] == text


@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_over_the_limit_is_refused_by_its_real_size(ann: Person, declared: bool) -> None:
    """Y5: 8 MiB, whether or not Content-Length says so."""
    size = (8 << 20) + 1

    async def pieces() -> Any:
        for _ in range(size // 65_536 + 1):
            yield b"x" * 65_536

    content = b"x" * size if declared else pieces()
    refused = await ann.http.post("/sessions", content=content, headers=JSON)
    assert check_problem(refused, 413, "TOO_LARGE")["limit_bytes"] == 8 << 20


async def test_a_body_of_exactly_the_limit_is_parsed(ann: Person) -> None:
    """Y5."""
    body = b'{"agent": "helper"' + b" " * ((8 << 20) - 19) + b"}"
    check_problem(await ann.http.post("/sessions", content=body, headers=JSON), 404, "NOT_FOUND")


async def test_only_json_is_taken(ann: Person, subtests: pytest.Subtests) -> None:
    """Y5."""
    for content_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        with subtests.test(content_type):
            headers = {"Content-Type": content_type} if content_type else {}
            check_problem(await ann.http.post("/sessions", content=b"{}", headers=headers), 415, "INPUT_INVALID")


async def test_an_unknown_address_and_a_wrong_method_are_problems_too(ann: Person) -> None:
    """E."""
    check_problem(await ann.http.get("/nothing"), 404, "NOT_FOUND")
    refused = await ann.http.put("/sessions", json={})
    check_problem(refused, 405, "INPUT_INVALID")
    assert refused.headers["allow"] == "GET, POST"
    assert refused.json()["detail"] == "This address does not take this method. It takes GET, POST."
    document = await ann.http.post(str(ann.http.base_url).replace("/api/v1/", "/openapi.json"))
    check_problem(document, 405, "INPUT_INVALID")


async def test_a_parameter_of_another_kind_is_told_its_kind_once(ann: Person) -> None:
    """Y5: in one phrase."""
    for params, said in (
        ({"limit": "1.5"}, "query.limit should be a whole number"),
        ({"include_archived": "maybe"}, "query.include_archived should be true or false"),
    ):
        refused = await ann.http.get("/sessions", params=params)
        assert check_problem(refused, 422, "INPUT_INVALID")["detail"] == said
    refused = await ann.http.get(f"/runs/{uuid4()}", params={"wait_s": "soon"})
    assert check_problem(refused, 422, "INPUT_INVALID")["detail"] == "query.wait_s should be a number"


BAD_CONNECTIONS: list[tuple[dict[str, Any], str]] = [
    *(({"api_key": f"{MARK}{odd}"}, "body.api_key") for odd in ("\n", "\r\nX-Evil: 1", " x", "\t", "ключ", "\x7f")),
    ({"api_key": ""}, "body.api_key"),
    ({"models": [{"id": MARK}, {"id": "b"}, {"id": MARK}]}, "body.models entries 0 and 2 have the same id"),
    *(
        ({"base_url": url}, "body.base_url")
        for url in (
            f"https://user:{MARK}@x/v1",
            f"https://{MARK}@x/v1",
            f"https://x/v1?key={MARK}",
            f"https://x/v1#{MARK}",
            "https://x/v1\n",
            "https://x:99999/v1",
            "https://x:/v1?",
            "https:///v1",
            "https://a..b/v1",
            f"https://{'a' * 64}.example/v1",
            "https://[x/v1",
            "ftp://x/v1",
        )
    ),
]


async def test_a_connection_that_no_call_could_use_is_refused_with_its_field(
    ann: Person, subtests: pytest.Subtests
) -> None:
    """Y5, L6: a key that no header can carry, an address that is none or that holds a secret; nothing is stored."""
    for changes, field in BAD_CONNECTIONS:
        with subtests.test(repr(changes)):
            wanted = {"provider": "openai_compatible", "base_url": "https://x/v1", "api_key": "k"} | changes
            for answer in (
                await ann.http.put("/connections/mine", json=wanted),
                await ann.http.post("/connections", json=wanted | {"name": "mine"}),
            ):
                assert field in check_problem(answer, 422, "INPUT_INVALID")["detail"]
    assert (await ann.http.get("/connections/mine")).status_code == 404


WRONG_PARAMETERS: list[tuple[str, dict[str, str]]] = [
    ("/sessions", {"limit": "0"}),
    ("/sessions", {"limit": "201"}),
    ("/sessions", {"limit": "planted-marker"}),
    ("/sessions", {"cursor": "planted-marker"}),
    ("/sessions", {"cursor": "AAAA"}),
    ("/agents", {"cursor": "AAAA"}),
    ("/agents", {"cursor": "ICBhIGI"}),  # "  a b"
    ("/users", {"cursor": "5Lit"}),  # "中"
    ("/agents", {"cursor": "aGVscGVy="}),  # "helper", with a sign that ours never have
    ("/agents", {"cursor": "aGVscGVz"[:-1]}),  # bits left over
    ("/sessions", {"cursor": "MA"}),  # "0"
    ("/keys", {"cursor": "MDc"}),  # "07"
    *[("/sessions", {"limit": one}) for one in ("1.0", "+1", "1_0", " 1", "1 ", "１", "0x1", "1e0", "")],
    *[(f"/runs/{uuid4()}/events", {"after": one}) for one in ("1.0", "+0", "-0.0", "null")],
    *[(f"/runs/{uuid4()}", {"wait_s": one}) for one in ("+1", " 1", "1_0", "inf", ".5", "5.", "0x1", "true")],
    *[("/usage", {"session": one}) for one in (uuid4().hex, f"{{{uuid4()}}}", f"urn:uuid:{uuid4()}", f" {uuid4()}")],
    (f"/operations/{uuid4()}/diff", {"with": uuid4().hex}),
    ("/users", {"cursor": "\x00"}),
    ("/keys", {"cursor": "AAAA"}),
    (f"/runs/{uuid4()}", {"wait_s": "61"}),
    (f"/runs/{uuid4()}", {"wait_s": "nan"}),
    (f"/runs/{uuid4()}/events", {"after": "-1"}),
    (f"/runs/{uuid4()}/events", {"after": str(2**63)}),
    (f"/sessions/{uuid4()}/messages", {"instance": "a\x00"}),
    (f"/sessions/{uuid4()}/runs", {"cursor": "AAAA"}),
    (f"/runs/{uuid4()}/operations", {"cursor": "AAAA"}),
    ("/sessions", {"planted-marker": "1"}),
    ("/sessions", {"include_archive": "true"}),
    ("/usage", {"planted-marker": ""}),
    ("/sessions?limit=5&limit=6", {}),
]
NOWHERE = (
    "/runs/planted-marker",
    "/sessions/planted-marker",
    "/agents/planted%00marker",
    "/runs/{hex}",
    "/runs/%7B{id}%7D",
    "/sessions/urn:uuid:{id}",
    "/sessions/{id}%20",
    "/operations/{hex}/request",
)


async def test_wrong_ids_and_parameters_are_refused(ann: Person, subtests: pytest.Subtests) -> None:
    """Y5: wrong types and ids, and right ones in a form that no answer of ours has."""
    for path, params in WRONG_PARAMETERS:
        with subtests.test(path, **params):
            refused = check_problem(await ann.http.get(path, params=params or None), 422, "INPUT_INVALID")
            assert all(f"query.{name}" in refused["detail"] for name in params) or "is not known" in refused["detail"]
            assert "pattern" not in refused["detail"]
    session = await opened(ann)
    for path in NOWHERE:
        with subtests.test(path):
            there = path.format(id=session, hex=session.replace("-", ""))
            check_problem(await ann.http.get(there), 404, "NOT_FOUND")


async def test_an_unknown_parameter_is_told_by_its_position_with_those_that_are_known(ann: Person) -> None:
    """Y5, Y6: what is not known is refused, not ignored."""
    refused = await ann.http.get("/sessions", params={"limit": 5, MARK: 1})
    detail = check_problem(refused, 422, "INPUT_INVALID")["detail"]
    assert detail == "Query parameter 2 is not known here; this address takes cursor, include_archived, limit."
    refused = await ann.http.post("/sessions", params={MARK: 1}, json={"agent": "helper"})
    detail = check_problem(refused, 422, "INPUT_INVALID")["detail"]
    assert detail == "Query parameter 1 is not known here; this address takes none."


NO_BODY = (
    ("GET", "/sessions"),
    ("GET", "/usage"),
    ("GET", "/sessions/{session}"),
    ("GET", "/runs/{run}/events"),
    ("POST", "/runs/{run}/stop"),
    ("DELETE", "/inputs/{input}"),
    ("DELETE", "/connections/gone"),
)
UNASKED = (b'{"confirm": true}', b"[]", b"null", b"planted-marker", b"\xff", b'{"a": ' * 500)


async def test_a_body_where_none_belongs_is_refused_and_nothing_is_done(ann: Person, subtests: pytest.Subtests) -> None:
    """Y5: what is sent is not ignored; whatever it is and calls itself."""
    session = await opened(ann)
    accepted = await asked(ann, session)
    places = {"session": session, "run": accepted["run_id"], "input": accepted["input_id"]}
    for method, path in NO_BODY:
        for body in UNASKED:
            with subtests.test(f"{method} {path}", body=body[:20]):
                for headers in (JSON, {"Content-Type": "text/plain"}, {}):
                    refused = await ann.http.request(method, path.format(**places), content=body, headers=headers)
                    detail = check_problem(refused, 422, "INPUT_INVALID")["detail"]
                    assert detail == "This address takes no body; send the request without one."
    assert (await ann.http.get(f"/runs/{accepted['run_id']}")).json()["stop_requested"] is False
    assert [one["state"] for one in (await ann.http.get(f"/sessions/{session}/inputs")).json()["items"]] == ["pending"]


async def test_an_empty_body_is_fine_where_none_belongs(ann: Person, subtests: pytest.Subtests) -> None:
    """Y5: no bytes, or an object without fields, which many clients send with every POST."""
    run = (await asked(ann, await opened(ann)))["run_id"]
    for body in (b"", b"{}", b" { } \n"):
        with subtests.test(repr(body)):
            assert (await ann.http.post(f"/runs/{run}/stop", content=body, headers=JSON)).status_code == 202
            assert (await ann.http.request("GET", "/usage", content=body, headers=JSON)).status_code == 200


async def test_a_header_that_decides_something_is_taken_once(ann: Person, subtests: pytest.Subtests) -> None:
    """Y5: of two, one program reads the first and the next one the last."""
    session = await opened(ann)
    for name in ("Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID"):
        with subtests.test(name):
            own = [(b"Authorization", f"Bearer {ann.key}".encode()), (b"Content-Type", b"application/json")]
            value = dict(own).get(name.encode(), b"1")
            doubled = [(name.encode(), value), (name.encode(), value)]
            headers = [one for one in own if one[0] != name.encode()] + doubled
            async with httpx.AsyncClient(base_url=ann.http.base_url, trust_env=False) as plain:
                refused = await plain.post(f"/sessions/{session}/inputs", content=b'{"text": "x"}', headers=headers)
            assert check_problem(refused, 422, "INPUT_INVALID")["detail"] == f"header.{name.lower()} is there twice."
    assert (await ann.http.get(f"/sessions/{session}/inputs")).json()["items"] == []


BAD_DEFINITIONS: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown key": (
        {"instrucions": MARK},
        "body.definition.(field 4) is not a known field; perhaps instructions is meant",
    ),
    "an unknown key inside": ({"model": DEFINITION["model"] | {MARK: 1}}, "body.definition.model.(field 3)"),
    "a key of a mapping": (
        {"tools": [{"kind": "http", "name": "t", "url": "http://x", "headers": {"A": "x", MARK: 1}}]},
        "body.definition.tools.0.headers.(field 2) should be",
    ),
    "a name of a mapping": (
        {"tools": [{"kind": "http", "name": "t", "url": "http://x", "headers": {f"{MARK} ": "x"}}]},
        "body.definition.tools.0.headers the name of a header is",
    ),
    "a name twice": ({"hooks": [{"name": MARK, "point": "tool.request", "kind": "http"}] * 2}, "entries 0 and 1"),
    "a number in quotes": (
        {"model": DEFINITION["model"] | {"context_window": "131072"}},
        "body.definition.model.context_window should be a valid integer",
    ),
    "instructions of another kind": ({"instructions": 5}, "body.definition.instructions should be text, or a list of"),
    "a part without its text": ({"instructions": [{"name": "n"}]}, "body.definition.instructions.0.text is required"),
    "a list that is text": ({"tools": MARK}, "body.definition.tools should be a list"),
    "an unknown provider": ({"model": {"provider": MARK, "model": "m"}}, "body.definition.model.provider"),
    "a field of ours": ({"model": DEFINITION["model"] | {"parameters": {"messages": MARK}}}, "messages"),
    "a ratio over one": ({"context": {"trigger_ratio": 1.2}}, "body.definition.context.trigger_ratio"),
    "a target over the trigger": ({"context": {"target_ratio": 0.9}}, "target_ratio"),
    "a window without room": ({"model": DEFINITION["model"] | {"context_window": 300}}, "room"),
    "hooks": ({"hooks": [{"name": "h", "point": "tool.request", "kind": "http", "url": "http://x"}]}, "hooks"),
    "a module that is not there": ({"tools": [{"kind": "python", "name": "t", "entry": "no_such:f"}]}, "no_such"),
    "a header with a line break": (
        {"tools": [{"kind": "http", "name": "t", "url": "http://x", "headers": {"X-A": f"{MARK}\r\nX-B: 1"}}]},
        "body.definition.tools.0.headers",
    ),
    "a header whose name is none": (
        {"tools": [{"kind": "http", "name": "t", "url": "http://x", "headers": {"X A": "1"}}]},
        "body.definition.tools.0.headers",
    ),
    "a cost limit without a price": ({"limits": {"max_cost": 1}}, "model.price"),
    "a connection that is not there": ({"model": DEFINITION["model"] | {"connection": "gone"}}, "model.connection"),
}


async def test_a_bad_definition_names_the_key_and_publishes_nothing(ann: Person, subtests: pytest.Subtests) -> None:
    """E, 18: unknown keys are errors."""
    for case, (change, named) in BAD_DEFINITIONS.items():
        with subtests.test(case):
            refused = await ann.http.post("/agents", json={"definition": DEFINITION | change})
            assert named in check_problem(refused, 422, "CONFIGURATION_INVALID")["detail"]
    assert (await ann.http.get("/agents")).json()["items"] == []


async def test_an_unknown_window_is_refused_with_a_suggestion(ann: Person) -> None:
    """B3."""
    definition = DEFINITION | {"model": {"provider": "openai", "model": "unheard-of"}}
    refused = await ann.http.post("/agents", json={"definition": definition})
    assert check_problem(refused, 422, "MODEL_WINDOW_UNKNOWN")["suggested_context_window"] == 32_768


CREDENTIALS = [
    None,
    b"",
    b"Bearer",
    b"Basic YWI6Yw==",
    b"Bearer al_planted-marker",
    b"Bearer \xfc",
    b"Bearer " + b"a" * 999,
]


async def test_without_a_valid_key_nothing_is_answered(address: str, subtests: pytest.Subtests) -> None:
    """Y1."""
    async with httpx.AsyncClient(base_url=f"{address}/api/v1", trust_env=False) as http:
        for sent in CREDENTIALS:
            headers = [] if sent is None else [(b"Authorization", sent)]
            for path in ("/sessions", "/agents", f"/runs/{uuid4()}", f"/runs/{uuid4()}/events", "/usage", "/keys"):
                with subtests.test(path, sent=repr(sent)):
                    refused = await http.get(path, headers=headers)
                    check_problem(refused, 401, "UNAUTHENTICATED")
                    assert refused.headers["www-authenticate"] == "Bearer"


class TestWithASmallLimit:
    @pytest.fixture
    def options(self) -> ApiOptions:
        from api.limits import RateLimit

        return ApiOptions(rate_limit=RateLimit(per_second=0.01, burst=3))

    async def test_a_key_that_asks_too_often_is_told_when_to_come_back(self, ann: Person, bob: Person) -> None:
        """Y1: limits per key answer 429 with Retry-After."""
        for _ in range(3):
            assert (await ann.http.get("/usage")).status_code == 200
        refused = await ann.http.get("/usage")
        check_problem(refused, 429, "RATE_LIMITED")
        assert 0 < int(refused.headers["retry-after"]) <= 100
        assert (await bob.http.get("/usage")).status_code == 200

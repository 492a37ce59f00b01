"""The event stream: the same sequence wherever it is cut, live while the Run goes on, closed when it ends (SPEC 16)."""

import asyncio
import json
from typing import Any
from uuid import UUID

import httpx
import pytest
from fastapi import FastAPI
from httpx_sse import EventSource
from sqlalchemy import text

from api.wiring import ApiOptions
from context.steps import OpenRun
from egress.certificates import bundled_authorities
from storage.commits.open_run import open_run
from storage.store import Store
from tests.api.conftest import Person, asked, opened

EVENTS = text("""
    WITH run AS (UPDATE runs SET event_head = event_head + :count WHERE run_id = :run_id RETURNING event_head)
    INSERT INTO run_events (run_id, run_seq, type, body)
    SELECT :run_id, event_head - :count + n, 'context_build', jsonb_build_object('loop', n)
    FROM run, generate_series(1, :count) n
""")
END = text("""
    WITH run AS (
        UPDATE runs SET event_head = event_head + 1, status = 'stopped', end_reason = 'user_stop'
        WHERE run_id = :run_id RETURNING event_head)
    INSERT INTO run_events (run_id, run_seq, type, body) SELECT :run_id, event_head, 'run_ended', '{}' FROM run
""")
TELL = text("SELECT pg_notify('run_events', :run_id)")


async def grow(store: Store, run_id: str, count: int) -> None:
    """Give the Run more events, and say so."""
    async with store.transaction("grow") as connection:
        await connection.execute(EVENTS, {"run_id": UUID(run_id), "count": count})
        await connection.execute(TELL, {"run_id": run_id})


async def end(store: Store, run_id: str) -> None:
    """End the Run, and say so."""
    async with store.transaction("end") as connection:
        await connection.execute(END, {"run_id": UUID(run_id)})
        await connection.execute(TELL, {"run_id": run_id})


@pytest.fixture
async def run_id(ann: Person) -> str:
    """A Run that nobody works on, with one event."""
    return str((await asked(ann, await opened(ann)))["run_id"])


async def read_stream(
    who: Person, run_id: str, *, at_most: int | None = None, last_event_id: str | None = None, after: int = 0
) -> list[dict[str, Any]]:
    """The events of a stream until it closes, or the first few."""
    headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_event_id} if last_event_id is not None else {})
    found: list[dict[str, Any]] = []
    async with who.http.stream("GET", f"/runs/{run_id}/events", params={"after": after}, headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        async for event in EventSource(answer).aiter_sse():
            data = json.loads(event.data)
            assert (event.id, event.event) == (str(data["run_seq"]), data["type"])
            found.append(data)
            if len(found) == at_most:
                break
    return found


async def test_a_finished_run_is_replayed_from_the_given_id_and_closed(ann: Person, store: Store, run_id: str) -> None:
    """C103."""
    await grow(store, run_id, 18)
    await end(store, run_id)
    whole = await read_stream(ann, run_id)
    assert [event["run_seq"] for event in whole] == list(range(1, 21))
    assert whole[0]["type"] == "input_accepted"
    assert whole[-1]["type"] == "run_ended"
    assert await read_stream(ann, run_id, last_event_id="7") == whole[7:]
    assert await read_stream(ann, run_id, after=7) == whole[7:]
    assert await read_stream(ann, run_id, after=2, last_event_id="7") == whole[7:]
    assert await read_stream(ann, run_id, last_event_id="20") == []


async def test_cut_after_any_event_the_sequence_is_the_same(ann: Person, store: Store, run_id: str) -> None:
    """16: ids are unique and strictly increasing."""
    await grow(store, run_id, 6)
    await end(store, run_id)
    whole = await read_stream(ann, run_id)
    for cut in range(len(whole) + 1):
        assert whole[:cut] + await read_stream(ann, run_id, last_event_id=str(cut)) == whole


async def test_events_of_a_living_run_come_as_they_are_committed(ann: Person, store: Store, run_id: str) -> None:
    """16: nobody polls."""
    reading = asyncio.create_task(read_stream(ann, run_id))
    await grow(store, run_id, 2)
    assert not reading.done()
    await grow(store, run_id, 3)
    await end(store, run_id)
    async with asyncio.timeout(15):
        assert [event["run_seq"] for event in await reading] == list(range(1, 8))


async def test_more_events_than_a_page_holds_all_come(ann: Person, store: Store, run_id: str) -> None:
    """16."""
    await grow(store, run_id, 1_200)
    await end(store, run_id)
    assert [event["run_seq"] for event in await read_stream(ann, run_id)] == list(range(1, 1_203))


IMPOSSIBLE = ["999", "x", "-1", "", "7.0", "٧", "9" * 30, "01a22a9b-f4f2-7eef-9293-6a68af707de5"]


async def test_an_id_that_no_event_of_the_run_has_is_refused(
    ann: Person, run_id: str, subtests: pytest.Subtests
) -> None:
    """C103: never a silent gap."""
    for impossible in IMPOSSIBLE:
        with subtests.test(impossible):
            headers = [(b"Last-Event-ID", impossible.encode())]
            refused = await ann.http.get(f"/runs/{run_id}/events", headers=headers)
            assert (refused.status_code, refused.json()["code"]) == (422, "INPUT_INVALID")
    assert (await ann.http.get(f"/runs/{run_id}/events", params={"after": 999})).status_code == 422


@pytest.mark.parametrize(
    ("accept", "is_list"),
    [
        ("application/json", True),
        ("Application/JSON; charset=utf-8", True),
        ("application/json, text/plain, */*", True),
        ("text/event-stream;q=0.5, application/json", True),
        ("text/event-stream", False),
        ("text/event-stream, application/json", False),
        ("application/json;q=0, */*", False),
        ("*/*", False),
        ("text/html", False),
    ],
)
async def test_a_list_is_for_who_asks_for_json_by_name(
    ann: Person, store: Store, run_id: str, accept: str, is_list: bool
) -> None:
    """16: media types are the same in any letters, and have their order of preference."""
    await end(store, run_id)
    answer = await ann.http.get(f"/runs/{run_id}/events", headers={"Accept": accept})
    assert (answer.headers["content-type"] == "application/json") == is_list


async def test_the_same_events_come_as_a_list_in_pages(ann: Person, store: Store, run_id: str) -> None:
    """16: a JSON list with Accept: application/json."""
    await grow(store, run_id, 4)
    headers = {"Accept": "application/json"}
    first = (await ann.http.get(f"/runs/{run_id}/events", params={"limit": 3}, headers=headers)).json()
    assert [event["run_seq"] for event in first["items"]] == [1, 2, 3]
    rest = (await ann.http.get(f"/runs/{run_id}/events", params={"after": first["next"]}, headers=headers)).json()
    assert [event["run_seq"] for event in rest["items"]] == [4, 5]
    assert rest["next"] is None
    await end(store, run_id)
    assert first["items"] + rest["items"] == (await read_stream(ann, run_id))[:5]


async def test_a_long_poll_returns_when_the_run_ends_and_not_before(ann: Person, store: Store, run_id: str) -> None:
    """16: wait_s."""
    waiting = asyncio.create_task(ann.http.get(f"/runs/{run_id}", params={"wait_s": 30}))
    await grow(store, run_id, 1)
    short = await ann.http.get(f"/runs/{run_id}", params={"wait_s": 0.2})
    assert short.json()["status"] == "queued"
    assert not waiting.done()
    await end(store, run_id)
    async with asyncio.timeout(15):
        assert (await waiting).json()["status"] == "stopped"


async def test_a_stream_ends_with_the_key_that_opened_it(ann: Person, store: Store, run_id: str) -> None:
    """Y1: what happens after a key was revoked is not told to whoever holds it, however long the Run goes on."""
    made = (await ann.http.post("/keys", json={"user": "ann"})).json()
    headers = {"Authorization": f"Bearer {made['api_key']}", "Accept": "text/event-stream"}
    async with ann.http.stream("GET", f"/runs/{run_id}/events", headers=headers) as answer:
        events = EventSource(answer).aiter_sse()
        assert (await anext(events)).id == "1"
        assert (await ann.http.delete(f"/keys/{made['key_id']}")).status_code == 204
        await grow(store, run_id, 1)
        async with asyncio.timeout(15):
            assert [event.id async for event in events] == []
    assert (await ann.http.get(f"/runs/{run_id}/events", headers=headers)).status_code == 401
    assert [event["run_seq"] for event in await read_stream(ann, run_id, at_most=2)] == [1, 2]


async def made_for(who: Person) -> tuple[str, httpx.AsyncClient]:
    """Id of a second key of this person, and a client that sends it. The caller closes the client."""
    made = (await who.http.post("/keys", json={"user": "ann"})).json()
    headers = {"Authorization": f"Bearer {made['api_key']}"}
    http = httpx.AsyncClient(
        base_url=who.http.base_url, headers=headers, timeout=30, trust_env=False, verify=bundled_authorities()
    )
    return str(made["key_id"]), http


async def idle_compaction(who: Person, store: Store) -> str:
    """A compaction of another session, that nobody works on."""
    session_id = await opened(who)
    run_id = (await asked(who, session_id))["run_id"]
    await open_run(store, OpenRun(run_id=UUID(run_id), execution_no=1))
    await end(store, run_id)
    return str((await who.http.post(f"/sessions/{session_id}/compact")).json()["episode_id"])


async def let_wait(who: Person, address: str, *, requests: int) -> None:
    """Return when this many requests are held open, with that of this question."""
    while f"agentloom_http_open_requests {requests + 1}.0" not in (await who.http.get(f"{address}/metrics")).text:
        await asyncio.sleep(0.05)


async def test_a_long_poll_ends_with_the_key_that_asked(ann: Person, store: Store, address: str, run_id: str) -> None:
    """Y1: the answer of a Run that ends after the key was revoked is not told to whoever holds it."""
    key_id, http = await made_for(ann)
    async with http:
        waiting = asyncio.create_task(http.get(f"/runs/{run_id}", params={"wait_s": 60}))
        await let_wait(ann, address, requests=1)
        assert (await ann.http.delete(f"/keys/{key_id}")).status_code == 204
        await end(store, run_id)
        async with asyncio.timeout(15):
            refused = await waiting
    assert (refused.status_code, refused.json()["code"]) == (401, "UNAUTHENTICATED")
    assert refused.headers["www-authenticate"] == "Bearer"


class TestWithFrequentSignsOfLife:
    @pytest.fixture
    def options(self) -> ApiOptions:
        return ApiOptions(sign_of_life_s=0.2)

    async def test_what_waits_ends_with_its_key_although_nothing_happens(
        self, ann: Person, store: Store, address: str, run_id: str
    ) -> None:
        """Y1, 16: each kind of answer that is held open looks at its key while the Run is silent."""
        episode_id = await idle_compaction(ann, store)
        key_id, http = await made_for(ann)
        async with http:
            held = [
                http.get(f"/runs/{run_id}", params={"wait_s": 60}),
                http.get(f"/compactions/{episode_id}", params={"wait_s": 60}),
                http.get(f"/runs/{run_id}/events"),
            ]
            waiting = [asyncio.create_task(request) for request in held]
            await let_wait(ann, address, requests=3)
            assert (await ann.http.delete(f"/keys/{key_id}")).status_code == 204
            async with asyncio.timeout(15):
                assert [(await answer).status_code for answer in waiting] == [401, 401, 200]


async def test_streams_and_long_polls_do_not_hold_the_end_of_the_process(
    app: FastAPI, store: Store, ann: Person, run_id: str
) -> None:
    """16, R8: they are let go at once when the server is told to end, and the client comes back."""
    polling = asyncio.create_task(ann.http.get(f"/runs/{run_id}", params={"wait_s": 60}))
    streaming = asyncio.create_task(read_stream(ann, run_id))
    await grow(store, run_id, 1)
    await ann.http.get(f"/runs/{run_id}", params={"wait_s": 0.3})
    assert not polling.done()
    assert not streaming.done()
    app.state.services.close_soon()
    async with asyncio.timeout(15):
        assert [event["run_seq"] for event in await streaming] == [1, 2]
        assert (await polling).json()["status"] == "queued"

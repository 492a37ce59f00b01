"""Marker words that users, models and tools say are in no file, no history and no log (SPEC W1, Y2, Y6)."""

import logging
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from stack import postgres
from stack.ports import any_free_port
from storage.migrate import upgrade
from tests.support import replies
from tests.support.child_worker import WorkerNursery, place_of, worker_nursery
from tests.support.model_server import ModelServer
from tests.support.run_world import RunWorld, Servers, python_tool, running_world
from tests.support.servers import run_now, running_child, running_temporal

PLACES = (
    "instructions",
    "question",
    "supplement",
    "argument",
    "broken",
    "result",
    "raised",
    "answer",
    "fragment",
    "printed",
)
MARKS = {place: f"MARK-{place}-{secrets.token_hex(6)}" for place in PLACES}


async def a_run_that_says_everything(world: RunWorld, model: ModelServer) -> None:
    """Every mark passes through: two failed attempts, tools that answer, fail and get nonsense, a supplement."""
    regular = [python_tool(name, "idempotent") for name in ("pause", "say_aloud_async")]
    await world.publish(tools=["echo", "fail_loudly", "say_aloud", *regular], instructions=MARKS["instructions"])
    session = await world.open_session()
    broken = replies.text(MARKS["fragment"], pieces_of=5).but(break_after=120)
    asked = [
        ("echo", {"text": MARKS["result"]}),
        ("fail_loudly", {"words": MARKS["raised"]}),
        ("echo", '{"text": "' + MARKS["broken"]),
        ("pause", {"seconds": 0, "text": MARKS["argument"]}),
        ("say_aloud", {"words": MARKS["printed"]}),
        ("say_aloud_async", {"words": MARKS["printed"]}),
    ]
    model.add(replies.error(500, MARKS["raised"]), broken, replies.calls(*asked), MARKS["answer"])
    run_id = await world.start(MARKS["question"], session)
    await world.send(MARKS["supplement"], session, mode="supplement")
    run = await world.ended(run_id)
    assert (run["status"], run["answer"]) == ("succeeded", MARKS["answer"])
    model.add(replies.error(401, MARKS["raised"]))
    assert (await world.ask(MARKS["question"], session))["status"] == "failed"
    sent = b"".join(request.body for request in model.requests).decode()
    said = [mark for place, mark in MARKS.items() if place not in ("answer", "fragment", "broken")]
    assert all(mark in sent for mark in said), "the marks really were in use"


def found_in(folder: Path) -> list[str]:
    """Files that hold a mark, as UTF-8 or UTF-16, with the place of the mark."""
    hits = []
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        body = path.read_bytes()
        hits += [f"{path.name}: {place}" for place, mark in MARKS.items() if mark.encode() in body]
        hits += [f"{path.name}: {place}" for place, mark in MARKS.items() if mark.encode("utf-16-le") in body]
    return hits


async def histories(world: RunWorld) -> bytes:
    """All histories of the namespace, payloads as they are, as one piece."""
    bodies = []
    async for found in world.temporal.list_workflows():
        handle = world.temporal.get_workflow_handle(found.id, run_id=found.run_id)
        bodies += [event.SerializeToString() for event in (await handle.fetch_history()).events]
    assert bodies
    return b"".join(bodies)


@dataclass(frozen=True)
class Stack:
    """Servers that keep everything below `data`."""

    data: Path
    servers: Servers
    nursery: WorkerNursery


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """PostgreSQL, Temporal and workers of the test's own, with their logs in the same folder."""
    data = tmp_path / "data"
    server = postgres.prepare(data / "postgres", port=any_free_port(), password=secrets.token_urlsafe(12))
    with (
        running_child(server.child(log_file=data / "postgres.log")),
        running_temporal(data) as temporal,
        worker_nursery(data) as nursery,
    ):
        run_now(server.ensure_database())
        run_now(upgrade(server.url()))
        yield Stack(data, Servers(server.url(), temporal.address, "leaks", data), nursery)


async def test_no_word_of_a_conversation_is_on_disk_in_a_history_or_in_a_log(
    stack: Stack, caplog: pytest.LogCaptureFixture
) -> None:
    """Planted words are in no file of PostgreSQL, Temporal and worker, and in no log line of the API."""
    caplog.set_level(logging.DEBUG)
    async with (
        ModelServer(strict="plain") as model,
        running_world(stack.servers, model) as world,
        stack.nursery.worker(place_of(world)),
    ):
        await a_run_that_says_everything(world, model)
        told = await histories(world)
    assert found_in(stack.data) == []
    assert [place for place, mark in MARKS.items() if mark.encode() in told or mark in caplog.text] == []
    assert (stack.data / "worker.log").stat().st_size > 0


def test_the_search_for_marks_finds_one_that_is_there(tmp_path: Path) -> None:
    """The look would see a leak: a file with a mark in the middle of other bytes."""
    (tmp_path / "leak.bin").write_bytes(bytes(range(256)) + MARKS["answer"].encode() + b"\0")
    assert found_in(tmp_path) == ["leak.bin: answer"]

"""kill -9 of the worker at each commit of a compaction: no finished block is called again, the summary is the same.

Three earlier questions fill the window; the fourth is compacted in several blocks before its first request (SPEC K7).
"""

import re
from pathlib import Path

import pytest

from tests.support import replies
from tests.support.child_worker import WorkerNursery, WorkerPlace
from tests.support.faults import Fault
from tests.support.model_server import RecordedRequest
from tests.support.run_world import Json, RunWorld

SMALL: Json = {"model": {"context_window": 7_000, "max_output_tokens": 600}}
LONG = "Keep this in mind: " + "word " * 260
PART = re.compile(r"PART-(\d+)")
BLOCKS = 2

MATRIX = [
    ("prepare_request.before_commit", 4),
    ("prepare_request.after_commit", 4),
    *(
        (f"{commit}.{side}", 1)
        for commit in ("plan_episode", "publish_snapshot", "freeze_request")
        for side in ("before_commit", "after_commit")
    ),
    *(
        (f"{commit}.{side}", block)
        for commit in ("prepare_block", "finish_block")
        for side in ("before_commit", "after_commit")
        for block in range(1, BLOCKS + 1)
    ),
    *(("summarise_block.answered", block) for block in range(1, BLOCKS + 1)),
]
SAMPLE = [
    ("prepare_request.after_commit", 4),
    ("plan_episode.after_commit", 1),
    ("prepare_block.after_commit", 2),
    ("summarise_block.answered", 1),
    ("finish_block.before_commit", 2),
    ("finish_block.after_commit", 1),
    ("publish_snapshot.before_commit", 1),
    ("publish_snapshot.after_commit", 1),
    ("freeze_request.after_commit", 1),
]


# An idle Session's: opened by the workflow's first step, and nothing to freeze behind it.
IDLE_MATRIX = [
    *((f"open_idle_episode.{side}", 1) for side in ("before_commit", "after_commit")),
    *(place for place in MATRIX if not place[0].startswith(("prepare_request", "freeze_request"))),
]
IDLE_SAMPLE = [
    ("open_idle_episode.after_commit", 1),
    ("finish_block.after_commit", 1),
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every commit with --full-matrix, a sample of each kind without."""
    full = metafunc.config.getoption("--full-matrix")
    if "point" in metafunc.fixturenames:
        metafunc.parametrize(("point", "nth"), MATRIX if full else SAMPLE)
    if "idle_point" in metafunc.fixturenames:
        metafunc.parametrize(("idle_point", "nth"), IDLE_MATRIX if full else IDLE_SAMPLE)


def answered(request: RecordedRequest) -> replies.Reply:
    """What is said depends on the request alone: a summary counts how many went into it."""
    if not is_block(request):
        return replies.text("Noted.")
    earlier = [int(number) for number in PART.findall(request.body.decode())]
    return replies.text(f"PART-{max(earlier, default=0) + 1}")


def is_block(request: RecordedRequest) -> bool:
    return b"You write the summary" in request.body


async def test_a_worker_killed_at_any_commit_of_a_compaction_goes_on_at_the_cursor(
    world: RunWorld, nursery: WorkerNursery, place: WorkerPlace, tmp_path: Path, point: str, nth: int
) -> None:
    """SPEC K7, R2, case C046: what is finished is not called again; the summary is that of an undisturbed run."""
    reached = tmp_path / "reached"
    await world.publish(**SMALL)
    world.model.add(*[answered] * 12)
    session = await world.open_session()
    async with nursery.kept(place, Fault(point, str(reached), nth=nth)):
        for _ in range(3):
            await world.ask(LONG, session)
        run = await world.ask(LONG, session)
    assert reached.exists(), f"{point} was never passed {nth} times"
    assert (run["status"], run["answer"]) == ("succeeded", "Noted.")
    blocks = [request.body for request in world.model.requests if is_block(request)]
    unrecorded = point in ("summarise_block.answered", "finish_block.before_commit")
    assert (len(set(blocks)), len(blocks)) == (BLOCKS, BLOCKS + unrecorded)
    last = world.model.requests[-1].body.decode()
    assert PART.findall(last) == [str(BLOCKS)]
    assert world.model.refusals == []
    [episode] = await world.items(f"/runs/{run['run_id']}/compactions")
    assert await world.tasks_in_vain(f"compaction/{episode['episode_id']}") == []


async def test_a_worker_killed_at_any_commit_of_an_idle_sessions_compaction_goes_on_at_the_cursor(
    world: RunWorld, nursery: WorkerNursery, place: WorkerPlace, tmp_path: Path, idle_point: str, nth: int
) -> None:
    """SPEC K7, K12, R2: alone or for a Run, an episode is the same; the next Run begins with its summary."""
    reached = tmp_path / "reached"
    whole: Json = {"context": {"recent_runs": 0, "trigger_ratio": 1, "keep_recent_tokens": 0}}
    await world.publish(**(SMALL | whole))
    world.model.add(*[answered] * 12)
    session = await world.open_session()
    async with nursery.kept(place, Fault(idle_point, str(reached), nth=nth)):
        for _ in range(3):
            await world.ask(LONG, session)
        asked = await world.post(f"/sessions/{session}/compact", None, status=202)
        one = await world.get(f"/compactions/{asked['episode_id']}", wait_s=30)
        await world.ask("And now?", session)
    assert reached.exists(), f"{idle_point} was never passed {nth} times"
    assert (one["status"], one["outcome"]) == ("succeeded", "activated")
    blocks = [request.body for request in world.model.requests if is_block(request)]
    unrecorded = idle_point in ("summarise_block.answered", "finish_block.before_commit")
    assert (len(set(blocks)), len(blocks)) == (BLOCKS, BLOCKS + unrecorded)
    assert PART.findall(world.model.requests[-1].body.decode()) == [str(BLOCKS)]
    assert world.model.refusals == []
    assert await world.tasks_in_vain(f"compaction/{asked['episode_id']}") == []

"""kill -9 of the worker just before a second summary is published: the first one stands meanwhile (SPEC K7, K9)."""

from pathlib import Path

from tests.support import replies
from tests.support.child_worker import WorkerNursery, WorkerPlace
from tests.support.faults import Fault
from tests.support.long_sessions import is_block
from tests.support.model_server import RecordedRequest
from tests.support.replies import Reply
from tests.support.run_world import RunWorld


class Steps:
    """Calls a tool with long output until it has done so a dozen times; each summary says which one it is."""

    def __init__(self) -> None:
        self.steps = self.summaries = 0

    def __call__(self, request: RecordedRequest) -> Reply | str:
        if is_block(request):
            self.summaries += 1
            return f"SUMMARY-{self.summaries}"
        self.steps += 1
        return replies.calls(("repeat", {"text": "z", "times": 1_200})) if self.steps <= 12 else "done"


async def test_a_worker_killed_before_a_summary_is_published_leaves_the_old_one_active(
    world: RunWorld, nursery: WorkerNursery, place: WorkerPlace, tmp_path: Path
) -> None:
    """SPEC K7, K9: nothing of the history is lost; the next worker publishes what was written, asking nobody."""
    reached = tmp_path / "reached"
    await world.publish(tools=["repeat"], model={"context_window": 8_000, "max_output_tokens": 1_000})
    world.model.add(*[Steps()] * 40)
    session = await world.open_session()
    async with nursery.worker(place, Fault("publish_snapshot.before_commit", str(reached), nth=2)) as worker:
        run_id = await world.start("The question that must stay.", session)
        await worker.gone()
    assert reached.exists()
    first, second = await world.items(f"/runs/{run_id}/compactions")
    assert (first["outcome"], second["status"], second["snapshot_id"]) == ("activated", "running", None)
    assert (second["cursor"], second["blocks"]) == (1, 1)
    shown = (await world.manifests(run_id))[-2]
    assert [item["source_id"] for item in shown["items"] if item["kind"] == "summary"] == [first["snapshot_id"]]
    before = await world.messages(session)
    assert (await world.get(f"/sessions/{session}/verify"))["breaks"] == []
    summaries = sum(map(is_block, world.model.requests))
    async with nursery.worker(place):
        run = await world.ended(run_id)
    assert (run["status"], run["answer"], run["loops"]) == ("succeeded", "done", 13)
    published = (await world.items(f"/runs/{run_id}/compactions"))[1]
    assert (published["outcome"], published["previous_snapshot_id"]) == ("activated", first["snapshot_id"])
    assert summaries == first["blocks"] + second["blocks"]
    written = f"SUMMARY-{summaries}\n".encode("unicode_escape")
    assert any(written in request.body for request in world.model.requests if not is_block(request))
    assert len({one.body for one in world.model.requests if is_block(one)}) == sum(map(is_block, world.model.requests))
    assert (await world.messages(session))[: len(before)] == before

"""Where the counting triggers count from, over continue-as-new and over Runs that are resumed later (SPEC B2)."""

from tests.acceptance.test_life_of_inputs import continuing, short_histories
from tests.support import replies
from tests.support.compactions import SUMMARY, Answers, is_summary, repeated, scripted
from tests.support.model_server import RecordedRequest
from tests.support.run_world import Json, RunWorld

__all__ = ["continuing", "short_histories"]


async def causes(world: RunWorld, run_id: str) -> list[tuple[list[str], str]]:
    """Why each compaction of a Run was made, and what became of it."""
    found = await world.items(f"/runs/{run_id}/compactions")
    return [(one["causes"], one["outcome"]) for one in found]


def until_compacted(answers: list[str]) -> Answers:
    """A model that works on until a summary was asked for, then answers."""
    summaries: list[str] = []

    def answer(request: RecordedRequest) -> replies.Reply | str:
        if is_summary(request):
            summaries.append(SUMMARY)
            return SUMMARY
        return answers.pop(0) if summaries else repeated(300).but(delay_s=0.05)

    return answer


async def test_steps_are_counted_on_over_continuations(continuing: RunWorld) -> None:
    """SPEC B2, W4: every fifth answer, wherever the workflow went on as a new execution."""
    world = continuing
    context: Json = {"model_steps": 5, "keep_recent_tokens": 0}
    await world.publish(tools=["repeat"], limits={"max_loops": 40}, context=context)
    world.model.add(*[scripted([repeated(200)] * 16 + ["done"])] * 30)
    run = await world.ask()
    assert run["status"] == "succeeded"
    assert await causes(world, run["run_id"]) == [(["model_steps"], "activated")] * 3
    waited = [one["operation_id"] for one in await world.items(f"/runs/{run['run_id']}/compactions")]
    calls = [one["operation_id"] for one in await world.operations(run["run_id"]) if one["purpose"] == "business"]
    assert [calls.index(one) for one in waited] == [5, 10, 15]
    executions = [one async for one in world.temporal.list_workflows(f"WorkflowId = 'run/{run['run_id']}'")]
    assert len(executions) > 2


async def test_a_success_in_an_older_run_that_was_resumed_is_the_sessions_last(world: RunWorld) -> None:
    """SPEC B2, S9, S11: A, B, C, then A again, which compacts: four questions later the next is due, in any Run."""
    context: Json = {"user_turns": 4, "keep_recent_tokens": 0, "recent_runs": 9}
    await world.publish(tools=["repeat"], context=context)
    session = await world.open_session()
    world.model.add(*[scripted([repeated(600), replies.error(401), "b", "c"])] * 4)
    first = await world.ask("A.", session)
    assert first["status"] == "failed"
    for name in "BC":
        assert (await world.ask(f"{name}.", session))["status"] == "succeeded"
    world.model.add(*[until_compacted(["a", "d", "e", "f", "g"])] * 40)
    await world.resume(first["run_id"])
    await world.model.wait_for_requests(5)
    await world.post(f"/sessions/{session}/compact", None, status=202)
    assert (await world.ended(first["run_id"]))["answer"] == "a"
    assert await causes(world, first["run_id"]) == [(["manual"], "activated")]
    later = [await world.ask(f"{name}. " + "Mind this. " * 40, session) for name in "DEFG"]
    found = [await causes(world, run["run_id"]) for run in later]
    assert found == [[], [], [], [(["user_turns"], "activated")]]
    assert (await world.get(f"/sessions/{session}/verify"))["breaks"] == []

"""The results that a summary stands for, as its message lists them (SPEC T5, K2, K10, A3, A9)."""

import re
from uuid import UUID

from storage.for_release import StoredResults
from tests.support.compactions import SMALL, business_of, repeated, scripted
from tests.support.run_world import Json, RunWorld

HEADING = "=== tool and result_ref of results summarised here"
LISTED = re.compile(r"^(\(older ones\)|[\w.:-]+) ([0-9a-f-]{36})$", re.MULTILINE)


def lists_of(messages: list[Json]) -> list[list[tuple[str, str]]]:
    """What each summary in a request lists."""
    shown = [message for message in messages if HEADING in str(message["content"])]
    assert {message["role"] for message in shown} <= {"user"}
    return [LISTED.findall(message["content"]) for message in shown]


async def test_a_summary_lists_the_results_it_stands_for_and_a_folded_one_goes_on(world: RunWorld) -> None:
    """SPEC T5, K14, A9: in their order, bounded; older ones are in a list that result_read reads."""
    await world.publish(tools=["repeat"], **SMALL)
    world.model.add(*[scripted([repeated(900)] * 14 + ["done"])] * 40)
    run = await world.ask()
    assert run["status"] == "succeeded"
    calls = [one["operation_id"] for one in await world.operations(run["run_id"]) if one["purpose"] == "tool"]
    lists = [found for sent in business_of(world.model.requests) for found in lists_of(sent)]
    firsts, lasts = lists[0], lists[-1]
    assert [tool for tool, _ in firsts] == ["repeat"] * len(firsts)
    assert [ref for _, ref in firsts] == calls[: len(firsts)]
    named = [ref for tool, ref in lasts if tool == "repeat"]
    assert named == calls[calls.index(named[0]) :][: len(named)]
    assert lasts[0][0] == "(older ones)"
    assert calls.index(named[0]) > 0
    for episode in await world.items(f"/runs/{run['run_id']}/compactions"):
        assert episode["reaches_target"]
        assert episode["tokens_after"] < episode["tokens_before"]
    assert (await world.get(f"/sessions/{run['session_id']}/verify"))["breaks"] == []


async def test_the_list_of_all_is_only_for_its_own_session(world: RunWorld) -> None:
    """SPEC Y1, T5: another session's summary is as unknown as another session's result."""
    await world.publish(tools=["repeat"], **SMALL)
    world.model.add(*[scripted([repeated(1_200)] * 6 + ["done"])] * 20)
    run, other = await world.ask(), await world.open_session()
    snapshots = [one["snapshot_id"] for one in await world.items(f"/runs/{run['run_id']}/compactions")]
    read = StoredResults(world.store)
    whole = await read(snapshots[-1], UUID(run["session_id"])) or ""
    calls = [one["operation_id"] for one in await world.operations(run["run_id"]) if one["purpose"] == "tool"]
    assert whole.splitlines() == [f"repeat {one}" for one in calls[: len(whole.splitlines())]]
    assert len(whole.splitlines()) > len((await read(snapshots[0], UUID(run["session_id"])) or "").splitlines()) > 0
    assert await read(snapshots[-1], UUID(other)) is None

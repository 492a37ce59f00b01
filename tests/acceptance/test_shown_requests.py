"""`agentloom show …` on a Run with a supplement, tools and compactions: what a person reads, and what programs get."""

import json
import re
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest

from tests.acceptance.test_commands_of_a_run import Said, command
from tests.support import replies
from tests.support.compactions import SMALL, business_of, repeated, scripted
from tests.support.run_world import RunWorld

Json = dict[str, Any]


@dataclass(frozen=True)
class Scene:
    """An ended Run that was compacted, and its calls."""

    world: RunWorld
    run: Json
    business: list[str]
    tool: str

    async def show(self, *arguments: str) -> Said:
        return await command(self.world, "show", *arguments)

    async def json(self, *arguments: str) -> Any:
        shown = await self.show(*arguments, "--json")
        assert (shown.code, shown.err) == (0, "")
        return json.loads(shown.out)


@pytest.fixture
async def scene(world: RunWorld) -> Scene:
    await world.publish(tools=["repeat"], **SMALL)
    world.model.add(repeated(1_200).but(hold="first"), *[scripted([*[repeated(1_200)] * 6, "all done"])] * 20)
    session = await world.open_session()
    run_id = await world.start("The question that must stay.", session)
    await world.model.wait_for_requests(1)
    await world.send("And [bold]mind[/] this.", session, mode="supplement")
    world.model.release("first")
    run = await world.ended(run_id)
    assert run["status"] == "succeeded"
    operations = await world.operations(run_id)
    business = [one["operation_id"] for one in operations if one["purpose"] == "business"]
    return Scene(world, run, business, next(one["operation_id"] for one in operations if one["purpose"] == "tool"))


async def test_view_and_manifest_show_the_budget_and_each_message_with_its_size_and_source(scene: Scene) -> None:
    """SPEC 17, A8, B1: the parts of the window add up to it; long messages are cut unless --whole."""
    shown = await scene.show("view", scene.run["run_id"])
    assert (shown.code, shown.err) == (0, "")
    lines = shown.out.splitlines()
    assert lines[0].startswith(
        f"request {scene.business[-1]} · loop {scene.run['loops']} · business · scripted · accepted"
    )
    assert re.match(r"window 8000 · input \d+ of B 6744 tokens \(\d+%\) · compaction from 5395 · ", lines[1])
    assert re.fullmatch(r"\[S+T+C+H+I+\.+R+-+\]", lines[2])
    parts = {row[1]: int(row[2]) for row in (re.split(r"\s{2,}", line) for line in lines[4:12])}
    assert sum(parts.values()) == 8_000
    assert (parts["output reserve"], parts["safety margin"]) == (1_000, 256)
    titles = [line for line in lines if line.startswith("── ")]
    assert len(titles) == len(business_of(scene.world.model.requests)[-1])
    assert titles[0].startswith("── 1 system · system · ")
    assert titles[1].startswith("── 2 user · summary · ")
    assert titles[2].startswith("── 3 user · protected input · ")
    assert "SUMMARY: goals kept." in shown.out
    assert "And [bold]mind[/] this." in shown.out
    assert "… 200 more characters (--whole)" in shown.out
    assert "z" * 1_200 in (await scene.show("view", scene.run["run_id"], "--whole")).out
    listed = (await scene.show("manifest", scene.run["run_id"])).out
    question = (await scene.world.inputs(scene.run["run_id"]))[0]["input_id"]
    assert re.search(rf"^3 +input +protected +\d+ +{question} +[0-9a-f]{{12}}", listed, re.MULTILINE)
    assert re.search(r"^2 +summary +history .*history_compaction", listed, re.MULTILINE)
    assert "transform: history_compaction" in listed


async def test_every_show_command_has_a_form_for_programs(scene: Scene) -> None:
    """SPEC 17: one line of JSON, which holds what the API answers."""
    run_id = scene.run["run_id"]
    viewed = await scene.json("view", run_id)
    assert viewed["messages"] == business_of(scene.world.model.requests)[-1]
    assert viewed["budget"] == {
        "context_window": 8_000,
        "output_reserve": 1_000,
        "safety_margin": 256,
        "trigger": 5_395,
    }
    assert (await scene.json("manifest", scene.business[0]))["operation_id"] == scene.business[0]
    assert len(await scene.json("compactions", run_id)) == len(await scene.world.items(f"/runs/{run_id}/compactions"))
    assert (await scene.json("explain", run_id, "--input", "1"))["explanation"] == "included"
    assert (await scene.json("diff", scene.business[1]))["compared_with"] == scene.business[0]
    assert (await scene.json("inputs", run_id))[1]["text"] == "And [bold]mind[/] this."


async def test_compactions_say_what_they_gained_and_cover(scene: Scene) -> None:
    """SPEC K13, 17: how far, from what to what, which records."""
    found = await scene.world.items(f"/runs/{scene.run['run_id']}/compactions")
    shown = (await scene.show("compactions", scene.run["run_id"])).out
    first = found[0]
    assert f"── 1 auto (budget) · in use · episode {first['episode_id']}" in shown
    assert f"block {first['blocks']} of {first['blocks']} · {first['calls']} call" in shown
    assert re.search(rf"before \[#{{20}}\] {first['tokens_before']} tokens", shown)
    assert re.search(rf"after  \[#+\.+\] {first['tokens_after']} tokens \(\d+%\)", shown)
    assert f"covers {first['pieces']} pieces: records " in shown
    assert f"with all that the summary before it covered: snapshot {first['snapshot_id']}" in shown


async def test_explain_says_what_became_of_a_piece_and_diff_what_became_of_all(scene: Scene) -> None:
    """SPEC A10, 17: by id or by the number that a person sees; against the request before, or any."""
    world, run_id = scene.world, scene.run["run_id"]
    records = [one for one in await world.messages(scene.run["session_id"]) if one["kind"] == "tool_result"]
    snapshot = (await world.items(f"/runs/{run_id}/compactions"))[-1]["snapshot_id"]
    old = await scene.show("explain", run_id, "--record", str(records[0]["seq"]))
    assert f"record/{records[0]['record_id']} was replaced by a summary, message 2 of the request" in old.out
    assert snapshot in old.out
    early = await scene.show("explain", scene.business[0], "--record", records[0]["record_id"])
    assert "had not arrived yet" in early.out
    assert "was in the request, as message 3, as it is" in (await scene.show("explain", run_id, "--input", "1")).out
    late = await scene.show("explain", scene.business[0], "--input", "2")
    assert "had not arrived yet: the request ends with number 1" in late.out
    grown = await scene.show("diff", scene.business[1])
    assert "the first 2 messages are the same, of 2 before and 5 now" in grown.out
    assert len(re.findall(r"^\+ +added ", grown.out, re.MULTILINE)) == 3
    shrunk = await scene.show("diff", scene.run["run_id"], scene.business[1])
    assert re.search(r"^C +summarised +3 +assistant ", shrunk.out, re.MULTILINE)
    assert re.search(r"^\+ +added +2 +summary ", shrunk.out, re.MULTILINE)


async def test_what_can_not_be_shown_says_why_and_what_can(scene: Scene, subtests: pytest.Subtests) -> None:
    """SPEC 17: three lines, the next command, exit code 4 (2 for usage)."""
    unknown, run_id = str(UUID(int=1)), scene.run["run_id"]
    cases: list[tuple[tuple[str, ...], int, str, str]] = [
        (("view", unknown), 4, unknown, ""),
        (("view", scene.tool), 4, "is a call of the tool repeat", f"agentloom show operations {run_id}"),
        (("explain", run_id), 2, "Name a record or an input", "agentloom show explain"),
        (("explain", run_id, "--input", "99"), 4, "has no input 99", "agentloom show inputs"),
        *(
            (("explain", run_id, "--record", number), 4, f"has no record {number}", "agentloom sessions messages")
            for number in ("999", "0", "9" * 30)
        ),
        (("explain", run_id, "--record", "x"), 4, "There is no record x.", "agentloom sessions messages"),
        (("diff", scene.business[0]), 4, "no request before this one", "agentloom show diff"),
        (("compactions", unknown), 4, unknown, ""),
    ]
    for arguments, code, said, mend in cases:
        with subtests.test(" ".join(arguments[:1])):
            shown = await scene.show(*arguments)
            assert (shown.code, shown.out) == (code, "")
            assert said in shown.err
            assert mend in shown.err
            assert len(shown.err.splitlines()) <= 3


async def test_a_request_can_be_seen_while_the_model_answers(world: RunWorld) -> None:
    """SPEC 17, A9: what was sent is stored before it is sent."""
    await world.publish()
    world.model.add(replies.text("done").but(hold="answer"))
    run_id = await world.start()
    await world.model.wait_for_requests(1)
    shown = await command(world, "show", "view", run_id)
    assert "· calling · validation passed" in shown.out
    assert (await command(world, "show", "compactions", run_id)).out.startswith("no compaction")
    world.model.release("answer")
    await world.ended(run_id)

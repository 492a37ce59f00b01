"""Texts that break naive software (cases of kinds text and tokens)."""

import json

from tests.support import replies
from tests.support.run_world import Json, RunWorld


async def test_lone_surrogates_wedge_nothing(world: RunWorld) -> None:
    """Case C061, SPEC Y5: refused from a user by field, made encodable from a model and a tool; the raw reply stays."""
    await world.publish(tools=["half"])
    session = await world.open_session()
    body = b'{"text": "bad \\ud83d tail"}'
    refused = await world.http.post(
        f"/sessions/{session}/inputs", content=body, headers={"content-type": "application/json"}
    )
    assert refused.status_code == 422
    deltas: list[Json] = [
        {"content": "x\ud83d"},
        {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "half", "arguments": "{}"}}]},
    ]
    world.model.add(replies.deltas_reply(deltas, finish_reason="tool_calls"), "ok")
    run = await world.ask("valid question", session)
    assert (run["status"], world.model.refusals) == ("succeeded", [])
    for request in world.model.requests:
        request.body.decode()
    operations = await world.operations(run["run_id"])
    assert [one["transforms"] for one in operations] == [["lone_surrogates_replaced"]] * 2 + [[]]
    call, tool = [await world.get(f"/operations/{one['operation_id']}/result", view="raw") for one in operations[:2]]
    assert "\\ud83d" in call["result"]
    assert (tool["result"], tool["encoding"], tool["media_type"]) == ('"temp \\udcb0"', "text", "application/json")


SPECIAL = "see <|endoftext|> and <|im_start|>system and <|fim_prefix|>"


async def test_special_token_text_is_text(world: RunWorld) -> None:
    """Case C058, SPEC B4: in the question, a result, a tool's description; sent unchanged, counted in silence."""
    tool = {"kind": "python", "name": "echo", "entry": "tests.support.run_tools:echo", "description": SPECIAL}
    await world.publish(tools=[tool | {"effect": "read_only"}], model={"encoding": "o200k_base"})
    world.model.add(replies.calls(("echo", {"text": SPECIAL})), "ok", "ok")
    session = await world.open_session()
    assert (await world.ask(SPECIAL, session))["status"] == "succeeded"
    assert (await world.ask("next", session))["status"] == "succeeded"
    contents = [message["content"] for message in world.sent[1]]
    assert contents[1] == SPECIAL
    assert contents[3] == SPECIAL


async def test_chinese_text_and_schemas_are_not_undercounted(world: RunWorld) -> None:
    """Case C057, SPEC B4: an unknown model is estimated, at least one token per two characters, tools included."""
    chinese = "重跑悬空引用清零校验" * 200
    tool = {"kind": "python", "name": "echo", "entry": "tests.support.run_tools:echo", "effect": "read_only"}
    world.model.add("ok", "ok")
    plain = await world.ask(chinese)
    await world.publish("with-tool", tools=[tool | {"description": chinese}])
    described = await world.ask(chinese, await world.open_session("with-tool"))
    sizes = [(await world.manifests(run["run_id"]))[0] for run in (plain, described)]
    assert sizes[0]["exact"] is False
    assert sizes[0]["estimated_input_tokens"] >= len(chinese) // 2
    assert sizes[1]["estimated_input_tokens"] - sizes[0]["estimated_input_tokens"] >= len(chinese) // 2


async def test_a_schema_for_the_answer_counts_like_any_other(world: RunWorld) -> None:
    """SPEC B1, B4: what stands in `parameters` is sent with each request, and a model reads it."""
    shape = {"type": "object", "description": "z" * 10_000}
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": shape}}
    plain: Json = {"provider": "openai", "model": "gpt-4o"}
    sizes = []
    for name, model in (("plain", plain), ("formed", plain | {"parameters": {"response_format": form}})):
        await world.publish(name, model=model)
        world.model.add("{}")
        run = await world.ask("hello", await world.open_session(name))
        sizes.append((await world.manifests(run["run_id"]))[0])
    assert sizes[1]["estimated_input_tokens"] - sizes[0]["estimated_input_tokens"] > 1_000
    assert [size["exact"] for size in sizes] == [True, False]
    too_long = {"response_format": form | {"more": "z" * 30_000}}
    await world.publish("too-long", model={"parameters": too_long})
    run = await world.ask("hello", await world.open_session("too-long"))
    assert (run["end_reason"], len(world.model.requests)) == ("context_too_large", 2)


async def test_a_question_of_two_hundred_thousand_characters_and_a_result_of_three_megabytes(world: RunWorld) -> None:
    """SPEC W1, T9: neither touches a limit of Temporal; the model gets the one whole and the other in part."""
    await world.publish(tools=["repeat"], model={"context_window": 2_000_000})
    world.model.add(replies.calls(("repeat", {"text": "0123456789", "times": 300_000})), "done")
    question = "Zahlen " * 28_572
    run = await world.ask(question)
    assert run["status"] == "succeeded"
    assert world.sent[1][1]["content"] == question
    history = await world.workflow(run["run_id"]).fetch_history()
    assert len(json.dumps(history.to_json_dict())) < 40_000


async def test_a_count_is_exact_only_without_tools(world: RunWorld) -> None:
    """SPEC B4: how messages are counted is documented for the model; how schemas and calls are is not."""
    model = {"provider": "openai", "model": "gpt-4o"}
    await world.publish("plain", model=model)
    await world.publish("with-tool", tools=["now"], model=model)
    world.model.add("ok", "ok")
    runs = [await world.ask("hello", await world.open_session(agent)) for agent in ("plain", "with-tool")]
    exact = [(await world.manifests(run["run_id"]))[0]["exact"] for run in runs]
    assert exact == [True, False]

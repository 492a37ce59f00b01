"""The keys of a release's connections are stored nowhere, whoever brings them back (SPEC L6, Y3)."""

from pathlib import Path
from typing import Any

import pytest

from tests.support import replies
from tests.support.run_world import Json, RunWorld, python_tool
from tests.support.tool_server import Answer, Received, tool_server

MODELS, SHOPS, NEW = "sk-models-0815-abcdef", "sk-shops-4711-abcdef", "sk-rotated-1234-abcdef"
REMOVED = "[credential removed]"


async def keep_key(world: RunWorld, name: str, key: str, provider: str = "tool") -> None:
    """Store a connection; the model's stands for the scripted model."""
    address = {"base_url": world.model.base_url} if provider != "tool" else {}
    answer = await world.http.put(f"/connections/{name}", json={"provider": provider, "api_key": key} | address)
    assert answer.status_code == 200, answer.text


async def published(world: RunWorld, url: str) -> None:
    """An agent whose model has a key, as has one of its tools; two others have none."""
    await keep_key(world, "models", MODELS, "openai_compatible")
    await keep_key(world, "shops", SHOPS)
    plain: Json = {"kind": "http", "name": "plain", "url": url, "effect": "read_only"}
    tools: list[Any] = [python_tool("read"), plain, plain | {"name": "shop", "connection": "shops"}]
    await world.publish(tools=tools, model={"connection": "models"})


async def everything_said(world: RunWorld, run: Json) -> str:
    """What the model was sent, what is kept as messages, and each raw result."""
    said = [request.body.decode() for request in world.model.requests]
    said.append(str(await world.messages(run["session_id"])))
    for one in await world.operations(run["run_id"]):
        answer = await world.http.get(f"/operations/{one['operation_id']}/result", params={"view": "raw"})
        said.append(answer.text)
    return "".join(said)


@pytest.mark.parametrize("spelt", [f"{MODELS} {SHOPS}", "\\u0073k-models-0815-abcdef sk\\u002dshops-4711-abcdef"])
async def test_a_key_that_any_tool_brings_back_is_replaced(world: RunWorld, tmp_path: Path, spelt: str) -> None:
    """SPEC Y3, L6: a file, a page or an error that holds the key of the model, or that of another tool."""
    (tmp_path / "env").write_text(spelt)
    async with tool_server(Answer(body=f'{{"env": "{spelt}"}}'.encode())) as server:
        await published(world, server.url)
        world.model.add(replies.calls(("read", {"path": str(tmp_path / "env")}), ("plain", {}), ("shop", {})), "done")
        run = await world.ask()
    assert run["status"] == "succeeded"
    said = await everything_said(world, run)
    assert said.count(REMOVED) >= 6
    assert not [piece for piece in ("models-0815", "shops-4711") if piece in said]
    tools = [one for one in await world.operations(run["run_id"]) if one["purpose"] == "tool"]
    assert [one["transforms"] for one in tools] == [["credential_removed"]] * 3


async def test_what_a_server_says_at_the_last_try_is_kept_without_keys_too(world: RunWorld) -> None:
    """SPEC Y3, T9: a refusal that leaves the call open travels another way."""

    async def refuse(request: Received) -> Answer:
        return Answer(503, f"who sent {MODELS}?".encode(), {"Content-Type": "text/plain", "Retry-After": "86400"})

    async with tool_server(refuse) as server:
        await published(world, server.url)
        world.model.add(replies.calls(("plain", {})), "done")
        run = await world.ask()
    said = await everything_said(world, run)
    assert MODELS not in said
    assert f"who sent {REMOVED}?" in said


async def test_a_tools_key_that_the_model_repeats_is_replaced(world: RunWorld) -> None:
    """SPEC L6: a person typed it; the question stays as it was received, and nothing else holds it."""
    async with tool_server(Answer(body=b"{}")) as server:
        await published(world, server.url)
        world.model.add(replies.calls(("plain", {"note": SHOPS})), f"I used {SHOPS}.")
        run = await world.ask(f"use {SHOPS}")
    assert run["answer"] == f"I used {REMOVED}."
    assert server.requests[0].body.decode() == f'{{"note":"{REMOVED}"}}'
    kept = [one for one in await world.messages(run["session_id"]) if one["message"]["role"] != "user"]
    assert SHOPS not in str(kept)


async def test_a_new_key_is_known_as_soon_as_it_is_used(world: RunWorld, tmp_path: Path) -> None:
    """SPEC L6: and the one before it is not forgotten."""
    async with tool_server(Answer(body=b"{}")) as server:
        await published(world, server.url)
        world.model.add("hello")
        await world.ask()
        await keep_key(world, "models", NEW, "openai_compatible")
        (tmp_path / "env").write_text(f"{NEW} {MODELS}")
        world.model.add(replies.calls(("read", {"path": str(tmp_path / "env")})), "done")
        await world.ask()
    assert world.model.requests[-1].headers["authorization"] == f"Bearer {NEW}"
    assert world.sent[-1][-1]["content"] == f"{REMOVED} {REMOVED}"

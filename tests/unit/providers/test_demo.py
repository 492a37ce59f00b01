"""The offline demo model: real work by plain rules, honest about what it is, over the same wire as any model."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from context.messages import ChatMessage, ToolCall
from context.policy import FrozenTool
from context.replies import ModelReply
from egress.client import build_client
from providers.chat import ChatClient, ModelTarget
from providers.demo.conversation import read_request
from providers.demo.extraction import keywords, sentences_of
from providers.demo.rules import _PATH, NOTICE, next_step
from providers.demo.server import DemoServer, serve
from providers.profiles import profile_for
from tests.support.bodies import build_body
from tests.support.strict_chat import violations

QUESTION = "How does a run survive a crash of the worker?"
FILES = {
    "docs/architecture.md": "# Architecture\n\nA run survives a crash because its history is kept.\n",
    "docs/operations.md": "# Operations\n\nA worker that crashes is replaced within a second by another worker.\n",
    "docs/glossary.md": "# Glossary\n\nA session is one conversation with one agent, and nothing else.\n",
    "src/worker.py": "print('hello')\n",
}


def list_files(folder: str = "") -> str:
    return json.dumps([name for name in FILES if name.startswith(folder)])


def read_file(path: str) -> str:
    return FILES[path]


def search_files(words: str) -> str:
    found = [name for name, body in FILES.items() if all(word in body.lower() for word in words.split())]
    return json.dumps([{"path": name} for name in found])


def frozen(name: str, required: Mapping[str, Any], optional: Mapping[str, Any] | None = None) -> FrozenTool:
    schema = {"type": "object", "properties": {**required, **(optional or {})}, "required": list(required)}
    return FrozenTool(name=name, description="", parameters=schema, kind="python", entry_name=name)


TEXT = {"type": "string"}
TOOLS = [
    frozen("list_files", {}, {"folder": TEXT}),
    frozen("read_file", {"path": TEXT}),
    frozen("search_files", {"words": TEXT}),
]
FUNCTIONS: dict[str, Callable[..., str]] = {
    "list_files": list_files,
    "read_file": read_file,
    "search_files": search_files,
}


@pytest.fixture
async def demo() -> AsyncIterator[DemoServer]:
    server = await serve()
    yield server
    await server.aclose()


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with build_client(private_addresses="loopback") as client:
        yield client


def request_for(messages: list[ChatMessage], tools: list[FrozenTool]) -> bytes:
    return build_body(
        profile=profile_for("demo"),
        model="demo",
        messages=messages,
        tools=tools,
        max_output_tokens=4_096,
        parameters={},
    )


async def ask(http: httpx.AsyncClient, demo: DemoServer, body: bytes) -> ModelReply:
    async def nothing() -> None:
        """No evidence is kept."""

    to = ModelTarget(demo.base_url, None)
    done = await ChatClient(http).complete(to, body, on_first_output=nothing, on_bytes=lambda: None)
    return done.reply


async def run(
    http: httpx.AsyncClient, demo: DemoServer, tools: list[FrozenTool], functions: Mapping[str, Callable[..., str]]
) -> tuple[list[ChatMessage], ModelReply]:
    """A loop as the platform makes it; the messages and the final answer."""
    messages = [ChatMessage(role="system", content="You answer."), ChatMessage(role="user", content=QUESTION)]
    for _ in range(10):
        body = request_for(messages, tools)
        assert violations(body) == []
        reply = await ask(http, demo, body)
        if not reply.calls:
            return messages, reply
        asked = tuple(
            ToolCall(call_id=call.provider_id or "", name=call.name, arguments=call.arguments) for call in reply.calls
        )
        messages.append(ChatMessage(role="assistant", tool_calls=asked))
        for call in asked:
            result = functions[call.name](**json.loads(call.arguments))
            messages.append(ChatMessage(role="tool", tool_call_id=call.call_id, content=result))
    raise AssertionError("no answer within ten steps")


async def test_it_works_through_files_in_several_steps_and_quotes_them(
    http: httpx.AsyncClient, demo: DemoServer
) -> None:
    """SPEC 18: tools by plain rules, and the answer names its sources."""
    messages, reply = await run(http, demo, TOOLS, FUNCTIONS)
    called = [call.name for message in messages for call in message.tool_calls]
    assert called[:2] == ["list_files", "search_files"]
    assert "read_file" in called
    assert reply.content is not None
    assert "survives a crash because its history is kept" in reply.content
    assert "(docs/architecture.md)" in reply.content


async def test_of_what_a_search_found_it_reads_the_first_first(http: httpx.AsyncClient, demo: DemoServer) -> None:
    """SPEC 18: whoever searched knows best what the documents speak of; their names are in no order of worth."""
    found = {
        "search_files": lambda words: json.dumps([{"path": "docs/operations.md"}, {"path": "docs/architecture.md"}])
    }
    messages, _ = await run(http, demo, TOOLS, FUNCTIONS | found)
    read = [call.arguments for message in messages for call in message.tool_calls if call.name == "read_file"]
    assert "docs/operations.md" in read[0]


async def test_it_says_in_every_text_that_it_is_no_language_model(http: httpx.AsyncClient, demo: DemoServer) -> None:
    """SPEC 18."""
    texts = []
    for system, tools in (
        ("You answer.", []),
        ("Write a summary.", []),
        ("You answer.", [frozen("other", {"x": TEXT})]),
    ):
        messages = [ChatMessage(role="system", content=system), ChatMessage(role="user", content=QUESTION)]
        texts.append((await ask(http, demo, request_for(messages, tools))).content)
    texts.append((await run(http, demo, TOOLS, FUNCTIONS))[1].content)
    assert all(text is not None and text.startswith(NOTICE) for text in texts)


async def test_the_same_request_gets_the_same_answer(http: httpx.AsyncClient, demo: DemoServer) -> None:
    """SPEC 18: deterministic, ids included."""
    body = request_for([ChatMessage(role="user", content=QUESTION)], TOOLS)
    assert await ask(http, demo, body) == await ask(http, demo, body)


async def test_it_reports_usage_and_a_model_name(http: httpx.AsyncClient, demo: DemoServer) -> None:
    """SPEC L5: as a real server does."""
    reply = await ask(http, demo, request_for([ChatMessage(role="user", content=QUESTION)], TOOLS))
    assert reply.usage.input_tokens
    assert reply.usage.output_tokens
    assert reply.provider_model == "demo"


def step_for(messages: list[dict[str, Any]], tools: list[FrozenTool]) -> list[tuple[str, Mapping[str, Any]]]:
    wire = json.loads(request_for([ChatMessage(role="user", content="x")], tools)).get("tools", [])
    step = next_step(read_request({"messages": messages, "tools": wire}))
    return [(call.name, call.arguments) for call in step.calls]


def turn(*made: tuple[str, dict[str, Any], str]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": QUESTION}]
    for number, (name, arguments, result) in enumerate(made):
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"id": str(number), "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": str(number), "content": result})
    return messages


def test_a_truncated_result_is_paged_through_once() -> None:
    """SPEC T5: `result_read` with the reference that the preview gives."""
    pager = frozen("result_read", {"result_ref": TEXT}, {"offset": {"type": "integer"}})
    cut = '{"truncated": true, "result_ref": "res-1"}\n--- characters 0 to 5 ---\ncrash'
    read = ("read_file", {"path": "docs/architecture.md"}, cut)
    page = ("result_read", {"result_ref": "res-1"}, "A run survives a crash.")
    assert step_for(turn(read), [*TOOLS, pager]) == [("result_read", {"result_ref": "res-1", "offset": 0})]
    assert step_for(turn(read, page), [*TOOLS, pager]) == []


def test_an_empty_search_is_widened_before_it_gives_up() -> None:
    """SPEC 18."""
    listed = ("list_files", {"folder": "docs"}, "[]")
    searched = ("search_files", {"words": "a b"}, "[]")
    names = [name for name, _ in step_for(turn(listed, searched), TOOLS)]
    assert names == ["search_files", "list_files"]


def test_it_reads_a_few_documents_and_none_twice() -> None:
    """SPEC 18: bounded, whatever the listing holds."""
    listing: tuple[str, dict[str, Any], str] = (
        "list_files",
        {},
        json.dumps([f"docs/crash-{number}.md" for number in range(50)]),
    )
    made = [listing]
    while calls := step_for(turn(*made), TOOLS):
        made += [(name, dict(arguments), "nothing here") for name, arguments in calls]
    paths = [arguments["path"] for name, arguments, _ in made if name == "read_file"]
    assert len(paths) == len(set(paths)) == 4


def test_it_stops_reading_before_its_own_window_is_full() -> None:
    """B1: 32 768 tokens are few."""
    listing: tuple[str, dict[str, Any], str] = ("list_files", {}, json.dumps(["docs/a.md", "docs/b.md", "docs/c.md"]))
    read = ("read_file", {"path": "docs/a.md"}, "A run survives a crash of the worker. " * 400)
    assert step_for(turn(listing, read), TOOLS) == []


def test_earlier_turns_do_not_count_as_steps_of_this_one() -> None:
    """SPEC 18: a second question starts over."""
    earlier = [*turn(("read_file", {"path": "docs/glossary.md"}, "x")), {"role": "assistant", "content": "answer"}]
    names = [name for name, _ in step_for([*earlier, {"role": "user", "content": QUESTION}], TOOLS)]
    assert names == ["list_files", "search_files"]


def test_what_the_platform_says_between_two_questions_is_no_question() -> None:
    """SPEC S2, P1: the mark that an earlier question has ended stands in a user's place."""
    mark = {"role": "user", "content": "[AgentLoom] Question 1 has ended: answered"}
    asked = step_for([mark, {"role": "user", "content": "crashes?"}], TOOLS)
    assert dict(asked)["search_files"] == {"words": "crashes"}


@pytest.mark.parametrize(
    ("tool", "question", "arguments"),
    [
        (frozen("get_weather", {"city": TEXT}), "What is the weather in Oslo?", {"city": "Oslo"}),
        (frozen("square", {"number": {"type": "integer"}}), "Please square 12", {"number": 12}),
        (frozen("set_light", {"state": {"enum": ["on", "off"]}}), "Set the light off", {"state": "off"}),
        (frozen("now", {}), "What time is it now?", {}),
    ],
)
def test_another_tool_is_used_when_the_question_names_it(
    tool: FrozenTool, question: str, arguments: dict[str, Any]
) -> None:
    """SPEC 18: people try their own tools with it."""
    assert step_for([{"role": "user", "content": question}], [tool]) == [(tool.name, arguments)]


def test_a_summary_is_extracted_and_stays_inside_its_limit() -> None:
    """SPEC 18, K8: shorter than its material, and nothing in it is invented."""
    sentences = [f"The team decided on point {number} that the cache stays small and simple." for number in range(200)]
    request = {
        "messages": [
            {"role": "system", "content": "Write a summary of the conversation."},
            {"role": "user", "content": "\n".join(sentences)},
        ],
        "max_tokens": 1_000,
    }
    text = next_step(read_request(request)).text
    lines = [line.removeprefix("- ") for line in text.splitlines() if line.startswith("- ")]
    assert lines
    assert set(lines) <= set(sentences)
    assert len(text.encode()) <= 1_000


def test_chinese_questions_have_words_too() -> None:
    """SPEC 18: the repository's users write Chinese."""
    assert "悬空" in keywords("重跑悬空引用清零校验")


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"{}", b'{"messages": 5}', b'{"messages": [5]}', b'{"messages": [], "tools": [{}]}']
)
async def test_something_that_is_no_request_is_refused_in_the_providers_form(
    http: httpx.AsyncClient, demo: DemoServer, body: bytes
) -> None:
    """SPEC L1."""
    response = await http.post(demo.base_url + "/chat/completions", content=body)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


async def test_it_answers_without_streaming_and_lists_its_model(http: httpx.AsyncClient, demo: DemoServer) -> None:
    """SPEC L1: the same wire."""
    whole = await http.post(demo.base_url + "/chat/completions", json={"messages": [{"role": "user", "content": "hi"}]})
    assert whole.json()["choices"][0]["message"]["content"].startswith(NOTICE)
    models = (await http.get(demo.base_url + "/models")).json()["data"]
    assert [(model["id"], model["context_window"]) for model in models] == [("demo", 32_768)]
    assert (await http.get(demo.base_url + "/other")).status_code == 404


async def test_a_second_server_on_a_taken_port_fails_and_closing_frees_it() -> None:
    """DESIGN 2: a guest in the worker's process that leaves nothing behind."""
    first = await serve()
    port = int(first.base_url.rsplit(":", 1)[1].split("/")[0])
    with pytest.raises(OSError, match="in use"):
        await serve(port=port)
    await first.aclose()
    again = await serve(port=port)
    await again.aclose()


async def test_it_leaves_the_signals_of_its_process_alone() -> None:
    """DESIGN 9: the worker drains on SIGTERM by its own handler."""
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    server = await serve()
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
    await server.aclose()


async def test_many_callers_at_once_are_all_served(http: httpx.AsyncClient, demo: DemoServer) -> None:
    """SPEC 18."""
    bodies = [request_for([ChatMessage(role="user", content=f"{QUESTION} {n}")], TOOLS) for n in range(20)]
    replies = await asyncio.gather(*(ask(http, demo, body) for body in bodies))
    assert all(reply.calls for reply in replies)


async def test_it_answers_from_this_repositorys_own_documents(http: httpx.AsyncClient, demo: DemoServer) -> None:
    """Issue 2: the demo agent's kind of tools, over real files."""
    root = Path(__file__).resolve().parents[3]
    documents = {
        path.relative_to(root).as_posix(): path.read_text()
        for folder in ("docs", "context")
        for path in sorted((root / folder).rglob("*"))
        if path.suffix in (".md", ".py")
    }
    functions: dict[str, Callable[..., str]] = {
        "list_files": lambda folder="": "\n".join(name for name in documents if name.startswith(folder.strip("./"))),
        "read_file": lambda path: documents[path][:6_000],
        "search_files": lambda words: "\n".join(
            name for name, text in documents.items() if all(word in text.lower() for word in words.split())
        ),
    }
    messages, reply = await run(http, demo, TOOLS, functions)
    assert len(messages) > 4
    assert reply.content is not None
    assert any(f"({name})" in reply.content for name in documents)


@pytest.mark.timeout(10)
@pytest.mark.parametrize("unit", ["a", "[", "](", "a.", "a/", "[a](", "(a"])
def test_no_text_makes_the_demo_search_for_ever(unit: str) -> None:
    """SPEC L2: what it reads is other people's text, and it works in the worker's process."""
    text = unit * 100_000
    assert sentences_of(text) == []
    assert _PATH.findall(text) == []


def test_the_search_of_the_demo_finds_the_page_about_its_question_first() -> None:
    """Issue 2: whatever other pages are written; the README shows what is made of it."""
    found = subprocess.run(
        [sys.executable, "-c", "import docs_tools; print(docs_tools.search_files('survive worker')[0]['path'])"],
        cwd=Path(__file__).resolve().parents[3] / "examples" / "docs_agent",
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == "docs/architecture.md"

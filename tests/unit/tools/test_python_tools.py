"""Python functions as tools: what they declare, how they are called, and what becomes of what they return or raise."""

import asyncio
import enum
import gc
import json
import math
import sys
import threading
import types
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from context.errors import ConfigurationInvalidError
from context.policy import FrozenTool, ToolEntry
from tests.support.tool_calls import OPERATION, entry, invocation, no_progress
from tools.arguments import Accepted, check_arguments
from tools.describing import description_of
from tools.errors import ToolTimeoutError
from tools.port import ToolOutcome
from tools.python import PythonTool, freeze_python
from tools.python_code import load_function
from tools.results import MAX_RESULT_BYTES, outcome_of_value
from tools.running import THREADS, run_within_limit

MODULE = "tests.support.python_tools"


def tool(function: str, **fields: Any) -> PythonTool:
    written = entry(kind="python", entry=f"{MODULE}:{function}", **fields)
    return PythonTool(published(written), written)


def published(written: ToolEntry) -> FrozenTool:
    """The entry as published; its module is imported here."""
    return freeze_python(written, description_of(written.entry or ""))


async def result(function: str, **arguments: Any) -> ToolOutcome:
    return await tool(function).run(invocation(**arguments), on_progress=no_progress)


def error(outcome: ToolOutcome) -> dict[str, Any]:
    assert outcome.status == "error"
    found: dict[str, Any] = json.loads(outcome.content)["error"]
    return found


def test_the_schema_comes_from_the_signature_and_its_words_from_the_docstring() -> None:
    """SPEC T1."""
    frozen = tool("weather").frozen
    properties = frozen.parameters["properties"]
    assert frozen.description == "Tell the weather.\n\nOver several\nlines.\n\nReturns: One sentence."
    assert frozen.parameters["required"] == ["place"]
    assert frozen.parameters["additionalProperties"] is False
    assert properties["days"] == {
        "type": "integer", "minimum": 1, "maximum": 7, "default": 1, "description": "How many days ahead.",
    }  # fmt: skip
    assert properties["place"]["description"] == "Where, exactly."
    assert properties["unit"]["default"] == "metric"
    assert properties["mode"]["enum"] == ["short", "long"]
    assert "title" not in json.dumps(frozen.parameters)


def test_an_entry_may_bring_its_own_description_and_schema() -> None:
    """SPEC 18."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    frozen = tool("add", description="Add.", schema=schema).frozen
    assert (frozen.description, frozen.parameters) == ("Add.", schema)


def test_freezing_the_same_function_twice_gives_the_same_bytes() -> None:
    """SPEC A7: the schema is part of every request's prefix."""
    assert tool("weather").frozen.model_dump_json() == tool("weather").frozen.model_dump_json()


async def test_a_plain_function_gets_what_its_annotations_say() -> None:
    """SPEC T1."""
    outcome = await result("weather", place={"lat": 1.5, "lon": 2}, unit="imperial", days=3)
    assert (outcome.status, outcome.content, outcome.raw) == ("ok", "1.5 3 imperial short", b'"1.5 3 imperial short"')


async def test_an_async_function_is_awaited_and_defaults_are_its_own() -> None:
    """SPEC T1; case 004."""
    assert (await result("add", a=1)).content == "2"


async def test_parameters_may_have_names_that_mean_something_elsewhere() -> None:
    """SPEC T1."""
    assert (await result("awkward", self="s", model_config=1)).content == '["s", 1, true]'


async def test_text_becomes_dates_numbers_and_paths_without_loss() -> None:
    """SPEC T1."""
    outcome = await result("dates", on="2026-01-02", amount="1.10", where="a/b")
    assert outcome.content == '["date", "Decimal", "PosixPath"]'


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ({}, "place"),
        ({"place": {"lat": "1", "lon": 2}}, "place.lat"),
        ({"place": {"lat": 1, "lon": 2}, "days": "3"}, "days"),
        ({"place": {"lat": 1, "lon": 2}, "days": 9}, "days"),
        ({"place": {"lat": 1, "lon": 2}, "days": True}, "days"),
        ({"place": {"lat": 1, "lon": 2}, "unit": "si"}, "unit"),
        ({"place": {"lat": 1, "lon": 2}, "dayz": 1}, "dayz"),
    ],
)
async def test_arguments_that_do_not_fit_are_refused_by_name_and_not_converted(
    arguments: dict[str, Any], place: str
) -> None:
    """SPEC T3: nothing is guessed."""
    refused = error(await result("weather", **arguments))
    assert refused["type"] == "InvalidArguments"
    assert refused["message"].startswith(place)


async def test_the_key_and_the_folder_are_given_and_not_asked_of_the_model(tmp_path: Path) -> None:
    """SPEC T4, T10; case 084: every try has the same key."""
    keyed = tool("keyed")
    assert list(keyed.frozen.parameters["properties"]) == ["text"]
    folder = tmp_path / "run"
    outcome = await keyed.run(invocation(work_dir=folder, text="x"), on_progress=no_progress)
    assert json.loads(outcome.content) == {"key": str(OPERATION), "folder": str(folder)}
    assert (folder / "note.txt").read_text() == "x"
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("value", "content", "raw"),
    [("", "", b'""'), ("\r\n", "\r\n", b'"\\r\\n"'), (None, "", b"null"), (2, "2", b"2"), (False, "false", b"false")],
)
async def test_small_results_stay_exactly_what_they_are(value: Any, content: str, raw: bytes) -> None:
    """SPEC A11; cases 017 and 004."""
    outcome = await result("echo", value=value)
    assert (outcome.status, outcome.content, outcome.raw) == ("ok", content, raw)


def test_a_lone_surrogate_is_replaced_in_the_content_marked_and_kept_in_the_raw_result() -> None:
    """SPEC Y5; case 061."""
    outcome = outcome_of_value("temp \udcb0", OPERATION)
    assert outcome.content == "temp \ufffd"
    assert outcome.transforms == ("lone_surrogates_replaced",)
    assert json.loads(outcome.raw) == "temp \udcb0"
    outcome.content.encode()


async def test_dates_decimals_and_records_have_a_json_form() -> None:
    """SPEC T1."""
    assert json.loads((await result("reading")).content) == {"at": "2026-01-02T00:00:00Z", "value": "1.50"}


async def test_bytes_become_an_artifact_and_leave_only_a_reference() -> None:
    """SPEC T7."""
    outcome = await result("picture")
    [artifact] = outcome.artifacts
    assert (artifact.media_type, len(artifact.body)) == ("image/png", 264)
    assert json.loads(outcome.content) == {
        "artifact_ref": f"artifact:{OPERATION}/1",
        "media_type": "image/png",
        "bytes": 264,
    }


async def test_bytes_inside_a_value_become_artifacts_in_their_places() -> None:
    """SPEC T7."""
    outcome = await result("report")
    pages = json.loads(outcome.content)["pages"]
    assert [page["media_type"] for page in pages] == ["application/pdf", "image/gif"]
    assert [page["artifact_ref"][-2:] for page in pages] == ["/1", "/2"]
    assert [artifact.body for artifact in outcome.artifacts] == [b"%PDF-1", b"GIF8"]


class Words(str):
    """A kind of text."""


class Level(enum.IntEnum):
    HIGH = 3


class Kind(enum.Enum):
    PICTURE = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize(
    ("value", "content"),
    [
        (Words("temp \udcb0"), "temp \ufffd"),
        (Level.HIGH, "3"),
        ((n for n in range(3)), "[0, 1, 2]"),
        ({"a": 1}.values(), "[1]"),
        (range(2), "[0, 1]"),
        ({1: {None: math.nan}}, '{"1": {"None": "nan"}}'),
        (types.MappingProxyType({"a": frozenset({1})}), '{"a": [1]}'),
    ],
)
def test_every_common_kind_of_value_has_its_json_form(value: Any, content: str) -> None:
    """SPEC T1."""
    assert outcome_of_value(value, OPERATION).content == content


@pytest.mark.parametrize(
    "value", [deque([b"%PDF-1"]), Kind.PICTURE, iter([b"a"]), {"a": b"b"}.values(), {"k": (b"c",)}]
)
def test_bytes_are_never_text_wherever_they_are(value: Any) -> None:
    """SPEC T7."""
    outcome = outcome_of_value(value, OPERATION)
    assert len(outcome.artifacts) == 1
    assert "artifact_ref" in outcome.content


@pytest.mark.parametrize("value", [[10**5000], {1: "a", "1": "b"}, {(1, 2): object()}])
def test_what_json_would_lose_or_refuse_is_said_and_not_cut(value: Any) -> None:
    """SPEC T9."""
    assert error(outcome_of_value(value, OPERATION))["type"] == "ResultNotSerializable"


@pytest.mark.parametrize("piece", ["x", b"x"], ids=["text", "bytes"])
def test_a_result_too_large_to_be_kept_is_said_to_be_so(piece: str | bytes) -> None:
    """SPEC T9."""
    assert error(outcome_of_value(piece * (MAX_RESULT_BYTES + 1), OPERATION))["type"] == "ResultTooLarge"


async def test_a_function_that_hands_back_a_coroutine_is_awaited() -> None:
    """SPEC T1: a decorator may hide that the function is async."""
    assert (await result("hidden_async")).content == "awaited"


@pytest.mark.parametrize("function", ["gives_an_object", "loops_for_ever", "gives_an_endless_generator"])
async def test_a_value_without_a_json_form_is_the_tools_own_failure(function: str) -> None:
    """SPEC T9."""
    assert error(await result(function))["type"] == "ResultNotSerializable"


async def test_an_exception_without_words_still_gives_a_structured_result() -> None:
    """SPEC T9; case 009."""
    assert error(await result("raises"))["type"] == "RuntimeError"
    assert error(await result("raises"))["message"]


async def test_the_words_of_an_exception_are_content_and_nothing_else_of_it_is() -> None:
    """SPEC T9, Y6."""
    outcome = await result("raises_words")
    assert error(outcome) == {"type": "LookupError", "message": "MARK-words"}
    assert "Traceback" not in outcome.content
    assert ".py" not in outcome.content


async def test_an_exception_that_cannot_be_printed_is_named() -> None:
    """SPEC T9."""
    assert error(await result("raises_unprintable"))["type"] == "Unprintable"


ANYTHING = [
    "KeyboardInterrupt", "SystemExit", "GeneratorExit", "CancelledError", "RecursionError", "MemoryError",
    "TimeoutError", "Evil", "ExceptionGroup", "BaseExceptionGroup", "StopIteration", "StopAsyncIteration",
]  # fmt: skip


@pytest.mark.parametrize("kind", ANYTHING)
@pytest.mark.parametrize("function", ["raises_any", "raises_any_async"])
async def test_whatever_a_tool_raises_is_its_result_at_once(function: str, kind: str) -> None:
    """SPEC T9: named by its type, without waiting for the time limit, and the worker goes on."""
    async with asyncio.timeout(15):
        found = error(await result(function, kind=kind))
    # An async function can't let a StopIteration out: Python itself makes a RuntimeError of it.
    assert found["type"] in {kind, "RuntimeError"} if kind.startswith("Stop") else found["type"] == kind
    assert found["message"]


async def test_a_group_of_errors_is_told_with_what_is_in_it() -> None:
    """SPEC T9: a group's own words name none of its errors."""
    message = error(await result("raises_any", kind="ExceptionGroup"))["message"]
    assert "both" in message
    assert "ValueError: one" in message
    assert "KeyError: 'two'" in message


async def test_a_tool_that_cancels_its_own_task_and_returns_is_not_taken_for_a_stop() -> None:
    """SPEC S8, T9."""
    assert error(await result("cancels_its_task_and_returns"))["type"] == "CancelledError"


@pytest.mark.parametrize("kind", ["KeyboardInterrupt", "ValueError", "CancelledError", "GeneratorExit", "SystemExit"])
@pytest.mark.parametrize("function", ["gives_a_raising_value", "gives_a_raising_model", "gives_a_raising_generator"])
async def test_a_value_that_raises_when_it_is_looked_into_is_the_tools_own_failure(function: str, kind: str) -> None:
    """SPEC T9: a result's own code runs as the tool's, within its limit and away from the event loop."""
    async with asyncio.timeout(15):
        assert error(await result(function, kind=kind))["type"] == "ResultNotSerializable"


async def test_a_value_that_takes_for_ever_to_convert_is_over_the_time_limit_and_holds_up_nobody() -> None:
    """SPEC T4, S8: the loop goes on, and so does everybody else's call."""
    slow = tool("gives_a_blocking_value", timeout_s=0.2)
    async with asyncio.timeout(15):
        with pytest.raises(ToolTimeoutError):
            await run_within_limit(slow, invocation(seconds=0.6), on_progress=no_progress)
    idle = THREADS.idle
    async with asyncio.timeout(15):  # a thread inside pydantic may not be torn down by the interpreter's end
        while THREADS.idle == idle:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("kind", ["KeyboardInterrupt", "CancelledError", "SystemExit", "LookupError"])
async def test_an_argument_type_whose_own_code_raises_is_the_tools_own_failure(kind: str) -> None:
    """SPEC T9."""
    async with asyncio.timeout(15):
        found = error(await result("takes_a_raising_argument", argument={"kind": kind}))
    assert found["type"] == ("KeyError" if kind == "LookupError" else kind)


@pytest.mark.parametrize("module", ["raises_interrupt", "raises_cancelled"])
async def test_a_module_that_raises_anything_when_imported_is_answered(module: str, tmp_path: Path) -> None:
    """SPEC T9, E: neither publishing nor a call lets it reach the worker."""
    kind = {"raises_interrupt": "KeyboardInterrupt", "raises_cancelled": "asyncio.CancelledError"}[module]
    (tmp_path / f"{module}.py").write_text(f"import asyncio\nraise {kind}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        with pytest.raises(ConfigurationInvalidError, match=kind.rpartition(".")[2]):
            description_of(f"{module}:f")
        broken = PythonTool(tool("add").frozen, entry(kind="python", entry=f"{module}:f"))
        async with asyncio.timeout(15):
            found = error(await broken.run(invocation(a=1), on_progress=no_progress))
    assert found["type"] == "ToolMisconfigured"


@pytest.mark.parametrize("function", ["exits", "exits_async"])
async def test_a_tool_that_exits_does_not_end_the_worker(function: str) -> None:
    """SPEC T9."""
    assert error(await result(function))["type"] == "SystemExit"


async def test_a_tool_that_cancels_itself_is_not_taken_for_a_stop() -> None:
    """SPEC S8, T9."""
    assert error(await result("cancels_itself"))["type"] == "CancelledError"


@pytest.mark.parametrize(
    ("function", "arguments"), [("ignores_cancellation", {"seconds": 3.0}), ("sleeps", {"seconds": 20})]
)
async def test_a_stop_does_not_wait_for_a_tool_that_ignores_it(function: str, arguments: dict[str, Any]) -> None:
    """SPEC S8."""
    running = asyncio.create_task(result(function, **arguments))
    await asyncio.sleep(0.2)
    running.cancel()
    async with asyncio.timeout(2):
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_a_tool_that_raises_after_it_was_cancelled_is_heard_by_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """SPEC S8, Y6: the stop doesn't wait for its last word, and that word is in no log."""
    running = asyncio.create_task(result("raises_when_cancelled"))
    await asyncio.sleep(0.1)
    running.cancel()
    async with asyncio.timeout(5):
        with pytest.raises(asyncio.CancelledError):
            await running
    del running
    await asyncio.sleep(0.2)
    gc.collect()
    assert caplog.text == ""


async def test_a_function_that_never_returns_does_not_hold_up_the_exit() -> None:
    """SPEC S8: its thread is a daemon."""
    running = asyncio.create_task(result("sleeps", seconds=20))
    await asyncio.sleep(0.2)
    assert {thread.daemon for thread in threading.enumerate() if thread.name == "tool"} == {True}
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_tool_over_its_time_limit_is_reported_as_such() -> None:
    """SPEC T4: it may have run, so the caller decides what that means."""
    slow = tool("sleeps", timeout_s=0.2)
    with pytest.raises(ToolTimeoutError) as late:
        await run_within_limit(slow, invocation(seconds=10.0), on_progress=no_progress)
    assert late.value.may_have_run


async def test_a_running_tool_shows_signs_of_life() -> None:
    """SPEC W5: the caller heartbeats on them."""
    beats: list[int] = []
    await tool("sleeps").run(invocation(seconds=1.3), on_progress=lambda: beats.append(1))
    assert beats


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("nowhere_at_all:f", "no Python module 'nowhere_at_all'"),
        ("tests.support.nowhere:f", "no Python module 'tests.support.nowhere'"),
        ("no_colon", "module:function"),
        (f"{MODULE}:missing", "no function 'missing'"),
        (f"{MODULE}:NOT_A_FUNCTION", "no function 'NOT_A_FUNCTION'"),
        ("tests.support.broken_tools:f", "failed with RuntimeError"),
        (f"{MODULE}:unannotated", "'place'"),
        (f"{MODULE}:open_ended", "places"),
        (f"{MODULE}:any_words", "words"),
        (f"{MODULE}:unknown_type", "annotation"),
        (f"{MODULE}:interrupting_type", "annotation"),
        ("builtins:dict.update", "what its parameters are"),
        (f"{MODULE}:no_json_form", "no JSON form"),
        (f"{MODULE}:looks_around", "look-around"),
        (f"{MODULE}:takes_a_raising_type", "no JSON form"),
        (f"{MODULE}:takes_raising_words", "no JSON form"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_in_one_sentence(written: str, words: str) -> None:
    """SPEC E: CONFIGURATION_INVALID names what to mend, and nothing of what an import said."""
    with pytest.raises(ConfigurationInvalidError) as refused:
        description_of(written)
    assert words in refused.value.message
    assert "MARK" not in refused.value.message
    assert refused.value.__cause__ is None


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="pydantic reads the standard library's own there")
def test_a_type_that_this_python_cannot_describe_is_refused_with_the_one_that_it_can() -> None:
    """SPEC E: the words say what to write instead."""
    with pytest.raises(ConfigurationInvalidError, match="typing_extensions"):
        description_of(f"{MODULE}:takes_an_old_dict")


async def test_a_function_that_vanished_after_publishing_is_answered_and_not_failed() -> None:
    """SPEC T9."""
    gone = PythonTool(tool("add").frozen, entry(kind="python", entry=f"{MODULE}:gone"))
    assert error(await gone.run(invocation(a=1), on_progress=no_progress))["type"] == "ToolMisconfigured"


def test_what_the_frozen_schema_accepts_the_function_accepts() -> None:
    """SPEC T3."""
    schema = tool("weather").frozen.parameters
    assert isinstance(check_arguments('{"place": {"lat": 1, "lon": 2}}', schema), Accepted)


def test_an_entry_may_name_a_function_inside_a_class() -> None:
    """SPEC T1."""
    assert load_function("json:JSONDecoder.decode") is json.JSONDecoder.decode

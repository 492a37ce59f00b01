"""The tools that AgentLoom brings itself."""

import json
from typing import Any
from uuid import UUID

import pytest

from context.errors import ConfigurationInvalidError
from tests.support.tool_calls import SESSION, entry, invocation, no_progress
from tools.arguments import Accepted, Refused, check_arguments
from tools.builtin import PAGE_CHARS, Backends, BuiltinTool, freeze_builtin
from tools.port import ToolOutcome

TEXT = "".join(chr(0x4E00 + n % 5000) for n in range(45_000))


async def stored(result_ref: str, session_id: UUID) -> str | None:
    return TEXT if (result_ref, session_id) == ("r/1", SESSION) else None


FROZEN = freeze_builtin(entry(kind="builtin", name="result_read"))
ROOMY = 1_000_000


async def read(page_bytes: int = ROOMY, **arguments: Any) -> ToolOutcome:
    tool = BuiltinTool(FROZEN, Backends(read_result=stored), page_bytes=page_bytes)
    return await tool.run(invocation(**arguments), on_progress=no_progress)


def place(outcome: ToolOutcome) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(outcome.content.split("\n", 1)[0])
    return found


@pytest.mark.parametrize("page_bytes", [ROOMY, 10_000, 1])
async def test_paging_from_the_start_gives_the_whole_result_back(page_bytes: int) -> None:
    """SPEC T5: whatever a page has room for."""
    text, offset = "", 0
    while True:
        outcome = await read(page_bytes, result_ref="r/1", offset=offset)
        text += outcome.content.split("\n", 1)[1]
        if "next_offset" not in place(outcome):
            break
        offset = place(outcome)["next_offset"]
    assert text == TEXT


async def test_a_page_says_its_range_and_the_total() -> None:
    """SPEC T5."""
    outcome = await read(result_ref="r/1", offset=44_990, limit=500)
    assert place(outcome) == {"result_ref": "r/1", "range": [44_990, 45_000], "total_chars": 45_000}


async def test_a_page_is_at_most_twenty_thousand_characters() -> None:
    """SPEC T5."""
    outcome = await read(result_ref="r/1")
    assert place(outcome)["range"] == [0, PAGE_CHARS]
    assert isinstance(check_arguments('{"result_ref": "r", "limit": 20001}', FROZEN.parameters), Refused)
    assert isinstance(check_arguments('{"result_ref": "r", "limit": 20000}', FROZEN.parameters), Accepted)


async def test_a_page_takes_no_more_than_its_part_of_the_window() -> None:
    """SPEC T5: as large as it is on the wire, where a character may take several bytes; the next one goes on there."""
    outcome = await read(3_000, result_ref="r/1", offset=5, limit=15_000)
    assert place(outcome)["range"] == [5, 5 + 999]  # three bytes each, between quotes
    assert place(outcome)["next_offset"] == 5 + 999


async def test_an_unknown_reference_is_answered_as_an_error() -> None:
    """SPEC T9; another session's result is as if it did not exist."""
    outcome = await read(result_ref="r/2")
    assert (outcome.status, json.loads(outcome.content)["error"]["type"]) == ("error", "NotFound")


async def test_an_offset_past_the_end_says_how_long_the_result_is() -> None:
    """SPEC T9."""
    outcome = await read(result_ref="r/1", offset=45_001)
    assert json.loads(outcome.content)["error"] | {"message": ""} == {
        "type": "OutOfRange",
        "message": "",
        "total_chars": 45_000,
    }


def test_a_builtin_keeps_its_own_effect_whatever_the_entry_says() -> None:
    """SPEC T4: reading again is always allowed."""
    assert freeze_builtin(entry(kind="builtin", name="result_read", effect="side_effect")).effect == "read_only"


def test_a_name_that_is_not_built_in_is_refused_with_those_that_are() -> None:
    """SPEC T6."""
    with pytest.raises(ConfigurationInvalidError, match="result_read"):
        freeze_builtin(entry(kind="builtin", name="result_write"))

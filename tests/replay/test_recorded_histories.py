"""Recorded histories replay on today's code (SPEC W6; case C076), and hold no word of what was said (SPEC W1)."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from tests.support.histories import FOLDER, MARK, SCENARIOS
from workflows.registry import WORKFLOWS, data_converter, sandbox

RECORDED = sorted(FOLDER.glob("*.json"))


def history(path: Path) -> WorkflowHistory:
    """A recorded history. Its workflow id is not part of it; a Run's ids come from its input."""
    return WorkflowHistory.from_json("run/recorded", path.read_text())


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: str(path.stem))
async def test_a_recorded_history_replays(path: Path) -> None:
    """SPEC W6: with the production sandbox, converter and workflows."""
    replayer = Replayer(workflows=WORKFLOWS, workflow_runner=sandbox(), data_converter=data_converter())
    await replayer.replay_workflow(history(path))


async def test_a_history_that_does_not_fit_is_noticed() -> None:
    """The replays above can fail: a Run whose first activity had another name is refused."""
    text = (FOLDER / "model_call.json").read_text().replace("call_model", "call_another")
    replayer = Replayer(workflows=WORKFLOWS, workflow_runner=sandbox(), data_converter=data_converter())
    result = await replayer.replay_workflow(
        WorkflowHistory.from_json("run/recorded", text), raise_on_replay_failure=False
    )
    assert result.replay_failure is not None


def test_every_shape_of_a_run_is_recorded() -> None:
    """SPEC W6: one file per scenario; `python -m tests.support.histories record` writes them."""
    assert {path.stem for path in RECORDED} == set(SCENARIOS)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: str(path.stem))
def test_no_history_holds_what_was_said(path: Path) -> None:
    """SPEC W1, Y6: questions, arguments, results, answers and providers' words stay out, payloads decoded."""
    told = "\n".join(texts(json.loads(path.read_text())))
    assert MARK not in told
    assert "execution_no" in told, "payloads really were decoded"


def texts(value: object) -> Iterator[str]:
    """Every string in the JSON, and what it decodes to if it is base64."""
    if isinstance(value, dict):
        for one in value.values():
            yield from texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from texts(one)
    elif isinstance(value, str):
        yield value
        yield decoded(value)


def decoded(text: str) -> str:
    """The text behind base64, empty if there is none."""
    try:
        return base64.b64decode(text, validate=True).decode()
    except ValueError:
        return ""

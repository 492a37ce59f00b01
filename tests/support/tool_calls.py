"""Builders for calls of tools in tests."""

from pathlib import Path
from typing import Any
from uuid import UUID

from context.policy import FrozenTool, ToolEntry
from tools.port import ToolInvocation

OPERATION = UUID("01890a5d-ac96-774b-bcce-b302099a8057")
SESSION = UUID("01890a5d-ac96-774b-bcce-b302099a8058")
RUN = UUID("01890a5d-ac96-774b-bcce-b302099a8059")


def invocation(*, work_dir: Path = Path("/nonexistent"), name: str = "tool", **arguments: Any) -> ToolInvocation:
    """The first try at one call with these arguments."""
    return ToolInvocation(
        operation_id=OPERATION,
        call_id="call_1",
        name=name,
        arguments=arguments,
        run_id=RUN,
        session_id=SESSION,
        work_dir=work_dir,
        attempt=1,
    )


def entry(**fields: Any) -> ToolEntry:
    """A tool entry as a definition would hold it."""
    return ToolEntry.model_validate({"name": "tool"} | fields)


def frozen(**fields: Any) -> FrozenTool:
    """A frozen tool that takes any object."""
    defaults = {"name": "tool", "description": "", "parameters": {"type": "object"}, "kind": "http"}
    return FrozenTool.model_validate(defaults | {"entry_name": "tool"} | fields)


def no_progress() -> None:
    """Nobody listens to signs of life."""


async def no_secrets(name: str) -> str | None:
    """A space without any stored connection."""
    return None

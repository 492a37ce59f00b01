"""The port that every kind of tool implements: one call in, one outcome out, and the rule for calling again.

A tool never stores anything, never decides about a second try, and never sees another session.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol
from uuid import UUID

from context.policy import Effect, FrozenTool, ToolEntry
from tools.errors import ToolUnavailableError


@dataclass
class Delivery:
    """Whether a call may have reached its tool; one that is cut off before has not run (SPEC T4).

    A tool that says nothing may have run from the beginning on.
    """

    has_begun: bool = True

    @contextmanager
    def preparing(self) -> Iterator["Delivery"]:
        """What is done before the call is made; it has begun when the block is left well, or at `begins`."""
        self.has_begun = False
        yield self
        self.has_begun = True

    def begins(self) -> None:
        """From here on the call may have reached the tool."""
        self.has_begun = True


@dataclass(frozen=True)
class ToolInvocation:
    """One call with arguments that fit the frozen schema. Every try at it has the same `operation_id` (SPEC T4)."""

    operation_id: UUID
    call_id: str
    name: str
    arguments: dict[str, Any]
    run_id: UUID
    session_id: UUID
    work_dir: Path
    attempt: int
    delivery: Delivery = field(default_factory=Delivery, compare=False)

    @property
    def idempotency_key(self) -> str:
        """What an idempotent tool is given to recognise a repeat by."""
        return str(self.operation_id)


@dataclass(frozen=True)
class Artifact:
    """Binary content of a result, which the model sees as a reference only (SPEC T7)."""

    media_type: str
    body: bytes
    name: str | None = None


@dataclass(frozen=True)
class ToolOutcome:
    """What a tool answered, well or not.

    `content` is what the model would see before offloading; it may be empty. `raw` is the exact result in
    `raw_media_type`: canonical JSON, or for HTTP tools the body as received. `transforms` names every change made:
    `lone_surrogates_replaced`, `undecodable_bytes_replaced` (in content), `credential_removed` (everywhere).
    """

    status: Literal["ok", "error"]
    content: str
    raw: bytes
    artifacts: tuple[Artifact, ...] = ()
    transforms: tuple[str, ...] = ()
    raw_media_type: str = "application/json"


class Tool(Protocol):
    """One callable tool of a release."""

    @property
    def frozen(self) -> FrozenTool: ...

    async def run(self, call: ToolInvocation, *, on_progress: Callable[[], None]) -> ToolOutcome:
        """The tool's answer; `on_progress` is called at each sign of life.

        Raises ToolUnavailableError if the tool could not be asked or its answer was lost.
        """
        ...


def may_repeat(tool: FrozenTool, error: ToolUnavailableError) -> bool:
    """Whether the same call may be made again without asking anybody (SPEC T4)."""
    return not error.may_have_run or tool.effect != "side_effect" or tool.retry_unknown


def wants_key(tool: FrozenTool) -> bool:
    """Whether a call carries its idempotency key; a permitted repeat of a side effect carries it too."""
    return tool.effect != "read_only"


def single_effect(entry: ToolEntry) -> Effect:
    """The effect of an entry that is one tool; the definition allows an effect per tool for MCP servers only."""
    assert not isinstance(entry.effect, dict)
    return entry.effect


def artifact_ref(operation_id: UUID, ordinal: int) -> str:
    """How the n-th artifact of a call (from 1) is named in its content."""
    return f"artifact:{operation_id}/{ordinal}"

"""What a commit asks of the workflow of a Run, and the port that carries it there (SPEC W7).

An intent holds ids and numbers, never content. Carrying one twice does no harm: a start carries its execution number,
a signal its input id, a cancellation is one state.
"""

from dataclasses import dataclass
from typing import Literal, Protocol
from uuid import UUID

from context.ids import compaction_workflow_id, run_workflow_id

Carried = Literal["sent", "closing", "gone"]
"""What became of an intent: `sent`, or already there; `closing`: the Run's older execution is still closing, try again
soon; `gone`: no execution of the Run is open (for a signal or a cancellation)."""


@dataclass(frozen=True)
class StartRun:
    """Start one execution of a Run. `agent` is the agent's name."""

    run_id: UUID
    execution_no: int
    session_id: UUID
    agent: str
    release_id: UUID

    @property
    def workflow_id(self) -> str:
        return run_workflow_id(self.run_id)


@dataclass(frozen=True)
class SignalSupplement:
    """Nudge the Run's execution: input `input_seq` is waiting in the database (SPEC S4)."""

    run_id: UUID
    input_id: UUID
    input_seq: int

    @property
    def workflow_id(self) -> str:
        return run_workflow_id(self.run_id)


@dataclass(frozen=True)
class CancelRun:
    """Cancel this execution of the Run, if it is still the open one (SPEC S8)."""

    run_id: UUID
    execution_no: int

    @property
    def workflow_id(self) -> str:
        return run_workflow_id(self.run_id)


@dataclass(frozen=True)
class StartCompaction:
    """Start the compaction of an idle Session (SPEC K12). `run_id` is the Run that its episode stands with."""

    run_id: UUID
    episode_id: UUID
    session_id: UUID
    agent: str
    release_id: UUID

    @property
    def workflow_id(self) -> str:
        return compaction_workflow_id(self.episode_id)


@dataclass(frozen=True)
class CancelCompaction:
    """Cancel the compaction of an idle Session."""

    run_id: UUID
    episode_id: UUID

    @property
    def workflow_id(self) -> str:
        return compaction_workflow_id(self.episode_id)


Intent = StartRun | SignalSupplement | CancelRun | StartCompaction | CancelCompaction


class Sender(Protocol):
    """Carries intents to Temporal. Raises UnavailableError, without foreign text, when Temporal can't be reached."""

    async def start(self, intent: StartRun) -> Carried: ...

    async def signal(self, intent: SignalSupplement) -> Carried: ...

    async def cancel(self, intent: CancelRun) -> Carried: ...

    async def start_compaction(self, intent: StartCompaction) -> Carried: ...

    async def cancel_compaction(self, intent: CancelCompaction) -> Carried: ...

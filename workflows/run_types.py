"""The values that cross the workflow boundary of a Run: ids, numbers and small verdicts, never content (SPEC W1)."""

from typing import Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from context.steps import PreparedRequest

Phase = Literal["opening", "preparing", "compacting", "calling_model", "running_tools", "finishing", "stopping"]


class RunState(BaseModel):
    """Everything an execution knows, as one value; continue-as-new hands it on at a phase boundary.

    `pending` are the `input_seq` of supplements that no request contains yet. `deadline_at` is in seconds since 1970.
    `prepared` is a request that was frozen together with the end of the loop before. `last_error` is a code.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    session_id: UUID
    context_id: UUID
    release_id: UUID
    agent: str
    max_loops: int
    max_parallel_tools: int
    continue_late_input: bool
    compact_once: bool = False
    deadline_at: float
    deadline_s: int = 0
    phase: Phase = "preparing"
    loop: int = 0
    cutoff: int = 0
    operation_id: UUID | None = None
    batch_id: UUID | None = None
    prepared: PreparedRequest | None = None
    pending: tuple[int, ...] = ()
    asked_to_compact: bool = False
    estimated: int = 0
    input_limit: int = 0
    last_error: str | None = None


class RunInput(BaseModel):
    """Starts one execution of a Run. Each resume is a new execution with the next number (SPEC W3a)."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    run_id: UUID
    execution_no: int
    state: RunState | None = None


class RunEnded(BaseModel):
    """How the Run ended, as the result of its workflow."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    status: str
    end_reason: str | None = None
    code: str | None = None


class RunSnapshot(BaseModel):
    """The answer of the `state` query."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    phase: Phase
    loop: int
    max_loops: int
    cutoff: int
    operation_id: UUID | None
    batch_id: UUID | None
    pending: tuple[int, ...]
    estimated: int
    input_limit: int

"""The values that cross the workflow boundary of a Run: ids, numbers and small verdicts, never content (SPEC W1)."""

from uuid import UUID

from pydantic import BaseModel, ConfigDict


class RunInput(BaseModel):
    """Starts one execution of a Run. Each resume is a new execution with the next number (SPEC W3a)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: UUID
    execution_no: int

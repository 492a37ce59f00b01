"""How the workflow of a Run or of an idle Session's compaction stands, and the port that asks Temporal (SPEC S13)."""

from typing import Literal, Protocol
from uuid import UUID

Standing = Literal["open", "completed", "failed", "canceled", "terminated", "timed_out", "missing"]
"""`open`: it lives, or is about to go on as a new execution. `missing`: Temporal has no such execution (any more)."""


class Watch(Protocol):
    """Asks about executions. Raises UnavailableError, without foreign text, when Temporal can't be reached."""

    async def standing(self, run_id: UUID, execution_no: int) -> Standing: ...

    async def standing_of_compaction(self, episode_id: UUID) -> Standing: ...

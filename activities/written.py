"""What a model writes is noted while it comes, since a try that is cut off reports nothing (SPEC L5, decision 0114).

A short call costs no statement more. The pauses grow with a call's length, and so does what is counted anew each time.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from activities.failures import until_stored
from context.errors import UnavailableError
from context.replies import ModelReply, SoFar
from context.usage import completed, output_tokens

if TYPE_CHECKING:
    from activities.model_breaks import ModelTry
    from providers.release_model import ReleaseModel
    from storage.run_commits import RunCommits

SHORTEST_PAUSE_S = 2.0
SHARE = 8  # of the time that a call has taken; what is not noted yet is no larger a part of it


@asynccontextmanager
async def noting_written(
    commits: "RunCommits", model: "ReleaseModel", tried: "ModelTry"
) -> AsyncIterator[Callable[[SoFar], None]]:
    """Notes what has come while the block runs, once it is told where to look."""
    noted = _Noted(commits, model, tried)
    noting = asyncio.create_task(noted.go_on())
    try:
        yield noted.look_at
    finally:
        noting.cancel()


class _Noted:
    """How far one try has been noted."""

    def __init__(self, commits: "RunCommits", model: "ReleaseModel", tried: "ModelTry") -> None:
        self._commits = commits
        self._model = model
        self._tried = tried
        self._so_far: SoFar = _nothing
        self._last: ModelReply | None = None
        self._given: int | None = None

    def look_at(self, so_far: SoFar) -> None:
        self._so_far = so_far

    async def go_on(self) -> None:
        clock = asyncio.get_running_loop().time
        began = clock()
        while True:
            await asyncio.sleep(max(SHORTEST_PAUSE_S, (clock() - began) / SHARE))
            reply = self._so_far()
            if reply is not None and reply != self._last:
                await self._note(reply)

    async def _note(self, reply: ModelReply) -> None:
        operation_id, attempt_no = self._tried.operation_id, self._tried.attempt_no
        if self._given is None:
            self._given = await until_stored(lambda: self._commits.estimated_input(operation_id))
        written = await asyncio.to_thread(output_tokens, reply, self._model.counter)
        usage = completed(reply.usage, input_tokens=self._given, output_tokens=written)
        with suppress(UnavailableError):  # the next note says more
            await self._commits.note_written(operation_id, attempt_no, usage, self._model.cost(usage))
            self._last = reply


def _nothing() -> None:
    """Before the call nothing has come."""

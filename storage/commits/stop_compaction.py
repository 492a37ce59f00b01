"""Stopping an idle Session's compaction: recorded before anybody acts on it, so that no further block starts (S8).

One that no worker has begun yet ends with that, as a Run does that nobody has opened (decision 0112).
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import text

from context.episodes import FailEpisode
from context.errors import CompactionFailedError, NotFoundError, RunActiveError
from context.intents import CancelCompaction
from storage.commits.fail_episode import end_episode
from storage.database import fetch_one
from storage.episodes import LOCK, LockedEpisode
from storage.outbox import SEND_AGAIN, outbox_row
from storage.store import Store
from storage.tables import outbox
from storage.writes import WriteSet

OWNED = text("""
    SELECT e.episode_id FROM compaction_episodes e JOIN sessions s USING (session_id)
    WHERE e.episode_id = :episode_id AND s.owner_id = :owner_id
""")
STOP = """
    UPDATE compaction_episodes SET stop_requested_at = now()
    WHERE episode_id = :stopped AND stop_requested_at IS NULL
"""


@dataclass(frozen=True)
class StopCompaction:
    episode_id: UUID
    owner_id: UUID


async def stop_compaction(store: Store, request: StopCompaction) -> UUID | None:
    """Record the stop; the intent that now waits to be sent, or None for an episode that has ended.

    Raises NotFoundError, and RunActiveError for a compaction that a Run waits for: that Run is to be stopped.
    """
    async with store.transaction("stop_compaction") as connection:
        binds = {"episode_id": request.episode_id, "owner_id": request.owner_id}
        if await fetch_one(connection, OWNED, **binds) is None:
            raise NotFoundError.of("compaction", request.episode_id)
        row: Any = await fetch_one(connection, LOCK, episode_id=request.episode_id)
        episode = LockedEpisode(**row)
        if episode.status not in ("queued", "running"):
            return None
        if episode.operation_id is not None:
            raise RunActiveError("A run waits for this compaction; stop the run.", run_id=str(episode.run_id))
        intent = outbox_row(CancelCompaction(episode.run_id, request.episode_id))
        writes = WriteSet()
        writes.sql(STOP, stopped=request.episode_id)
        writes.insert(outbox, [intent], skip_existing=True)
        writes.sql(SEND_AGAIN, sent_again=intent["outbox_id"])
        await writes.send(connection)
        if episode.status == "queued":
            place = {"episode_id": request.episode_id, "code": CompactionFailedError.code}
            await end_episode(connection, episode, FailEpisode(**place, status="cancelled", reason="cancelled"))
        outbox_id: UUID = intent["outbox_id"]
        return outbox_id

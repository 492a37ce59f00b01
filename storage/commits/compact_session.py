"""Asking for a compaction (SPEC K12): of the active Run, which is told by an update, or of an idle Session.

The wish is kept with the Run, too, until a request was prepared with it: whichever execution opens the Run next begins
with it, after a stop and a resume as well. One that waits to be opened need not be told.

An idle Session has one such compaction at a time; whoever asks meanwhile is told of that one. It blocks nothing: a
question is a Run of its own, and begins with what is published by then.
"""

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.errors import RunNotActiveError, SessionArchivedError
from context.intents import StartCompaction
from context.summaries import PROMPT_VERSION
from storage.client_keys import ClientKey, client_key, first_answer, remember
from storage.database import fetch_one
from storage.locks import LockedSession, lock_active_run, lock_session
from storage.outbox import outbox_row
from storage.store import Store, new_id
from storage.tables import outbox
from storage.writes import WriteSet

STANDING = text("""
    SELECT episode_id, run_id FROM compaction_episodes
    WHERE session_id = :session_id AND operation_id IS NULL AND status IN ('queued', 'running')
""")
# The newest Run that came so far as to have a context; what it works with is what the next question would.
PLACE = text("""
    SELECT r.run_id, x.context_id, n.release_id, a.name AS agent
    FROM runs r JOIN role_contexts x ON x.run_id = r.run_id AND x.instance = 'main',
         agents a JOIN agent_releases n ON n.agent_id = a.agent_id AND n.release_no = a.release_head
    WHERE r.session_id = :session_id AND a.agent_id = :agent_id ORDER BY r.run_no DESC LIMIT 1
""")

ASK = "UPDATE runs SET asked_to_compact = true WHERE run_id = :asked_run"
INSERT = """
    INSERT INTO compaction_episodes (episode_id, session_id, run_id, context_id, release_id, through_run_no, source,
      causes, status, prompt_version)
    VALUES (:episode_id, :session_id, :run_id, :context_id, :release_id, :through_run_no, :source,
      CAST(:causes AS text[]), :status, :prompt_version)
"""


@dataclass(frozen=True)
class CompactSession:
    """Asks for a compaction; with a client key a repeat finds the first answer."""

    session_id: UUID
    owner_id: UUID
    client_key: str | None = field(default=None, repr=False)


class CompactionAsked(BaseModel):
    """What is compacted: the active Run `run_id`, or the idle Session, by an episode that stands with that Run.

    `is_known`: nobody has to be told any more.
    """

    model_config = ConfigDict(frozen=True)

    session_id: UUID
    run_id: UUID
    episode_id: UUID | None = None
    outbox_id: UUID | None = None
    is_known: bool = False


async def compact_session(store: Store, request: CompactSession) -> CompactionAsked:
    """Open the compaction of an idle Session, or name the active Run, which is then to be told.

    Raises NotFoundError, SessionArchivedError, RunNotActiveError for a session that has had no Run,
    ClientKeyReusedError, ClientKeyInFlightError.
    """
    key = _client_key(store, request)
    async with store.transaction("compact_session") as connection:
        if key and (first := await first_answer(connection, key)):
            return CompactionAsked.model_validate(first | {"is_known": True})
        session = await lock_session(connection, request.session_id, request.owner_id)
        if session.archived:
            raise SessionArchivedError
        writes = WriteSet()
        if run := await lock_active_run(connection, request.session_id):
            writes.sql(ASK, asked_run=run.run_id)
            is_known = run.status == "queued"
            asked = CompactionAsked(session_id=request.session_id, run_id=run.run_id, is_known=is_known)
        else:
            asked = await _standing(connection, session) or await _opened(connection, writes, session)
        if key and (asked.is_known or asked.episode_id):
            remember(writes, key, asked)
        await writes.send(connection)
        return asked


async def keep_answer(store: Store, request: CompactSession, asked: CompactionAsked) -> None:
    """Keep what the client of an active Run is told, once its workflow has been; a repeat finds the first."""
    key = _client_key(store, request)
    if key is None:
        return
    async with store.transaction("keep_compact_answer") as connection:
        if await first_answer(connection, key) is None:
            writes = WriteSet()
            remember(writes, key, asked)
            await writes.send(connection)


def _client_key(store: Store, request: CompactSession) -> ClientKey | None:
    return client_key(store, request.session_id, request.owner_id, request.client_key, ["compact"])


async def _standing(connection: AsyncConnection, session: LockedSession) -> CompactionAsked | None:
    """The compaction that is under way already."""
    row = await fetch_one(connection, STANDING, session_id=session.session_id)
    return CompactionAsked(session_id=session.session_id, **row) if row else None


async def _opened(connection: AsyncConnection, writes: WriteSet, session: LockedSession) -> CompactionAsked:
    binds = {"session_id": session.session_id, "agent_id": session.agent_id}
    place: Any = await fetch_one(connection, PLACE, **binds)
    if place is None:
        raise RunNotActiveError("This session has had no run yet, so there is nothing to compact.")
    ids = {"episode_id": new_id(), "session_id": session.session_id, "run_id": place["run_id"]}
    row = ids | {"context_id": place["context_id"], "release_id": place["release_id"]}
    what: dict[str, Any] = {
        "source": "manual",
        "causes": ["manual"],
        "status": "queued",
        "prompt_version": PROMPT_VERSION,
    }
    writes.sql(INSERT, **row, **what, through_run_no=session.run_head)
    intent = outbox_row(StartCompaction(**ids, agent=place["agent"], release_id=place["release_id"]))
    writes.insert(outbox, [intent])
    return CompactionAsked(**ids, outbox_id=intent["outbox_id"])

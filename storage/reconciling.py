"""Finds Runs that claim to be active while their workflow is gone, and ends them with the truth (SPEC S13).

A Run is asked about once it has been silent for a while, and never while its start still waits to be sent. The end is
the ordinary `finish_run`, fenced by execution number: a Run that has ended or gone on meanwhile stays as it is. An end
is always committed before its workflow closes, so a Run that is still active after the question has lost its workflow.
The same goes for the compactions of idle Sessions (SPEC K12), ended by the ordinary `fail_episode`. One whose end can't
be written, since its rows are damaged, is named in the log, and keeps no other from ending.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import text

from context.episodes import FailEpisode
from context.errors import AgentLoomError, CompactionFailedError, RunLostError, SupersededError, UnavailableError
from context.standing import Standing, Watch
from context.steps import FinishRun
from storage.commits.fail_episode import fail_episode
from storage.commits.finish_run import finish_run
from storage.database import fetch_all
from storage.store import Store

LOG = logging.getLogger(__name__)

QUIET_S = 4.0  # a Run with a younger event is not asked about
PAUSE_S = 2.0
PAGE = 200  # Runs asked about in one round, at most
AT_ONCE = 20

# A sign of life later than now, by more than commits overlap, is from a clock that was ahead, and counts for nothing.
_QUIET = "NOT BETWEEN clock_timestamp() - make_interval(secs => :quiet) AND clock_timestamp() + interval '1 minute'"

SILENT = text(f"""
    SELECT r.run_id, r.execution_no
    FROM runs r LEFT JOIN run_events e ON e.run_id = r.run_id AND e.run_seq = r.event_head
    WHERE r.status IN ('queued', 'running') AND r.run_id > :after
      AND coalesce(e.at, r.created_at) {_QUIET}
      AND NOT EXISTS (SELECT 1 FROM outbox o
                      WHERE o.run_id = r.run_id AND o.kind = 'start' AND o.sent_at IS NULL
                        AND (o.body ->> 'execution_no')::integer = r.execution_no)
    ORDER BY r.run_id LIMIT :page
""")

SILENT_COMPACTIONS = text(f"""
    SELECT e.episode_id
    FROM compaction_episodes e JOIN runs r USING (run_id)
         LEFT JOIN run_events v ON v.run_id = e.run_id AND v.run_seq = r.event_head
    WHERE e.operation_id IS NULL AND e.status IN ('queued', 'running')
      AND greatest(e.created_at, v.at) {_QUIET}
      AND NOT EXISTS (SELECT 1 FROM outbox o
                      WHERE o.run_id = e.run_id AND o.kind = 'compact' AND o.sent_at IS NULL
                        AND (o.body ->> 'episode_id')::uuid = e.episode_id)
    ORDER BY e.made_no LIMIT :page
""")

HOW = {
    "terminated": "The workflow of this run was terminated outside AgentLoom.",
    "timed_out": "The workflow of this run reached a time limit set outside AgentLoom.",
    "missing": "The workflow of this run no longer exists.",
    "failed": "The workflow of this run failed before its end was recorded.",
    "completed": "The workflow of this run closed before its end was recorded.",
}
START = UUID(int=0)


@dataclass(frozen=True)
class SilentRun:
    """A Run that says it is active and has not been heard of for a while."""

    run_id: UUID
    execution_no: int


async def silent_runs(store: Store, *, after: UUID = START, quiet_s: float = QUIET_S) -> list[SilentRun]:
    """The next page of them, by id."""
    async with store.reading() as connection:
        rows = await fetch_all(connection, SILENT, after=after, quiet=quiet_s, page=PAGE)
    return [SilentRun(**row) for row in rows]


def truth(run: SilentRun, standing: Standing) -> FinishRun | None:
    """The end that this standing of its workflow means for the Run, or None for none.

    A cancelled workflow is a stop, whoever cancelled it (SPEC W2, W3a); everything else is a Run that was lost.
    """
    place = {"run_id": run.run_id, "execution_no": run.execution_no}
    if standing == "open":
        return None
    if standing == "canceled":
        return FinishRun(**place, status="stopped", end_reason="user_stop")
    lost = RunLostError
    return FinishRun(**place, status="failed", end_reason=lost.end_reason, code=lost.code, message=HOW[standing])


async def silent_compactions(store: Store, *, quiet_s: float = QUIET_S) -> list[UUID]:
    """Compactions of idle Sessions that say they go on and have not been heard of for a while; one page of them."""
    async with store.reading() as connection:
        rows = await fetch_all(connection, SILENT_COMPACTIONS, quiet=quiet_s, page=PAGE)
    return [row["episode_id"] for row in rows]


def end_of_compaction(episode_id: UUID, standing: Standing) -> FailEpisode | None:
    """The end that this standing of its workflow means for an idle Session's episode, or None for none."""
    if standing == "open":
        return None
    how = {"status": "cancelled", "reason": "cancelled"} if standing == "canceled" else LOST
    return FailEpisode.model_validate(how | {"episode_id": episode_id, "code": CompactionFailedError.code})


LOST = {"status": "failed", "reason": RunLostError.end_reason}


class Reconciler:
    """Goes round the silent Runs and compactions. Any number may run: an end is committed once.

    `on_end` is told of each Run that was ended.
    """

    def __init__(
        self,
        store: Store,
        watch: Watch,
        *,
        on_end: Callable[[UUID], Awaitable[object]] | None = None,
        quiet_s: float = QUIET_S,
    ) -> None:
        self._store = store
        self._watch = watch
        self._on_end = on_end
        self._quiet_s = quiet_s
        self._after = START
        self._named: set[UUID] = set()
        self._places = asyncio.Semaphore(AT_ONCE)

    async def run(self) -> None:
        """Round after round until cancelled. While database or Temporal are away, Runs wait."""
        while True:
            await self._round_if_reachable()
            await asyncio.sleep(PAUSE_S)

    async def round(self) -> int:
        """Ask about one page of silent Runs; how many were ended. Raises UnavailableError if the database is away."""
        page = await silent_runs(self._store, after=self._after, quiet_s=self._quiet_s)
        self._after = page[-1].run_id if len(page) == PAGE else START
        ended = await asyncio.gather(*(self._look(run) for run in page))
        compactions = await silent_compactions(self._store, quiet_s=self._quiet_s)
        failed = await asyncio.gather(*(self._look_at_compaction(one) for one in compactions))
        return sum(ended) + sum(failed)

    async def _round_if_reachable(self) -> None:
        try:
            await self.round()
        except UnavailableError:
            return  # the next round asks again

    async def _look(self, run: SilentRun) -> bool:
        async with self._places:
            try:
                end = truth(run, await self._watch.standing(run.run_id, run.execution_no))
                return end is not None and await self._end(end)
            except UnavailableError:
                return False
            except AgentLoomError as error:
                return self._named_once("run", run.run_id, error)

    async def _look_at_compaction(self, episode_id: UUID) -> bool:
        async with self._places:
            try:
                end = end_of_compaction(episode_id, await self._watch.standing_of_compaction(episode_id))
                return end is not None and await fail_episode(self._store, end)
            except UnavailableError:
                return False
            except AgentLoomError as error:
                return self._named_once("compaction", episode_id, error)

    def _named_once(self, kind: str, identity: UUID, error: AgentLoomError) -> bool:
        """Say which one could not be ended, and why; it is tried again in each round."""
        if identity not in self._named:
            self._named.add(identity)
            LOG.error("The end of %s %s could not be written: %s %s", kind, identity, error.code, error.message)
        return False

    async def _end(self, end: FinishRun) -> bool:
        """Whether this end now stands; a Run that went on or ended by itself keeps what it has."""
        try:
            finished = await finish_run(self._store, end)
        except SupersededError:
            return False
        if finished.end_reason != end.end_reason:
            return False
        if self._on_end:
            await self._on_end(end.run_id)
        return True

"""Opening an idle Session's compaction: what the next Run would begin with is listed, weighed and frozen (SPEC K12).

The list is that of a Run's first request without its question. Recent Runs stay whole (SPEC P7), and inputs that wait
in the Session stay outside. With nothing to compact the episode ends here, without a call (SPEC K3).
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.compaction import Compact, NothingToCompact, Refused
from context.episodes import NOTHING_TO_COMPACT, EpisodeRef
from context.ids import derived
from context.steps import RequestTerms
from context.summary_view import Partition, partition
from context.views import ViewItem, total_tokens
from storage.database import fetch_all
from storage.episodes import LockedEpisode, lock_episode
from storage.event_log import EventLog
from storage.first_view import build_first_view
from storage.heads import Heads, lock_context
from storage.measuring import Measuring
from storage.opening import tell_opened
from storage.store import Store
from storage.tables import request_views
from storage.view_lists import write_items
from storage.weighing import POLICY, Opening
from storage.writes import WriteSet

WAITING = text("""
    SELECT input_id FROM input_deliveries WHERE session_id = :session_id AND run_id IS NULL AND state = 'pending'
""")
# Its sources are those of this moment, with which they are compared when it is published (SPEC K9).
OPEN = """
    UPDATE compaction_episodes SET status = 'running', created_at = now(), made_no = nextval('fact_order'),
           view_id = :view_id, view_length = :view_length, covered = CAST(:covered AS integer[]), folds = :folds,
           context_revision = :context_revision, estimated = :estimated, material = :material,
           target = CAST(:target AS jsonb), estimator_id = :estimator_id
    WHERE episode_id = :episode_id
"""
END = """
    UPDATE compaction_episodes SET status = :status, outcome = :outcome, failure = CAST(:failure AS jsonb),
           estimated = :estimated, estimator_id = :estimator_id, ended_at = now()
    WHERE episode_id = :episode_id
"""
MOVE_RUN = "UPDATE runs SET event_head = :event_head WHERE run_id = :run_id"


async def open_idle_episode(store: Store, ref: EpisodeRef, terms: RequestTerms) -> None:
    """Open the episode, or end it at once; a repeat finds it open or ended. Raises SupersededError if there is none."""
    async with store.transaction("open_idle_episode") as connection:
        episode = await lock_episode(connection, ref)
        if episode.status == "queued" and not episode.stopping:
            heads = await lock_context(connection, episode.context_id)
            measuring = Measuring(store.payloads, connection, terms.counter)
            await _Opening(episode, heads, terms, measuring).commit(connection)


class _Opening:
    """The writes of one opening."""

    def __init__(self, episode: LockedEpisode, heads: Heads, terms: RequestTerms, measuring: Measuring) -> None:
        self._episode = episode
        self._heads = heads
        self._terms = terms
        self._measuring = measuring
        self._writes = WriteSet()
        self._events = EventLog(heads.run_id, heads.event_head)

    async def commit(self, connection: AsyncConnection) -> None:
        items, whole_from = await self._first_items(connection)
        terms, estimated = self._terms, total_tokens(tuple(items)) + self._terms.beside
        frame = terms.frame
        parts = partition(items, terms.compaction, beside=terms.beside, frame=frame, whole_from=whole_from)
        decided = POLICY.decide(estimated, fixed=parts.fixed, material=parts.material, terms=terms.compaction)
        names = {"episode_id": self._episode.episode_id, "estimator_id": terms.counter.estimator_id}
        self._writes.bind(estimated=estimated, **names)
        if isinstance(decided, Compact):
            self._open(items, parts, decided, estimated)
        else:
            self._end(decided, estimated)
        self._measuring.write(self._writes)
        self._events.write(self._writes)
        self._writes.sql(MOVE_RUN, run_id=self._heads.run_id)
        await self._writes.send(connection)

    async def _first_items(self, connection: AsyncConnection) -> tuple[Sequence[ViewItem], int | None]:
        """What the Run after the newest one would begin with, and the first of the Runs that it must show whole."""
        assert self._episode.through_run_no is not None
        next_no = self._episode.through_run_no + 1
        waiting = await fetch_all(connection, WAITING, session_id=self._heads.session_id)
        own_inputs = frozenset(row["input_id"] for row in waiting)
        following = replace(self._heads, run_no=next_no)
        first = await build_first_view(self._measuring, following, self._terms, own_inputs)
        return first.items, None if self._terms.whole_session else next_no - self._terms.recent_runs

    def _open(self, items: Sequence[ViewItem], parts: Partition, decided: Compact, estimated: int) -> None:
        episode_id = self._episode.episode_id
        view_id: UUID = derived(episode_id, "sources")
        view = {"view_id": view_id, "context_id": self._heads.context_id, "cause": "idle_compaction"}
        self._writes.insert(request_views, [view])
        write_items(self._writes, view_id, items)
        frozen: dict[str, Any] = {
            "view_id": view_id,
            "view_length": len(items),
            "context_revision": self._heads.revision,
        }
        what: dict[str, Any] = {"covered": list(parts.covered), "folds": parts.folds, "material": parts.material}
        self._writes.sql(OPEN, **frozen, **what, target=json.dumps(asdict(decided.target)))
        tell_opened(self._events, episode_id, Opening(("manual",), "manual", parts, decided.target, None), estimated)

    def _end(self, decided: NothingToCompact | Refused, estimated: int) -> None:
        """SPEC K3: nothing to do, or nothing that could help."""
        if isinstance(decided, Refused):
            failure = {"code": decided.code, "reason": "cannot_fit", "block": None}
            self._writes.sql(END, status="failed", outcome=None, failure=json.dumps(failure))
            told: dict[str, Any] = {"outcome": "failed", **failure}
        else:
            self._writes.sql(END, status="succeeded", outcome=NOTHING_TO_COMPACT, failure=None)
            told = {"outcome": NOTHING_TO_COMPACT, "tokens_before": estimated, "tokens_after": estimated}
        self._events.add("compaction_finished", episode_id=self._episode.episode_id, **told)

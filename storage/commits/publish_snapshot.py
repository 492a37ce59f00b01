"""Publishing: snapshot, coverage, the view that shows it, baselines, the episode's end: one transaction (SPEC K9).

Under the locks the covered facts are compared with what was frozen, and the view with and without the summary. What
does not stand up to that is stored and not used: the view stays as it is. An idle Session's summary changes no view:
the next Run begins with it (SPEC K12).
"""

import json
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from context.compaction import NotSmaller, Shrinks, judge_summary
from context.episodes import CompactionVerdict, PublishSnapshot
from context.errors import SupersededError
from context.ids import derived, snapshot_id
from context.snapshots import Applies, Outdated, Publish, StoreOnly, publication, summary_item
from context.summary_view import same_pieces, with_summary
from context.views import ViewItem, total_tokens
from storage.covering import CoveredSources, covered_sources, taken_up, touched
from storage.episodes import LockedEpisode, lock_episode
from storage.event_log import EventLog
from storage.payloads import Sealed
from storage.snapshot_tables import snapshot_pieces
from storage.store import Store
from storage.tables import payloads
from storage.view_lists import Switch, listed, write_items, write_switch
from storage.writes import WriteSet

SNAPSHOT = """
    INSERT INTO snapshots (snapshot_id, episode_id, session_id, context_id, generation, previous_id, text_id,
      message_id, tokens, ranges, revisions, runs, pieces, activated, outdated_at)
    SELECT :snapshot_id, :episode_id, :session_id, :context_id, coalesce(max(generation), 0) + 1, :previous_id,
      :text_id, :message_id, :tokens, CAST(:ranges AS jsonb), CAST(:revisions AS jsonb), CAST(:runs AS integer[]),
      :pieces, :activated, CASE WHEN :changed THEN now() END
    FROM snapshots WHERE context_id = :context_id
"""
END = """
    UPDATE compaction_episodes SET status = 'succeeded', outcome = :outcome, tokens_after = :tokens_after,
           reaches_target = :reaches_target, under_trigger = :under_trigger, ended_at = now()
    WHERE episode_id = :episode_id
"""
ACTIVATE = """
    UPDATE role_contexts SET view_id = :view_id, view_length = :view_length, view_tokens = :view_tokens,
           active_snapshot_id = :snapshot_id, material_mark = :view_length
    WHERE context_id = :context_id
"""
MARK = "UPDATE role_contexts SET material_mark = view_length WHERE context_id = :context_id"
MOVE_BASELINES = """
    UPDATE sessions SET base_run_no = run_head, base_seq = record_head WHERE session_id = :session_id
"""
# Those of the Run that it stands with and of the Runs before: a question may have come meanwhile.
MOVE_IDLE_BASELINES = """
    UPDATE sessions SET base_run_no = greatest(base_run_no, :through_run_no), base_seq = greatest(base_seq, coalesce(
      (SELECT c.seq FROM context_records c JOIN runs r USING (run_id)
       WHERE c.session_id = :session_id AND r.run_no <= :through_run_no ORDER BY c.seq DESC LIMIT 1), 0))
    WHERE session_id = :session_id
"""
MOVE_RUN = "UPDATE runs SET event_head = :event_head WHERE run_id = :run_id"


async def publish_snapshot(store: Store, request: PublishSnapshot) -> CompactionVerdict:
    """Publish the finished summary; a repeat finds how it was decided. Raises SupersededError for a late owner."""
    message = store.payloads.seal(request.message.body, {request.estimator_id: request.message.tokens or 0})
    async with store.transaction("publish_snapshot") as connection:
        episode = await lock_episode(connection, request.episode)
        if not episode.runs:
            return standing(episode)
        if episode.cursor != episode.blocks or episode.summary_id is None:
            raise SupersededError
        return await _Publication(request, episode, message).commit(connection)


def standing(episode: LockedEpisode) -> CompactionVerdict:
    """How an episode ended already."""
    failure = episode.failure or {}
    return CompactionVerdict.model_validate(
        {
            "status": episode.status,
            "outcome": episode.outcome,
            "code": failure.get("code"),
            "reason": failure.get("reason"),
            "tokens_before": episode.estimated,
            "tokens_after": episode.tokens_after or 0,
        }
    )


@dataclass(frozen=True)
class _Decided:
    """The lists before and after, and what is made of the new one."""

    before: tuple[ViewItem, ...]
    after: tuple[ViewItem, ...]
    size: Shrinks | NotSmaller
    validity: Applies | Outdated
    outcome: Publish | StoreOnly
    sources: CoveredSources
    of_its_run_alone: bool  # what it stands for looks different to Runs that come later

    @property
    def name(self) -> str:
        return "activated" if isinstance(self.outcome, Publish) else self.outcome.reason


class _Publication:
    """The writes of one publication."""

    def __init__(self, request: PublishSnapshot, episode: LockedEpisode, message: Sealed) -> None:
        self._request = request
        self._episode = episode
        self._message = message
        self._snapshot_id: UUID = snapshot_id(episode.episode_id)
        self._writes = WriteSet()

    async def commit(self, connection: AsyncConnection) -> CompactionVerdict:
        decided = await self._decide(connection)
        after = total_tokens(decided.after) + self._request.fixed
        self._writes.insert(payloads, [self._message.parameters()], skip_existing=True)
        self._store(decided)
        self._writes.sql(END, outcome=decided.name, tokens_after=after)
        self._writes.bind(**_judged(decided.size))
        if isinstance(decided.outcome, Publish):
            self._activate(decided)
        elif not self._episode.is_idle:
            self._writes.sql(MARK)
        self._announce(decided, after)
        await self._writes.send(connection)
        before = total_tokens(decided.before) + self._request.fixed
        return CompactionVerdict(status="succeeded", outcome=decided.name, tokens_before=before, tokens_after=after)

    async def _decide(self, connection: AsyncConnection) -> _Decided:
        episode, request = self._episode, self._request
        frozen, before = await self._lists(connection)
        sources = await covered_sources(connection, episode, frozen)
        item = summary_item(self._snapshot_id, self._message.payload_id, request.message.tokens or 0)
        after = with_summary(before, frozenset(episode.covered), item)
        sizes = {"before": total_tokens(before) + request.fixed, "after": total_tokens(after) + request.fixed}
        size = judge_summary(**sizes, terms=request.terms)
        settled = await taken_up(connection, episode.episode_id, sources)
        changed = await touched(connection, sources) | (settled if episode.is_idle else frozenset())
        validity = Outdated(tuple(sorted(changed))) if changed else Applies()
        active = episode.expected_snapshot_id if episode.is_idle else episode.active_snapshot_id
        outcome = publication(size, validity, active=active, expected=episode.expected_snapshot_id)
        if isinstance(outcome, Publish) and not same_pieces(frozen, before):
            outcome = StoreOnly("another_snapshot")  # the list was shortened otherwise meanwhile
        return _Decided(before, after, size, validity, outcome, sources, bool(settled))

    async def _lists(self, connection: AsyncConnection) -> tuple[tuple[ViewItem, ...], tuple[ViewItem, ...]]:
        """The frozen list, and the list of now; an idle Session has only the first."""
        episode = self._episode
        if episode.is_idle or episode.now_view_id != episode.view_id:
            frozen = await listed(connection, episode.view_id, episode.view_length)
            if episode.is_idle:
                return frozen, frozen
            return frozen, await listed(connection, episode.now_view_id, episode.now_view_length)
        before = await listed(connection, episode.now_view_id, episode.now_view_length)
        return before[: episode.view_length], before

    def _store(self, decided: _Decided) -> None:
        episode, extent = self._episode, decided.sources.extent
        ranges = [asdict(one) for one in extent.ranges]
        revisions = {str(context): revision for context, revision in extent.revisions.items()}
        self._writes.sql(SNAPSHOT)
        self._writes.bind(
            snapshot_id=self._snapshot_id,
            episode_id=episode.episode_id,
            session_id=episode.session_id,
            context_id=episode.context_id,
            previous_id=decided.sources.previous_id,
            text_id=episode.summary_id,
            message_id=self._message.payload_id,
            tokens=self._request.message.tokens or 0,
            ranges=json.dumps(ranges, default=str),
            revisions=json.dumps(revisions),
            runs=sorted(extent.runs),
            pieces=extent.pieces,
            activated=isinstance(decided.outcome, Publish),
            changed=isinstance(decided.validity, Outdated) or decided.of_its_run_alone,
        )
        rows = [self._piece_row(at, one) for at, one in enumerate(decided.sources.added.pieces)]
        self._writes.insert(snapshot_pieces, rows)

    def _piece_row(self, ordinal: int, covered: Any) -> dict[str, Any]:
        place = {"context_id": covered.context_id, "context_seq": covered.context_seq, "run_no": covered.run_no}
        version = {"piece": covered.piece, "digest": covered.version.digest}
        return {"snapshot_id": self._snapshot_id, "ordinal": ordinal} | version | place

    def _activate(self, decided: _Decided) -> None:
        episode = self._episode
        if episode.is_idle:
            self._writes.sql(MOVE_IDLE_BASELINES, through_run_no=episode.through_run_no)
            return
        view_id = derived(episode.episode_id, "view")
        switch = Switch(view_id, "compaction", episode.now_view_id, len(decided.before), inherited=len(decided.after))
        write_switch(self._writes, episode.context_id, switch)
        write_items(self._writes, view_id, decided.after)
        tokens = total_tokens(decided.after)
        self._writes.sql(ACTIVATE, view_id=view_id, view_length=len(decided.after), view_tokens=tokens)
        self._writes.sql(MOVE_BASELINES)

    def _announce(self, decided: _Decided, after: int) -> None:
        episode = self._episode
        assert episode.summary_id is not None
        events = EventLog(episode.run_id, episode.event_head)
        numbers = {"tokens_before": total_tokens(decided.before) + self._request.fixed, "tokens_after": after}
        judged = _judged(decided.size) | {"truncated": episode.truncated, "calls": episode.blocks}
        what = {"episode_id": episode.episode_id, "content_id": episode.summary_id.hex()}
        events.add("compaction_finished", **what, outcome=decided.name, **numbers, **judged)
        events.write(self._writes)
        self._writes.sql(MOVE_RUN, run_id=episode.run_id)


def _judged(size: Shrinks | NotSmaller) -> dict[str, bool]:
    if isinstance(size, Shrinks):
        return {"reaches_target": size.reaches_target, "under_trigger": size.under_trigger}
    return {"reaches_target": False, "under_trigger": False}

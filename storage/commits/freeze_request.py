"""A request that waited for its compaction is frozen: judged anew, checked, and given its permit (SPEC B8, A2, A4).

Its results and inputs were listed when it was prepared; what came since belongs to the next loop (SPEC K11). If the
compaction was ended from outside, it is recorded as ended here at the latest, and the request is sent as it is if it
fits (decision 0106), and if what its last call was sent has not used up the Run's budget (SPEC L5).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.budget import judge
from context.episodes import FailEpisode
from context.errors import (
    BudgetExhaustedError,
    CompactionFailedError,
    CorruptPayloadError,
    ModelContextLengthError,
    SupersededError,
)
from context.ids import block_operation_id
from context.policy import Limits
from context.protected import ProtectedPresent
from context.steps import FreezeRequest, PreparedRequest, RequestTerms
from context.views import ViewItem
from storage.commits.fail_episode import end_call, write_end
from storage.commits.finish_run import reached
from storage.database import fetch_all, fetch_one
from storage.event_log import EventLog
from storage.freezing import Frozen, refusal, write_frozen
from storage.heads import Heads, lock_heads
from storage.linking import breaks_pairs
from storage.store import Store
from storage.view_lists import listed
from storage.writes import WriteSet

STANDING = text("""
    SELECT o.prepared, e.episode_id, e.source, e.status, e.outcome, e.cursor
    FROM operations o LEFT JOIN compaction_episodes e USING (operation_id) WHERE o.operation_id = :operation_id
""")
REQUIRED = text("""
    SELECT DISTINCT input_seq, input_id FROM input_deliveries
    WHERE run_id = :run_id AND state IN ('claimed', 'delivered') AND input_seq <= :cutoff ORDER BY input_seq
""")
FREEZE = """
    UPDATE operations SET state = :state, attempts = :attempts, view_id = :view_id, view_length = :view_length,
           prepared = CAST(:prepared AS jsonb), updated_at = now()
    WHERE operation_id = :operation_id
"""
# What was there to be summarised is not new: without it the same episode would begin again at once (SPEC K8, K14).
MARK = "UPDATE role_contexts SET material_mark = view_length WHERE context_id = :context_id"


@dataclass(frozen=True)
class _Episode:
    """The episode that the request waited for. `ended_outside` as in a FreezeRequest."""

    episode_id: UUID
    source: str
    status: str
    outcome: str | None
    cursor: int
    ended_outside: str | None

    @property
    def lost(self) -> FailEpisode | None:
        """The end of one whose workflow is gone without having recorded any."""
        if self.status != "running" or self.ended_outside is None:
            return None
        how = {"status": "failed", "code": CompactionFailedError.code, "reason": self.ended_outside}
        return FailEpisode.model_validate(how | {"episode_id": self.episode_id})

    @property
    def has_summary(self) -> bool:
        return self.status == "succeeded"

    @property
    def note(self) -> str:
        """For the manifest."""
        return f"compaction:{'failed' if self.lost else self.outcome or self.status}"


async def freeze_request(
    store: Store, request: FreezeRequest, terms: RequestTerms, limits: Limits | None = None
) -> PreparedRequest:
    """Freeze the request after its episode; a repeat finds it frozen. Raises SupersededError if the Run moved on."""
    async with store.transaction("freeze_request") as connection:
        heads = await lock_heads(connection, request.context_id, execution_no=request.execution_no)
        found: Any = await fetch_one(connection, STANDING, operation_id=request.operation_id)
        if found is None:
            raise SupersededError
        waiting = PreparedRequest.model_validate(found.pop("prepared"))
        if waiting.compact is None:
            return waiting
        if heads.stopping:
            return waiting.model_copy(update={"compact": None, "stopping": True})
        episode = _Episode(**found, ended_outside=request.ended_outside)
        if episode.status == "failed":  # by itself, right before somebody ended its workflow
            return waiting.model_copy(update={"compact": None, "refused": CompactionFailedError.code})
        if heads.view_id is None:
            raise CorruptPayloadError("A compacted context has no list.")
        items = await listed(connection, heads.view_id, heads.view_length)
        broken = await _broken(connection, heads.run_id, waiting.cutoff, items)
        prepared = _prepared(heads, waiting, terms, episode, broken)
        if episode.lost:
            await end_call(connection, heads.run_id, block_operation_id(episode.episode_id, episode.cursor))
        if not prepared.refused and limits and await reached(connection, heads.run_id, limits):
            prepared = prepared.model_copy(update={"refused": BudgetExhaustedError.code})
        await _writes(request, heads, prepared, terms, items, broken, episode).send(connection)
        return prepared


def _prepared(
    heads: Heads, waiting: PreparedRequest, terms: RequestTerms, episode: _Episode, broken: str | None
) -> PreparedRequest:
    estimated = heads.view_tokens + terms.beside
    refused = _refused(episode, too_large=refusal(judge(estimated, terms.budget, protected=0)))
    if broken is not None:
        refused = CorruptPayloadError.code
    changes = {"estimated": estimated, "compact": None, "refused": refused}
    return waiting.model_copy(update=changes)


def _refused(episode: _Episode, *, too_large: str | None) -> str | None:
    """Over B for want of a summary is its compaction's failure; as it was refused it is not sent again (K8, B7)."""
    if episode.source == "overflow" and episode.outcome != "activated":
        return ModelContextLengthError.code
    return too_large if episode.has_summary or not too_large else CompactionFailedError.code


async def _broken(connection: AsyncConnection, run_id: UUID, cutoff: int, items: Sequence[ViewItem]) -> str | None:
    """The validation that the list fails, if any; such a request is never sent."""
    rows = await fetch_all(connection, REQUIRED, run_id=run_id, cutoff=cutoff)
    if ProtectedPresent([f"input/{row['input_id']}" for row in rows]).breaches(items):
        return "protected_input_missing"
    return "invalid_tool_pairs" if await breaks_pairs(connection, items) else None


def _writes(
    request: FreezeRequest,
    heads: Heads,
    prepared: PreparedRequest,
    terms: RequestTerms,
    items: Sequence[ViewItem],
    broken: str | None,
    episode: _Episode,
) -> WriteSet:
    transforms = sorted({item.transform for item in items if item.transform})
    has_tools = terms.tools_tokens > 0 or any(item.kind == "tool_result" for item in items)
    names: dict[str, Any] = {"transforms": transforms, "has_tools": has_tools, "broken": broken}
    frozen = Frozen(heads.run_id, request.operation_id, request.loop, prepared, notes=(episode.note,), **names)
    writes, events = WriteSet(), EventLog(heads.run_id, heads.event_head)
    row = {"view_id": heads.view_id, "view_length": heads.view_length, "prepared": prepared.model_dump_json()}
    writes.sql(FREEZE, operation_id=request.operation_id)
    writes.bind(**frozen.state, **row)
    if episode.lost:
        write_end(writes, events, episode.lost)
    if not episode.has_summary and not prepared.refused:
        writes.sql(MARK, context_id=heads.context_id)
    write_frozen(writes, events, frozen, terms)
    events.write(writes)
    return writes

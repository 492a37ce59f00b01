"""A request that waited for its compaction is frozen: judged anew, checked, and given its permit (SPEC B8, A2, A4).

Its results and inputs were listed when it was prepared; what came since belongs to the next loop (SPEC K11).
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.budget import judge
from context.errors import (
    CompactionFailedError,
    CorruptPayloadError,
    ModelContextLengthError,
    SupersededError,
)
from context.protected import ProtectedPresent
from context.steps import FreezeRequest, PreparedRequest, RequestTerms
from context.views import ViewItem
from storage.commits.prepare_request import refusal
from storage.database import fetch_all, fetch_one
from storage.event_log import EventLog
from storage.freezing import Frozen, write_frozen
from storage.heads import Heads, lock_heads
from storage.linking import breaks_pairs
from storage.store import Store
from storage.view_lists import listed
from storage.writes import WriteSet

STANDING = text("""
    SELECT o.prepared, o.view_id, o.state, e.source, e.status, e.outcome
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


async def freeze_request(store: Store, request: FreezeRequest, terms: RequestTerms) -> PreparedRequest:
    """Freeze the request after its episode; a repeat finds it frozen. Raises SupersededError if the Run moved on."""
    async with store.transaction("freeze_request") as connection:
        heads = await lock_heads(connection, request.context_id, execution_no=request.execution_no)
        found: Any = await fetch_one(connection, STANDING, operation_id=request.operation_id)
        if found is None:
            raise SupersededError
        waiting = PreparedRequest.model_validate(found["prepared"])
        if waiting.compact is None:
            return waiting
        if heads.view_id is None:
            raise CorruptPayloadError("A compacted context has no list.")
        items = await listed(connection, heads.view_id, heads.view_length)
        broken = await _broken(connection, heads.run_id, waiting.cutoff, items)
        prepared = _prepared(heads, waiting, terms, found, broken)
        await _writes(request, heads, prepared, terms, items, broken, found).send(connection)
        return prepared


def _prepared(
    heads: Heads, waiting: PreparedRequest, terms: RequestTerms, episode: Any, broken: str | None
) -> PreparedRequest:
    estimated = heads.view_tokens + terms.beside
    refused = _unchanged(episode) or refusal(judge(estimated, terms.budget, protected=0))
    if broken is not None:
        refused = CorruptPayloadError.code
    changes = {"estimated": estimated, "compact": None, "refused": refused}
    return waiting.model_copy(update=changes)


def _unchanged(episode: Any) -> str | None:
    """A request is not sent if its compaction failed, nor again as it was refused (SPEC K8, B7)."""
    if episode["status"] != "succeeded":
        return CompactionFailedError.code
    same = episode["source"] == "overflow" and episode["outcome"] != "activated"
    return ModelContextLengthError.code if same else None


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
    episode: Any,
) -> WriteSet:
    transforms = sorted({item.transform for item in items if item.transform})
    notes = (f"compaction:{episode['outcome'] or episode['status']}",)
    has_tools = terms.tools_tokens > 0 or any(item.kind == "tool_result" for item in items)
    names: dict[str, Any] = {"transforms": transforms, "notes": notes, "has_tools": has_tools, "broken": broken}
    frozen = Frozen(heads.run_id, request.operation_id, request.loop, prepared, **names)
    writes, events = WriteSet(), EventLog(heads.run_id, heads.event_head)
    row = {"view_id": heads.view_id, "view_length": heads.view_length, "prepared": prepared.model_dump_json()}
    writes.sql(FREEZE, operation_id=request.operation_id)
    writes.bind(**frozen.state, **row)
    write_frozen(writes, events, frozen, terms)
    events.write(writes)
    return writes

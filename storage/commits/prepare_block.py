"""A block's request becomes an Operation of its own, frozen like any other, with the permit for its first try (A8).

Its messages are listed in a small view, so that it is rebuilt by hash as every request is (SPEC A9).
"""

import json
from typing import Any

from context.episodes import BlockVerdict, PrepareBlock
from context.ids import block_operation_id, derived
from context.views import ViewItem
from storage.commits.take_up_request import take_up_request
from storage.episodes import LockedEpisode, lock_episode
from storage.event_log import EventLog
from storage.payloads import distinct
from storage.requests import FrozenRequest, Requests
from storage.snapshot_tables import idle_blocks
from storage.store import Store
from storage.tables import attempts, manifests, operations, payloads, request_views
from storage.view_lists import write_items
from storage.writes import WriteSet

MOVE_RUN = "UPDATE runs SET event_head = :event_head WHERE run_id = :run_id"


async def prepare_block(store: Store, request: PrepareBlock) -> FrozenRequest | BlockVerdict:
    """Freeze the request of the block at the cursor; a repeat finds it frozen, or the block's verdict.

    Raises SupersededError if nobody waits for the episode any more.
    """
    operation_id = block_operation_id(request.episode.episode_id, request.block)
    async with store.transaction("prepare_block") as connection:
        episode = await lock_episode(connection, request.episode)
        standing = _standing(episode, request.block)
        if standing is None and not await Requests(store).exists(connection, operation_id):
            await _writes(store, request, episode).send(connection)
    if standing is not None:
        return standing
    if request.begins:
        return await take_up_request(store, operation_id, execution_no=request.episode.execution_no)
    return await Requests(store).load(operation_id, execution_no=request.episode.execution_no)


def _standing(episode: LockedEpisode, block: int) -> BlockVerdict | None:
    if episode.cursor > block:
        return BlockVerdict(kind="done")
    if not episode.runs:
        failure = episode.failure or {}
        return BlockVerdict(kind="failed", code=failure.get("code"), reason=failure.get("reason"))
    return BlockVerdict(kind="stopping") if episode.stopping else None


def _writes(store: Store, request: PrepareBlock, episode: LockedEpisode) -> WriteSet:
    operation_id = block_operation_id(request.episode.episode_id, request.block)
    view_id = derived(operation_id, "view")
    sealed = [store.payloads.seal(one.body, {request.estimator_id: one.tokens or 0}) for one in request.messages]
    items = [
        ViewItem("system" if at == 0 else "reference", one.payload_id, one.tokens[request.estimator_id])
        for at, one in enumerate(sealed)
    ]
    writes = WriteSet()
    writes.insert(payloads, distinct(sealed), skip_existing=True)
    view = {"view_id": view_id, "context_id": episode.context_id, "cause": "compaction_block"}
    writes.insert(request_views, [view])
    write_items(writes, view_id, items)
    owner = {"session_id": episode.session_id, "run_id": episode.run_id, "context_id": episode.context_id}
    what = {"purpose": "compaction", "loop_no": episode.loops, "ordinal": request.block, "name": request.model}
    frozen = {"view_id": view_id, "view_length": len(items), "max_output_tokens": request.max_output_tokens}
    state = {"state": "calling", "attempts": 1}
    writes.insert(operations, [{"operation_id": operation_id} | owner | what | frozen | state])
    if episode.is_idle:
        writes.insert(idle_blocks, [{"operation_id": operation_id, "episode_id": episode.episode_id}])
    writes.insert(attempts, [{"operation_id": operation_id, "attempt_no": 1, "state": "calling"}])
    writes.insert(manifests, [{"operation_id": operation_id} | _manifest(request)])
    events = EventLog(episode.run_id, episode.event_head)
    numbers = {"loop": episode.loops, "estimated": request.estimated, "input_limit": request.input_limit}
    whose = {"operation_id": operation_id, "episode_id": episode.episode_id}
    events.add("context_build", purpose="compaction", **whose, **numbers)
    events.write(writes)
    writes.sql(MOVE_RUN, run_id=episode.run_id)
    return writes


def _manifest(request: PrepareBlock) -> dict[str, Any]:
    return {
        "estimated_input_tokens": request.estimated,
        "estimated_cost": request.estimated_cost,
        "input_limit": request.input_limit,
        "counting_method": request.estimator_id,
        "exact": request.exact,
        "transforms": json.dumps([]),
        "validation": "passed",
    }

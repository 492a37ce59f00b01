"""One more try at an Operation is committed before the try is made (SPEC W5, S8).

Number, stop, deadline and owner are looked at. One statement for a first try. It need not reach the disk for a call
whose repeat does no harm; for a side effect it must: this row is what makes an unknown outcome detectable. A further
try looks at the ones before it in a statement of its own, which sees those too that began in the same moment; what they
used is counted there, since they will not report any more (SPEC L5). The owner is an execution of the Run, or, for a
block of an idle Session's compaction, its episode.
"""

from dataclasses import asdict
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.errors import CorruptPayloadError, SupersededError, UnavailableError
from context.messages import message_from_bytes
from context.steps import BeginAttempt, Begun, Settled, Stopping, ToolCallFacts
from storage.database import fetch_one, fetch_value
from storage.lost_tries import settling
from storage.store import Store

ATTEMPT = """
    WITH run AS (
      SELECT r.run_id, r.release_id FROM operations o JOIN runs r USING (run_id)
      WHERE o.operation_id = :operation_id
        AND extract(epoch FROM clock_timestamp()) < coalesce(CAST(:deadline_at AS double precision), 'infinity')
        AND CASE WHEN :execution_no > 0
        THEN r.status = 'running' AND r.execution_no = :execution_no AND r.stop_requested_at IS NULL
        ELSE EXISTS (SELECT 1 FROM idle_blocks b JOIN compaction_episodes e USING (episode_id)
                     WHERE b.operation_id = o.operation_id AND e.status = 'running' AND e.stop_requested_at IS NULL) END
      FOR SHARE OF r
    ), op AS (
      UPDATE operations o SET attempts = o.attempts + 1, state = 'calling', updated_at = now(),
             request_hash = coalesce(o.request_hash, :request_hash)
      FROM run WHERE o.operation_id = :operation_id AND o.run_id = run.run_id AND o.raw_id IS NULL
        AND o.state IN ('prepared', 'frozen', 'calling')
        AND (o.request_hash IS NULL OR o.request_hash = :request_hash)
      RETURNING o.operation_id, o.session_id, o.run_id, o.name, o.call_id, o.ordinal, o.batch_id, o.attempts,
                run.release_id
    ), new AS (
      INSERT INTO attempts (operation_id, attempt_no, state, begun_at)
      SELECT :operation_id, attempts, 'calling', now() FROM op
    )
    SELECT op.*, m.result_id,
           CASE WHEN NOT :durable THEN set_config('synchronous_commit', 'off', true) END AS fast
    FROM op LEFT JOIN operations m ON m.operation_id = op.batch_id
"""
BEGIN = text(ATTEMPT)
BEFORE = "a.operation_id = :operation_id AND a.attempt_no < :attempt_no"
LOCK_RUN = """
    SELECT r.run_id FROM operations o JOIN runs r USING (run_id) WHERE o.operation_id = :operation_id FOR UPDATE OF r
"""
REPLACE = text(f"""
    WITH {settling(run=LOCK_RUN, which=f"{BEFORE} AND a.state = 'calling'")}
    SELECT count(*)::int FROM attempts a WHERE {BEFORE} AND a.state IN ('calling', 'superseded')
""")
WHY_NOT = text("""
    SELECT o.raw_id IS NOT NULL OR o.state NOT IN ('prepared', 'frozen', 'calling') AS settled,
           CASE WHEN e.episode_id IS NULL THEN r.status = 'running' AND r.execution_no = :execution_no
                ELSE e.status = 'running' END AS owned,
           CASE WHEN e.episode_id IS NULL THEN r.stop_requested_at ELSE e.stop_requested_at END IS NOT NULL AS stopping,
           coalesce(o.request_hash <> :request_hash, false) AS differs,
           extract(epoch FROM clock_timestamp()) >= CAST(:deadline_at AS double precision) AS too_late
    FROM operations o JOIN runs r USING (run_id) LEFT JOIN idle_blocks b USING (operation_id)
         LEFT JOIN compaction_episodes e ON e.episode_id = b.episode_id
    WHERE o.operation_id = :operation_id
""")


async def begin_attempt(store: Store, request: BeginAttempt) -> Begun | Settled | Stopping:
    """Commit that a try begins. Raises SupersededError for a late owner, CorruptPayloadError if the request differs."""
    async with store.single("begin_attempt") as connection:
        row: Any = await fetch_one(connection, BEGIN, **asdict(request))
        if row is None:
            return await _why_not(connection, request)
        return await _begun(connection, row)


async def begin_tool_call(store: Store, request: BeginAttempt) -> tuple[Begun, ToolCallFacts] | Settled | Stopping:
    """Commit that a try at a tool call begins, and read the call; the same statement. Raises as `begin_attempt`."""
    async with store.single("begin_attempt") as connection:
        row: Any = await fetch_one(connection, BEGIN, **asdict(request))
        if row is None:
            return await _why_not(connection, request)
        begun = await _begun(connection, row)
        message = message_from_bytes(await store.payloads.read_one(connection, row["result_id"]))
    facts = {name: row[name] for name in ("operation_id", "session_id", "run_id", "release_id", "name", "call_id")}
    arguments = message.tool_calls[row["ordinal"]].arguments
    return begun, ToolCallFacts(**facts, arguments=arguments)


async def _begun(connection: AsyncConnection, row: Any) -> Begun:
    """The try, and how many before it never reported."""
    attempt_no = row["attempts"]
    if attempt_no == 1:
        return Begun(attempt_no)
    key = {"operation_id": row["operation_id"], "attempt_no": attempt_no}
    return Begun(attempt_no, lost=await fetch_value(connection, REPLACE, **key))


async def _why_not(connection: AsyncConnection, request: BeginAttempt) -> Settled | Stopping:
    asked = asdict(request)
    del asked["durable"]
    return _refusal(await fetch_one(connection, WHY_NOT, **asked))


def _refusal(row: Any) -> Settled | Stopping:
    if row is None or not (row["owned"] or row["settled"]):
        raise SupersededError
    if row["settled"]:
        return Settled()
    if row["stopping"] or row["too_late"]:
        return Stopping()
    if row["differs"]:
        raise CorruptPayloadError("The rebuilt request differs from the one that was frozen.")
    raise UnavailableError  # what stood in the way is gone again

"""A frozen request is taken up by whoever sends it first: read, and its try noted as begun, in one statement (SPEC L5).

The permit for the first try came with the freezing; without this, one that was never used could not be told from one
whose worker died. The note need not reach the disk before the call does. Nothing is noted of a settled call, for a late
owner, or if a stop is recorded: then nothing is sent.
"""

from uuid import UUID

from sqlalchemy import text

from storage.requests import OPERATION, OWNED, STOPPING, FrozenRequest, Requests
from storage.store import Store

TAKE_UP = text(f"""
    WITH begun AS (
      UPDATE attempts a SET begun_at = clock_timestamp()
      FROM operations o JOIN runs r USING (run_id) LEFT JOIN idle_blocks b USING (operation_id)
           LEFT JOIN compaction_episodes e ON e.episode_id = b.episode_id
      WHERE o.operation_id = :operation_id AND o.state = 'calling' AND o.attempts = 1 AND {OWNED} AND NOT {STOPPING}
        AND a.operation_id = o.operation_id AND a.state = 'calling' AND a.begun_at IS NULL
      RETURNING set_config('synchronous_commit', 'off', true)
    )
    {OPERATION}
""")


async def take_up_request(
    store: Store, operation_id: UUID, *, execution_no: int, held: tuple[UUID, int] | None = None
) -> FrozenRequest:
    """Commit that the first try begins, and read its request as `Requests.load` does; a repeat changes nothing.

    Raises NotFoundError if there is none.
    """
    async with store.single("take_up_request") as connection:
        requests = Requests(store)
        return await requests.read(connection, TAKE_UP, operation_id, execution_no=execution_no, held=held)

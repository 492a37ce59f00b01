"""The first event with text, reasoning or a call is evidence that the model has begun on the request (SPEC S6).

From here on the inputs that the request contains are `delivered`. One statement; a repeat changes nothing.
"""

from dataclasses import asdict

from sqlalchemy import text

from context.ids import root_context_id
from context.steps import RecordFirstOutput
from storage.database import fetch_value
from storage.event_log import RUN_EVENTS
from storage.store import Store

RECORD = text("""
    WITH attempt AS (
      UPDATE attempts SET first_output_at = now()
      WHERE operation_id = :operation_id AND attempt_no = :attempt_no AND state = 'calling' AND first_output_at IS NULL
      RETURNING 1
    ), sent AS (
      UPDATE operations SET request_hash = coalesce(request_hash, :request_hash) WHERE operation_id = :operation_id
    ), delivered AS (
      UPDATE input_deliveries SET state = 'delivered', delivered_at = now()
      WHERE run_id = :run_id AND state = 'claimed' AND EXISTS (SELECT 1 FROM attempt) RETURNING input_seq
    ), run AS (
      UPDATE runs SET event_head = event_head + 1
      WHERE run_id = :run_id AND EXISTS (SELECT 1 FROM delivered) RETURNING event_head
    ), event AS (
      INSERT INTO run_events (run_id, run_seq, type, body)
      SELECT :run_id, event_head, 'input_delivered',
             jsonb_build_object('operation_id', CAST(:operation_id AS text),
                                'input_seqs', (SELECT jsonb_agg(input_seq ORDER BY input_seq) FROM delivered))
      FROM run
    )
    SELECT pg_notify(:channel, CAST(:run_id AS text)) FROM run
""")


async def record_first_output(store: Store, request: RecordFirstOutput) -> None:
    """Commit the evidence and the deliveries that follow from it."""
    async with store.single("record_first_output") as connection:
        await fetch_value(connection, RECORD, **asdict(request), channel=RUN_EVENTS)
    store.standings.forget(root_context_id(request.run_id))

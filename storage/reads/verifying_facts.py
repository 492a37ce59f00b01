"""Whether the facts of a session agree with each other: what decides a later request is told by more than one row.

A column that no chain holds is derived here from others that were written with it (SPEC M7). Each statement finds the
rows that disagree; `subject` names one, `place` is its number among its like.
"""

from collections.abc import AsyncIterator
from uuid import UUID

from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.database import fetch_all
from storage.reads.breaks import Break, BreakKind
from storage.reads.verifying_calls import BATCHES, ITEMS, LISTS, MODEL_CALLS, TOOL_CALLS, UNLISTED
from storage.reads.verifying_progress import BASELINES, CONTEXTS

# A record is taken for what it came from: an input, the answer of a model call, the result of a tool call.
RECORDS = text("""
    SELECT 'record/' || c.record_id AS subject, c.context_seq AS place
    FROM context_records c LEFT JOIN role_contexts x USING (context_id)
      LEFT JOIN user_inputs i ON i.input_id = c.input_id LEFT JOIN operations o ON o.operation_id = c.operation_id
    WHERE c.session_id = :session_id AND NOT coalesce(
      x.session_id = c.session_id AND x.run_id = c.run_id AND c.result_key IS NOT DISTINCT FROM c.call_id
      AND (c.kind = 'user_ref') = (c.input_id IS NOT NULL) AND (c.kind = 'user_ref') = (c.operation_id IS NULL)
      AND (c.kind = 'tool_result') = (c.call_id IS NOT NULL) AND (c.kind = 'tool_result' OR c.status IS NULL)
      AND CASE WHEN c.kind = 'user_ref' THEN i.session_id = c.session_id
               WHEN o.context_id <> c.context_id THEN false
               WHEN c.kind = 'tool_result' THEN
                 o.purpose = 'tool' AND o.call_id = c.call_id AND o.result_id = c.payload_id
                 AND (o.verdict ->> 'status') IS NOT DISTINCT FROM c.status
               WHEN c.kind IN ('assistant', 'fragment') THEN
                 o.purpose = 'business' AND o.result_id = c.payload_id
                 AND (o.verdict ->> 'kind' = 'unusable') = (c.kind = 'fragment')
               ELSE c.kind = 'feedback' AND o.purpose = 'business' AND o.result_id <> c.payload_id END, false)
    ORDER BY c.seq
""")

# An input is what its event says was accepted; earlier versions did not say which content that was.
INPUTS = text("""
    SELECT 'input/' || i.input_id AS subject, i.input_seq AS place
    FROM user_inputs i LEFT JOIN runs r ON r.run_id = i.origin_run_id
      LEFT JOIN run_events e ON e.run_id = i.origin_run_id AND e.type = 'input_accepted'
        AND e.body ->> 'input_id' = CAST(i.input_id AS text)
    WHERE i.session_id = :session_id AND NOT coalesce(
      r.session_id = i.session_id AND e.body ->> 'kind' = i.kind
      AND e.body ->> 'input_seq' = CAST(i.input_seq AS text)
      AND coalesce(e.body ->> 'content_id', encode(i.payload_id, 'hex')) = encode(i.payload_id, 'hex')
      AND 0 < (SELECT count(*) FROM input_deliveries d WHERE d.input_id = i.input_id
               AND CAST(d.delivery_id AS text) = e.body ->> 'delivery_id'), false)
    ORDER BY i.input_seq
""")
# Where a delivery stands follows from requests, from what came of them, and from the one that goes on from it.
DELIVERIES = text("""
    SELECT 'delivery/' || d.delivery_id AS subject, d.input_seq AS place
    FROM user_inputs i JOIN input_deliveries d USING (input_id) LEFT JOIN runs r ON r.run_id = d.run_id
      LEFT JOIN input_deliveries p ON p.delivery_id = d.previous_delivery_id
      LEFT JOIN run_events e ON e.run_id = i.origin_run_id AND e.type = 'input_accepted'
        AND e.body ->> 'input_id' = CAST(i.input_id AS text)
      LEFT JOIN operations o ON o.operation_id = d.operation_id
      LEFT JOIN audit_log w ON w.action = 'input_withdrawn' AND w.subject = CAST(d.delivery_id AS text)
    WHERE i.session_id = :session_id AND NOT coalesce(
      d.session_id = i.session_id AND d.input_seq = i.input_seq AND (d.run_id IS NULL OR r.session_id = i.session_id)
      AND CASE WHEN CAST(d.delivery_id AS text) = e.body ->> 'delivery_id'
               THEN d.previous_delivery_id IS NULL AND d.run_id = i.origin_run_id
               ELSE p.input_id = d.input_id AND p.state = 'carried' END
      AND (d.state = 'carried') = (0 < (SELECT count(*) FROM input_deliveries n
                                        WHERE n.input_id = d.input_id AND n.previous_delivery_id = d.delivery_id))
      AND (d.operation_id IS NULL OR o.run_id = d.run_id AND (o.view_id IS NULL OR EXISTS (
             SELECT 1 FROM view_items v WHERE v.view_id = o.view_id AND v.pos < o.view_length
               AND v.source_id = d.input_id AND v.kind = 'input')))
      AND (d.state = 'withdrawn' OR w.audit_id IS NULL)
      AND CASE d.state
        WHEN 'pending' THEN d.operation_id IS NULL AND (r.ended_at IS NULL OR i.kind = 'question')
        WHEN 'claimed' THEN d.operation_id IS NOT NULL AND (r.ended_at IS NULL OR i.kind = 'question')
          AND 0 = (SELECT count(*) FROM attempts a WHERE a.operation_id = d.operation_id
                   AND a.first_output_at IS NOT NULL)
        WHEN 'delivered' THEN d.operation_id IS NOT NULL AND 0 < (
          SELECT count(*) FROM operations q JOIN attempts a USING (operation_id)
          WHERE q.run_id = d.run_id AND q.purpose = 'business' AND a.first_output_at IS NOT NULL)
        WHEN 'withdrawn' THEN d.operation_id IS NULL AND i.kind = 'supplement'
          AND (w.audit_id IS NOT NULL OR NOT e.body ? 'content_id')
        ELSE d.state = 'carried' AND i.kind = 'supplement' END
      AND (d.state = 'delivered') = (d.delivered_at IS NOT NULL), false)
    ORDER BY d.input_seq
""")
# A Run is of its session's agent, and where its events say it is; its answer is that of the last loop with a call.
RUNS = text("""
    SELECT 'run/' || r.run_id AS subject, r.run_no AS place
    FROM runs r CROSS JOIN LATERAL (
        SELECT count(*) AS events, max(run_seq) AS last, count(*) FILTER (WHERE type = 'run_ended') AS ends,
               (array_agg(body ORDER BY run_seq DESC) FILTER (WHERE type = 'run_ended'))[1] AS said
        FROM run_events e WHERE e.run_id = r.run_id) e
      CROSS JOIN LATERAL (
        SELECT coalesce(max(loop_no), 0) AS loops, coalesce(max(input_cutoff), 0) AS cutoff,
               max(loop_no) FILTER (WHERE attempts > 0) AS called,
               max(loop_no) FILTER (WHERE verdict ->> 'kind' = 'answer') AS answered
        FROM operations o WHERE o.run_id = r.run_id AND o.purpose = 'business') m
      LEFT JOIN context_records a ON a.record_id = r.answer_record_id
      LEFT JOIN operations o ON o.operation_id = a.operation_id
      JOIN sessions s ON s.session_id = r.session_id LEFT JOIN agent_releases g ON g.release_id = r.release_id
    WHERE r.session_id = :session_id AND NOT coalesce(
      g.agent_id = s.agent_id AND e.events = r.event_head AND e.last = r.event_head
      AND (r.ended_at IS NULL) = (r.status IN ('queued', 'running'))
      AND r.execution_no = e.ends + CAST(r.ended_at IS NULL AS integer)
      AND (r.ended_at IS NULL OR (r.status = e.said ->> 'status' AND r.end_reason = e.said ->> 'end_reason'
                                  AND (r.error ->> 'code') IS NOT DISTINCT FROM (e.said ->> 'code')))
      AND (r.loops, r.input_cutoff) = (m.loops, m.cutoff)
      AND CASE WHEN r.answer_record_id IS NULL THEN r.status <> 'succeeded' AND m.answered IS DISTINCT FROM m.loops
               ELSE o.run_id = r.run_id AND o.verdict ->> 'kind' = 'answer' AND o.loop_no = m.called
                 AND a.kind = 'assistant' END, false)
    ORDER BY r.run_no
""")
# Runs are numbered in the order of their questions, up to where the session's head stands.
RUN_NUMBERS = text("""
    SELECT 'run/' || n.run_id AS subject, n.run_no AS place FROM (
      SELECT r.run_id, r.run_no, s.run_head, count(*) OVER () AS runs,
             row_number() OVER (ORDER BY q.input_seq) AS nth
      FROM runs r JOIN sessions s USING (session_id) LEFT JOIN (
        SELECT origin_run_id, min(input_seq) AS input_seq FROM user_inputs
        WHERE session_id = :session_id AND kind = 'question' GROUP BY origin_run_id) q ON q.origin_run_id = r.run_id
      WHERE r.session_id = :session_id) n
    WHERE n.run_no <> n.nth OR n.run_head <> n.runs ORDER BY n.run_no
""")
# The chain leads through where it stood at each end of a Run; earlier versions did not say where.
ENDS = text("""
    SELECT 'run/' || r.run_id AS subject, CAST(e.body ->> 'records' AS bigint) AS place
    FROM runs r JOIN run_events e ON e.run_id = r.run_id AND e.type = 'run_ended' AND e.body ? 'chain'
      LEFT JOIN role_contexts x ON x.run_id = r.run_id AND x.instance = 'main'
      LEFT JOIN context_records c
        ON c.context_id = x.context_id AND CAST(c.context_seq AS text) = e.body ->> 'records'
    WHERE r.session_id = :session_id AND encode(c.chain, 'hex') IS DISTINCT FROM e.body ->> 'chain'
    ORDER BY r.run_no, e.run_seq
""")
# A summary is the text whose content its event names.
SUMMARIES = text("""
    SELECT 'snapshot/' || s.snapshot_id AS subject, CAST(NULL AS bigint) AS place
    FROM snapshots s JOIN compaction_episodes e USING (episode_id)
      LEFT JOIN run_events v ON v.run_id = e.run_id AND v.type = 'compaction_finished'
        AND v.body ->> 'episode_id' = CAST(e.episode_id AS text)
    WHERE s.session_id = :session_id AND NOT coalesce(
      v.body ->> 'outcome' = e.outcome
      AND coalesce(v.body ->> 'content_id', encode(s.text_id, 'hex')) = encode(s.text_id, 'hex'), false)
    ORDER BY s.made_no
""")

# What an episode tells in numbers is what it was opened and ended with. One that a Run's end closed has no event of it,
# and those of earlier versions said only T of the figures of SPEC K2.
EPISODES = text("""
    SELECT 'episode/' || e.episode_id AS subject, CAST(NULL AS bigint) AS place
    FROM compaction_episodes e
      LEFT JOIN run_events b ON b.run_id = e.run_id AND b.type = 'compaction_started'
        AND b.body ->> 'episode_id' = CAST(e.episode_id AS text)
      LEFT JOIN run_events f ON f.run_id = e.run_id AND f.type = 'compaction_finished'
        AND f.body ->> 'episode_id' = CAST(e.episode_id AS text)
      CROSS JOIN LATERAL (SELECT count(*) AS finished FROM run_events p
                          WHERE p.run_id = e.run_id AND p.type = 'compaction_progress'
                            AND p.body ->> 'episode_id' = CAST(e.episode_id AS text)) n
    WHERE e.session_id = :session_id AND NOT coalesce(
      e.cursor = n.finished
      AND CASE WHEN b.run_id IS NULL THEN e.view_id IS NULL AND e.cursor = 0 ELSE
        b.body ->> 'source' = e.source AND b.body -> 'causes' = to_jsonb(e.causes)
        AND (b.body ->> 'estimated', b.body ->> 'material', b.body ->> 'target')
          = (CAST(e.estimated AS text), CAST(e.material AS text), e.target ->> 'summary')
        AND (NOT b.body ? 'fixed' OR b.body @> e.target - 'summary') END
      AND CASE e.status
        WHEN 'succeeded' THEN f.body ->> 'outcome' = e.outcome AND (e.outcome = 'nothing_to_compact' OR (
          f.body ->> 'tokens_after', f.body ->> 'calls', f.body -> 'reaches_target', f.body -> 'under_trigger',
          f.body -> 'truncated') = (CAST(e.tokens_after AS text), CAST(e.blocks AS text), to_jsonb(e.reaches_target),
                                    to_jsonb(e.under_trigger), to_jsonb(e.truncated)) AND e.cursor = e.blocks)
        WHEN 'failed' THEN f.body ->> 'outcome' = 'failed'
          AND (f.body ->> 'code', f.body ->> 'reason') = (e.failure ->> 'code', e.failure ->> 'reason')
        WHEN 'cancelled' THEN coalesce(f.body ->> 'outcome', 'cancelled') = 'cancelled'
        ELSE e.status IN ('queued', 'running') AND f.run_id IS NULL END, false)
    ORDER BY e.made_no
""")

STATEMENTS: tuple[tuple[BreakKind, TextClause], ...] = (
    ("record", RECORDS),
    ("input", INPUTS),
    ("input", DELIVERIES),
    ("run", RUNS),
    ("run", RUN_NUMBERS),
    ("chain", ENDS),
    ("coverage", SUMMARIES),
    ("coverage", EPISODES),
    ("coverage", BASELINES),
    ("operation", TOOL_CALLS),
    ("operation", BATCHES),
    ("operation", MODEL_CALLS),
    ("view", ITEMS),
    ("view", UNLISTED),
    ("view", LISTS),
    ("view", CONTEXTS),
)


async def fact_breaks(connection: AsyncConnection, session_id: UUID) -> AsyncIterator[Break]:
    """Each row of a session that disagrees with the others."""
    for kind, statement in STATEMENTS:
        for row in await fetch_all(connection, statement, session_id=session_id):
            yield Break(kind, row["subject"], row["place"])

"""Whether how far compaction has come follows from what was published (SPEC B2, K9, K14, M7).

That is where triggers count from, which summary a context shows, and how much of its list was there when its last
compaction ended.

The statements are of the same kind as those of `storage.reads.verifying_facts`, which runs them.
"""

from sqlalchemy import text

# The last summary that was used of those made within a Run, and of those of an idle Session, moved the baselines: to
# what the Session held then, or to what was held of the Runs that the idle one was asked for. A Run that nobody had
# opened, was stopped and resumed later has left no trace of when it came.
BASELINES = text("""
    WITH last AS (
      SELECT DISTINCT ON (e.operation_id IS NULL)
             s.made_no, e.operation_id IS NULL AS is_idle, e.through_run_no, r.run_no
      FROM snapshots s JOIN compaction_episodes e USING (episode_id) JOIN runs r ON r.run_id = e.run_id
      WHERE s.session_id = :session_id AND s.activated ORDER BY e.operation_id IS NULL, s.made_no DESC
    ), reached AS (
      SELECT max(CASE WHEN l.is_idle THEN l.through_run_no ELSE greatest(l.run_no, came.run_no) END) AS run_no,
             max(held.seq) AS seq
      FROM last l
        CROSS JOIN LATERAL (
          SELECT max(q.run_no) AS run_no FROM runs q
          WHERE q.session_id = :session_id AND (q.ended_no < l.made_no OR 0 < (
            SELECT count(*) FROM operations o WHERE o.run_id = q.run_id AND o.made_no < l.made_no))) came
        CROSS JOIN LATERAL (
          SELECT max(c.seq) AS seq FROM role_contexts x JOIN runs q USING (run_id)
            CROSS JOIN LATERAL (SELECT max(v.record_watermark) AS head FROM context_revisions v
                                WHERE v.context_id = x.context_id AND v.made_no < l.made_no) n
            JOIN context_records c ON c.context_id = x.context_id AND c.context_seq = n.head
          WHERE x.session_id = :session_id AND (NOT l.is_idle OR q.run_no <= l.through_run_no)) held
    )
    SELECT 'session/' || s.session_id AS subject, s.base_seq AS place FROM sessions s CROSS JOIN reached n
    WHERE s.session_id = :session_id AND NOT coalesce(
      s.base_seq = coalesce(n.seq, 0) AND s.base_run_no BETWEEN coalesce(n.run_no, 0) AND s.run_head
      AND 0 = (SELECT count(*) FROM runs q WHERE q.session_id = s.session_id AND q.execution_no = 1
                 AND q.run_no > coalesce(n.run_no, 0) AND q.run_no <= s.base_run_no), false)
""")
# The active summary is the one of its own that a context's list shows. What was there when a compaction ended is the
# list that it froze, or the one that it began; a list that was begun for another reason has moved that place.
CONTEXTS = text("""
    WITH RECURSIVE lists AS (
      SELECT x.context_id, w.view_id, w.cause, w.before_view_id, w.inherited
      FROM role_contexts x JOIN request_views w ON w.view_id = x.view_id WHERE x.session_id = :session_id
      UNION
      SELECT l.context_id, b.view_id, b.cause, b.before_view_id, b.inherited
      FROM lists l JOIN request_views b ON b.view_id = l.before_view_id WHERE l.cause = 'pruning'
    )
    SELECT 'context/' || x.context_id AS subject, CAST(x.material_mark AS bigint) AS place FROM role_contexts x
    WHERE x.session_id = :session_id AND NOT coalesce(
      x.active_snapshot_id IS NOT DISTINCT FROM (
        SELECT s.snapshot_id FROM view_items v JOIN snapshots s ON s.snapshot_id = v.source_id
        WHERE v.view_id = x.view_id AND v.kind = 'summary' AND s.context_id = x.context_id ORDER BY v.pos LIMIT 1)
      AND CASE WHEN x.view_id IS NULL THEN x.material_mark = 0 ELSE x.material_mark IN (
        SELECT CASE WHEN l.cause = 'compaction' THEN l.inherited
                    WHEN l.cause IN ('first_request', 'session_view') THEN 0
                    WHEN l.cause <> 'pruning' THEN x.material_mark END
        FROM lists l WHERE l.context_id = x.context_id
        UNION ALL
        SELECT e.view_length FROM lists l JOIN compaction_episodes e ON e.context_id = l.context_id
        WHERE l.context_id = x.context_id AND e.view_id = l.view_id AND e.operation_id IS NOT NULL
          AND e.ended_at IS NOT NULL) END, false)
    ORDER BY x.context_id
""")

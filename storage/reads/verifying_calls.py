"""Whether calls and lists agree with the records and events that were written with them (SPEC M7).

The statements are of the same kind as those of `storage.reads.verifying_facts`, which runs them. What a row says of its
likes is counted and not asked with EXISTS, which a plan may answer by reading all of a table first.
"""

from sqlalchemy import text

from storage.tool_tries import LEFT_OPEN

# Those that say they are of the session, and those of its Runs.
_MINE = """
    SELECT operation_id FROM operations WHERE session_id = :session_id
    UNION SELECT q.operation_id FROM runs u JOIN operations q USING (run_id) WHERE u.session_id = :session_id
"""
_OPERATIONS = f"({_MINE}) mine JOIN operations o USING (operation_id)"


def told_of(operations: str, *, event: str, named: str) -> str:
    """SQL: Operations with the bodies of their events of a kind, which name them under `named`; NULL for none.

    They are brought together by grouping, once. A join by what is in a body looks at all events for each Operation
    where nobody has counted the rows yet, and so would any that begins with another table (hence OFFSET 0).
    """
    return f"""
        SELECT (array_agg(operation_id) FILTER (WHERE operation_id IS NOT NULL))[1] AS operation_id,
               array_agg(body) FILTER (WHERE body IS NOT NULL) AS told
        FROM (SELECT CAST(operation_id AS text) AS named, operation_id, CAST(NULL AS jsonb) AS body
              FROM ({operations}) o
              UNION ALL
              SELECT v.body ->> '{named}', NULL, v.body || jsonb_build_object('run_id', v.run_id)
              FROM runs u JOIN run_events v USING (run_id)
              WHERE u.session_id = :session_id AND v.type = '{event}') t
        GROUP BY named
    """


# A tool call has its place in a batch, one call id of the session, and the result that it was settled with. How one
# that was never settled is shown later depends on its state, which its tries tell; a resume may have reopened it.
TOOL_CALLS = text(f"""
    SELECT 'operation/' || o.operation_id AS subject, CAST(o.ordinal AS bigint) AS place
    FROM {_OPERATIONS} LEFT JOIN runs r ON r.run_id = o.run_id LEFT JOIN tool_batches b ON b.batch_id = o.batch_id
      LEFT JOIN operations m ON m.operation_id = o.batch_id
      LEFT JOIN call_ids k ON k.session_id = o.session_id AND k.call_id = o.call_id
      LEFT JOIN context_records c ON c.operation_id = o.operation_id AND c.kind = 'tool_result'
    WHERE o.purpose = 'tool' AND NOT coalesce(
      r.session_id = o.session_id AND b.run_id = o.run_id AND b.context_id = o.context_id
      AND m.context_id = o.context_id AND m.loop_no = o.loop_no AND o.ordinal >= 0 AND o.ordinal < b.size
      AND k.operation_id = o.operation_id
      AND (o.result_id IS NULL) = (o.verdict IS NULL)
      AND coalesce(o.verdict ->> 'content_id' = encode(o.result_id, 'hex'), true)
      AND CASE WHEN o.verdict IS NOT NULL THEN CASE
                 WHEN c.record_id IS NULL THEN o.state IN ('accepted', 'failed', 'unknown')
                 WHEN c.status IS NULL THEN o.state = 'accepted' WHEN c.status = 'unknown' THEN o.state = 'unknown'
                 ELSE o.state IN ('accepted', 'failed') END
               WHEN r.ended_at IS NOT NULL AND o.state IN ('prepared', 'calling') THEN false
               WHEN o.state IN ('calling', 'unknown') THEN
                 0 < (SELECT count(*) FROM attempts a WHERE a.operation_id = o.operation_id)
               ELSE o.state IN ('prepared', 'cancelled')
                 AND (r.execution_no > 1 OR NOT {LEFT_OPEN.format(call="o")}) END, false)
    ORDER BY o.made_no
""")
_OF_RUNS = "SELECT o.operation_id FROM runs r JOIN operations o USING (run_id) WHERE r.session_id = :session_id"
BATCHES = text(f"""
    WITH mine AS MATERIALIZED ({told_of(_OF_RUNS, event="tools_started", named="batch_id")})
    SELECT 'operation/' || b.batch_id AS subject, CAST(NULL AS bigint) AS place
    FROM mine CROSS JOIN LATERAL (SELECT * FROM tool_batches WHERE batch_id = mine.operation_id OFFSET 0) b
      JOIN operations m ON m.operation_id = b.batch_id JOIN runs r ON r.run_id = m.run_id
      LEFT JOIN LATERAL unnest(mine.told) AS e(body) ON e.body ->> 'run_id' = CAST(b.run_id AS text)
      CROSS JOIN LATERAL (
        SELECT count(*) AS calls, count(c.record_id) AS delivered
        FROM operations o LEFT JOIN context_records c ON c.operation_id = o.operation_id AND c.kind = 'tool_result'
        WHERE o.batch_id = b.batch_id) n
    WHERE NOT coalesce(
      b.run_id = r.run_id AND b.size = n.calls AND e.body ->> 'count' = CAST(b.size AS text)
      AND n.delivered = CASE WHEN b.consumed THEN b.size ELSE 0 END, false)
    ORDER BY b.batch_id
""")
# A model call is what its event says was frozen, and came to what its record says. Earlier versions wrote no event for
# the call of a compaction, nor for a request that was never sent, since its compaction failed.
MODEL_CALLS = text(f"""
    WITH mine AS MATERIALIZED ({told_of(_MINE, event="context_build", named="operation_id")})
    SELECT 'operation/' || o.operation_id AS subject, CAST(NULL AS bigint) AS place
    FROM mine CROSS JOIN LATERAL (SELECT * FROM operations WHERE operation_id = mine.operation_id OFFSET 0) o
      LEFT JOIN runs r ON r.run_id = o.run_id
      LEFT JOIN role_contexts x ON x.context_id = o.context_id LEFT JOIN manifests n ON n.operation_id = o.operation_id
      LEFT JOIN LATERAL unnest(mine.told) AS e(body) ON e.body ->> 'run_id' = CAST(o.run_id AS text)
    WHERE o.purpose <> 'tool' AND NOT coalesce(
      r.session_id = o.session_id AND x.session_id = o.session_id AND o.batch_id IS NULL
      AND (e.body IS NULL
           OR (e.body ->> 'loop', e.body ->> 'estimated', e.body ->> 'input_limit', coalesce(e.body ->> 'purpose', ''))
            = (CAST(o.loop_no AS text), CAST(n.estimated_input_tokens AS text), CAST(n.input_limit AS text),
               CASE o.purpose WHEN 'business' THEN '' ELSE o.purpose END))
      AND CASE WHEN o.purpose <> 'business' THEN o.purpose = 'compaction' ELSE
        x.run_id = o.run_id AND CASE WHEN e.body IS NOT NULL THEN n.operation_id IS NOT NULL
          ELSE n.operation_id IS NULL OR 0 = (SELECT count(*) FROM attempts a WHERE a.operation_id = o.operation_id) END
        AND (e.body IS NULL OR e.body ->> 'cutoff' = CAST(o.input_cutoff AS text))
        AND (o.result_id IS NOT NULL) = (0 < (SELECT count(*) FROM context_records c
          WHERE c.operation_id = o.operation_id AND c.kind IN ('assistant', 'fragment')))
        AND (o.state = 'accepted') = (o.result_id IS NOT NULL AND o.verdict ->> 'kind' <> 'unusable') END, false)
    ORDER BY o.made_no
""")
# An item of a list shows what it names, as what it is, and says of which earlier Run it is.
ITEMS = text("""
    SELECT 'view/' || v.view_id AS subject, CAST(v.pos AS bigint) AS place
    FROM role_contexts x JOIN request_views w USING (context_id) JOIN view_items v ON v.view_id = w.view_id
      LEFT JOIN context_records c ON c.record_id = v.source_id LEFT JOIN runs r ON r.run_id = c.run_id
      LEFT JOIN user_inputs i ON i.input_id = v.source_id LEFT JOIN operations o ON o.operation_id = v.source_id
      LEFT JOIN snapshots s ON s.snapshot_id = v.source_id
    WHERE x.session_id = :session_id AND NOT coalesce(CASE
      WHEN v.kind = 'system' THEN v.pos = 0 AND v.source_id IS NULL AND v.run_no IS NULL
      WHEN v.kind = 'input' THEN i.session_id = x.session_id AND i.payload_id = v.payload_id
      WHEN c.record_id IS NOT NULL THEN c.session_id = x.session_id AND c.kind = v.kind AND c.kind <> 'user_ref'
        AND CASE WHEN v.run_no IS NULL THEN c.run_id = x.run_id ELSE v.run_no = r.run_no END
      WHEN v.kind = 'tool_result' THEN o.session_id = x.session_id AND o.purpose = 'tool'
        AND (v.transform = 'tool_result_pruned' OR o.result_id = v.payload_id)
      WHEN v.kind = 'placeholder' THEN o.session_id = x.session_id AND o.purpose = 'tool'
      WHEN v.kind = 'marker' THEN v.source_id IS NULL AND v.run_no IS NOT NULL
      WHEN v.kind = 'summary' THEN s.session_id = x.session_id
      ELSE v.kind = 'reference' AND w.cause = 'compaction_block' END, false)
    ORDER BY v.view_id, v.pos
""")
UNLISTED = text("""
    SELECT 'record/' || n.record_id AS subject, n.context_seq AS place FROM (
      SELECT (array_agg(record_id) FILTER (WHERE record_id IS NOT NULL))[1] AS record_id,
             max(context_seq) AS context_seq, max(seq) AS seq, bool_or(is_listed) AS is_listed
      FROM (SELECT context_id, coalesce(input_id, record_id) AS source_id, record_id, context_seq, seq,
                   false AS is_listed
            FROM context_records WHERE session_id = :session_id AND kind <> 'fragment'
            UNION ALL
            SELECT w.context_id, v.source_id, NULL, NULL, NULL, true
            FROM role_contexts x JOIN request_views w USING (context_id) JOIN view_items v ON v.view_id = w.view_id
            WHERE x.session_id = :session_id) t
      GROUP BY context_id, source_id) n
    WHERE n.record_id IS NOT NULL AND NOT n.is_listed
    ORDER BY n.seq
""")
# The list that the next request extends is whole, and its size is the sum of its items.
LISTS = text("""
    SELECT 'context/' || x.context_id AS subject, CAST(x.view_length AS bigint) AS place
    FROM role_contexts x LEFT JOIN runs r USING (run_id) LEFT JOIN agent_tasks t USING (task_id)
      LEFT JOIN request_views w ON w.view_id = x.view_id
      CROSS JOIN LATERAL (SELECT count(*) AS items, coalesce(sum(v.tokens), 0) AS tokens FROM view_items v
                          WHERE v.view_id = x.view_id) n
    WHERE x.session_id = :session_id AND NOT coalesce(
      r.session_id = x.session_id AND t.run_id = x.run_id AND (x.instance = 'main') = (t.role_key = 'root')
      AND (x.view_id IS NULL OR w.context_id = x.context_id) AND (x.view_length, x.view_tokens) = (n.items, n.tokens)
      AND x.material_mark <= x.view_length
      AND (x.active_snapshot_id IS NULL OR 0 < (
             SELECT count(*) FROM snapshots s WHERE s.snapshot_id = x.active_snapshot_id
               AND s.session_id = x.session_id AND s.activated)), false)
    ORDER BY x.context_id
""")

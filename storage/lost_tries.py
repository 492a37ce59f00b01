"""Tries that nobody reported on: closed, and what model calls among them used counted, once each (SPEC L5, R6).

What went in is known: the request as its manifest estimates it. What came out is known as far as the try noted it while
it was under way (decision 0114). A permit that was never taken up was never sent, and counts nothing (decision 0107).
"""

from storage.counting import ADD_LOST

USED = """
    jsonb_build_object('input_tokens', greatest(0, m.estimated_input_tokens), 'output_tokens', 0,
                       'cached_tokens', NULL, 'reasoning_tokens', NULL, 'estimated', true)
"""
SENT = "o.purpose <> 'tool' AND a.begun_at IS NOT NULL"

CLOSE = f"""
    UPDATE attempts a SET state = 'superseded', ended_at = coalesce(a.ended_at, now()),
           usage = CASE WHEN {SENT} THEN coalesce(a.usage, {USED}) ELSE a.usage END,
           cost = CASE WHEN {SENT} AND a.usage IS NULL THEN m.estimated_cost ELSE a.cost END
    FROM operations o LEFT JOIN manifests m USING (operation_id)
    WHERE a.operation_id = o.operation_id AND {{which}}
"""
"""Closes the tries `which` says; none of a model call among them may be counted already."""


def settling(*, run: str, which: str) -> str:
    """The parts of a statement that closes tries of a Run's calls and counts them on it; `run` finds and locks it.

    Blocks of an idle Session's compaction are closed, and no Run pays for them (SPEC K12).
    """
    closed = CLOSE.format(which=f"o.run_id = (SELECT run_id FROM run) AND {which}")
    return f"""
    run AS MATERIALIZED ({run}),
    lost AS ({closed} RETURNING a.operation_id, {SENT} AS sent, a.usage, a.cost),
    total AS (
      SELECT count(*) AS usage_unknown, sum((l.usage ->> 'input_tokens')::bigint) AS input_tokens,
             sum((l.usage ->> 'output_tokens')::bigint) AS output_tokens,
             sum(coalesce((l.usage ->> 'cached_tokens')::bigint, 0)) AS cached_tokens,
             CASE WHEN bool_or(l.cost IS NULL) THEN NULL ELSE sum(l.cost) END AS cost
      FROM lost l
      WHERE l.sent AND NOT EXISTS (SELECT 1 FROM idle_blocks b WHERE b.operation_id = l.operation_id)
    ),
    counted AS (
      UPDATE runs SET {ADD_LOST} FROM total
      WHERE runs.run_id = (SELECT run_id FROM run) AND total.usage_unknown > 0
    )
    """

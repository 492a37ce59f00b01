"""Whether a tool call may have had its effect, as its tries tell (SPEC T4, decision 0031)."""

LEFT_OPEN = """
    0 < (SELECT count(*) FROM attempts t WHERE t.operation_id = {call}.operation_id AND NOT coalesce(
           t.state = 'failed' AND t.error ->> 'reason' IN ('unreachable', 'busy', 'not_started'), false))
"""
"""A try that did not report may have run; of one that failed the reason says whether it reached the tool."""

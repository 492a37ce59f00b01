"""The effective version of a record as a part of queries: its newest mutation, else what was recorded (SPEC P5)."""

# For a query whose records are `c`; `e.payload_id` and `e.revision` are NULL for a record that nothing has changed.
EFFECTIVE = """
    LEFT JOIN LATERAL (SELECT m.payload_id, m.revision FROM context_mutations m WHERE m.record_id = c.record_id
                       ORDER BY m.revision DESC LIMIT 1) e ON true
"""
# The same as of an episode `o`, which reads a frozen revision (SPEC K5).
EFFECTIVE_THEN = """
    LEFT JOIN LATERAL (SELECT m.payload_id FROM context_mutations m
                       WHERE m.record_id = c.record_id AND m.made_no < o.made_no
                       ORDER BY m.revision DESC LIMIT 1) e ON true
"""

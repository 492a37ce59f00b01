"""What is listed or decided by what came first is numbered by one sequence (SPEC S13, decision 0104).

Old rows get their numbers by the times that they have. Code from before this step goes on: what it inserts is numbered.
"""

from alembic import op

revision = "0004"
down_revision = "0003"

NUMBERED = {
    "api_keys": ("0", "key_id"),
    "sessions": ("0", "session_id"),
    "context_revisions": ("revision", "context_id"),
    "context_mutations": ("revision", "mutation_id"),
    "operations": ("ordinal", "operation_id"),
    "compaction_episodes": ("0", "episode_id"),
    "snapshots": ("generation", "snapshot_id"),
}
"""What rows of the same time are numbered by: the table in this order, then these."""

OLD = " UNION ALL ".join(
    f"SELECT '{table}' AS of, ctid AS place, created_at AS at, {rank} AS rank, {ordinal} AS ordinal, {key} AS id"
    f" FROM {table}"
    for rank, (table, (ordinal, key)) in enumerate(NUMBERED.items())
)
ENDS = "SELECT 'runs', ctid, ended_at, 99, 0, run_id FROM runs WHERE ended_at IS NOT NULL"
NUMBERS = f"""
    CREATE TEMPORARY TABLE numbers ON COMMIT DROP AS
    SELECT of, place, row_number() OVER (ORDER BY at, rank, ordinal, id) AS made_no FROM ({OLD} UNION ALL {ENDS}) AS old
"""
NUMBER = "UPDATE {table} SET {column} = n.made_no FROM numbers n WHERE n.of = '{table}' AND n.place = {table}.ctid"
INDEXES = {
    "ix_api_keys_oldest": "api_keys (made_no)",
    "ix_sessions_owner_newest": "sessions (owner_id, made_no)",
    "ix_operations_run": "operations (run_id, made_no)",
    "ix_compaction_episodes_run": "compaction_episodes (run_id, made_no)",
    "ix_compaction_episodes_context": "compaction_episodes (context_id, made_no)",
}


def upgrade() -> None:
    """Add the numbers, give them to what is there, and let the lists go by them."""
    op.execute("CREATE SEQUENCE fact_order AS bigint")
    op.execute("ALTER TABLE runs ADD COLUMN ended_no BIGINT")
    for table in NUMBERED:
        op.execute(f"ALTER TABLE {table} ADD COLUMN made_no BIGINT")
    op.execute(NUMBERS)
    op.execute("ANALYZE numbers")
    op.execute(NUMBER.format(table="runs", column="ended_no"))
    for table in NUMBERED:
        op.execute(NUMBER.format(table=table, column="made_no"))
    op.execute("SELECT setval('fact_order', count(*) + 1, false) FROM numbers")
    for table in NUMBERED:
        op.execute(f"ALTER TABLE {table} ALTER COLUMN made_no SET DEFAULT nextval('fact_order')")
        op.execute(f"ALTER TABLE {table} ALTER COLUMN made_no SET NOT NULL")
    for name, on in INDEXES.items():
        op.execute(f"DROP INDEX IF EXISTS {name}")
        op.execute(f"CREATE INDEX {name} ON {on}")

"""What is asked for one session has an index to go by: checks, and the first request of each Run (SPEC P6, M7)."""

from alembic import op

revision = "0005"
down_revision = "0004"

INDEXES = {
    "ix_audit_log_subject": "audit_log (subject)",
    "ix_compaction_episodes_session_id": "compaction_episodes (session_id)",
    "ix_input_deliveries_withdrawn": "input_deliveries (session_id) WHERE state = 'withdrawn'",
    "ix_operations_session": "operations (session_id, operation_id)",
    "ix_role_contexts_session_id": "role_contexts (session_id)",
}


def upgrade() -> None:
    """Add the indexes; what runs meanwhile waits for as long as they take to make."""
    for name, on in INDEXES.items():
        op.execute(f"CREATE INDEX {name} ON {on}")

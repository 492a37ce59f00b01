"""Which master keys are in use is found by an index, however much is stored under them (SPEC Y2)."""

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add the index; what writes meanwhile waits for as long as it takes to make."""
    op.execute("CREATE INDEX ix_payloads_key_id ON payloads (key_id)")

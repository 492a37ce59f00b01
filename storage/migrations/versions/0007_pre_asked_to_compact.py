"""A compaction that was asked for waits with its Run, until a request was prepared with it (SPEC K12)."""

from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add the mark; no Run has it yet."""
    op.execute("ALTER TABLE runs ADD COLUMN asked_to_compact boolean NOT NULL DEFAULT false")

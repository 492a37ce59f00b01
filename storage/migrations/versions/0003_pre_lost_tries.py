"""When a try was taken up, and what its input costs: what is counted of one that nobody reported on (SPEC L5)."""

from alembic import op

revision = "0003"
down_revision = "0002"

STATEMENTS = (
    "ALTER TABLE attempts ADD COLUMN begun_at TIMESTAMP WITH TIME ZONE",
    "ALTER TABLE manifests ADD COLUMN estimated_cost NUMERIC",
)


def upgrade() -> None:
    """Add the columns; both may be empty."""
    for statement in STATEMENTS:
        op.execute(statement)

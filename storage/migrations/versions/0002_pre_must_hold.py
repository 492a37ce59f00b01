"""A function that refuses a statement as a whole: nothing of it is written unless what it expected holds."""

from alembic import op

revision = "0002"
down_revision = "0001"

# VOLATILE, as it is by default: it must be called where it stands, and never while a plan is made.
MUST_HOLD = """
    CREATE FUNCTION must_hold(held boolean) RETURNS boolean LANGUAGE plpgsql AS $$
    BEGIN
        IF held THEN
            RETURN true;
        END IF;
        RAISE EXCEPTION 'somebody else has gone on; what was expected is read anew'
            USING ERRCODE = 'AL001';
    END
    $$
"""


def upgrade() -> None:
    """Create the function."""
    op.execute(MUST_HOLD)

"""What the columns and constraints of all tables have in common."""

from sqlalchemy import BigInteger, Column, DateTime, ForeignKey, LargeBinary, func, text

NAMING = {
    "ix": "ix_%(column_0_N_label)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


def at(name: str = "created_at") -> Column[object]:
    """The time at which a row was written, to be shown; order is not told by it."""
    return Column(name, DateTime(timezone=True), nullable=False, server_default=func.now())


def made_no() -> Column[object]:
    """The place of a row among all that are numbered so: in the order of commits for rows of one Session (SPEC S13)."""
    return Column("made_no", BigInteger, nullable=False, server_default=text("nextval('fact_order')"))


def payload(name: str, *, nullable: bool = True) -> Column[object]:
    """A reference to content."""
    return Column(name, LargeBinary, ForeignKey("payloads.payload_id"), nullable=nullable)

"""Writes `versions/0001_pre_initial.py` from the tables: `python -m storage.migrations.write_first`.

Only while nothing is released: afterwards a change of the tables is a new numbered step, and this file goes.
"""

from collections.abc import Iterator
from pathlib import Path
from textwrap import fill

from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlalchemy.sql.ddl import DDLElement

from storage.snapshot_tables import metadata

FIRST = Path(__file__).parent / "versions" / "0001_pre_initial.py"
WIDTH = 118
HEAD = '''"""The first schema: every table there is. Written by `python -m storage.migrations.write_first`."""

from alembic import op

revision = "0001"
down_revision = None

STATEMENTS = (
'''
FOOT = ''')


def upgrade() -> None:
    """Create every table and index."""
    for statement in STATEMENTS:
        op.execute(statement)
'''


def statements() -> Iterator[str]:
    """The DDL of every table, parents first, each followed by its indexes."""
    for table in metadata.sorted_tables:
        yield _ddl(CreateTable(table))
        for index in sorted(table.indexes, key=lambda one: str(one.name)):
            yield _ddl(CreateIndex(index))


def first_migration() -> str:
    """The text of the first step."""
    return HEAD + "".join(f'    """\n{statement}\n    """,\n' for statement in statements()) + FOOT


def _ddl(element: DDLElement) -> str:
    plain = str(element.compile(dialect=postgresql.dialect())).expandtabs(4).strip()  # type: ignore[no-untyped-call]
    return "\n".join(_indented(line) for line in plain.splitlines() if line.strip())


def _indented(line: str) -> str:
    margin = " " * (8 + len(line) - len(line.lstrip()))
    return fill(line.strip(), WIDTH, initial_indent=margin, subsequent_indent=margin + "    ", break_on_hyphens=False)


if __name__ == "__main__":
    FIRST.write_text(first_migration(), encoding="utf-8")

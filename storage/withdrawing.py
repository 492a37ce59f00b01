"""An input that a frozen request contained, and that was taken back before anybody answered to it (SPEC S12, A7).

Its record stays. The Run that asked with it goes on from a list without it: the prefix breaks there, once, and the
manifest of the next request says so. A later Run shows it nowhere.
"""

from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.ids import derived
from context.views import ViewItem, total_tokens
from storage.database import fetch_all
from storage.view_lists import Switch, listed, write_items, write_switch
from storage.writes import WriteSet

CAUSE = "withdrawal"

SHOWING = text("""
    SELECT c.context_id, c.view_id, c.view_length, c.material_mark FROM context_records k
      JOIN role_contexts c USING (context_id)
    WHERE k.input_id = :input_id AND k.session_id = :session_id AND c.view_id IS NOT NULL
    ORDER BY c.context_id FOR UPDATE OF c
""")
WITHDRAWN = text("""
    SELECT DISTINCT d.input_id FROM context_records k JOIN input_deliveries d USING (input_id)
    WHERE k.context_id = :context_id AND d.state = 'withdrawn'
""")
MOVE_CONTEXT = """
    UPDATE role_contexts c SET view_id = n.view_id, view_length = n.length, view_tokens = n.tokens,
           material_mark = n.mark
    FROM unnest(CAST(:n_contexts AS uuid[]), CAST(:n_views AS uuid[]), CAST(:n_lengths AS integer[]),
                CAST(:n_tokens AS bigint[]), CAST(:n_marks AS integer[]))
      AS n(context_id, view_id, length, tokens, mark)
    WHERE c.context_id = n.context_id
"""


async def take_from_lists(connection: AsyncConnection, writes: WriteSet, session_id: UUID, input_id: UUID) -> None:
    """Give each Run that asked with this input a list without it."""
    rows: Any = await fetch_all(connection, SHOWING, input_id=input_id, session_id=session_id)
    moved = [one for row in rows if (one := await _without(connection, writes, row, input_id))]
    if moved:
        writes.sql(MOVE_CONTEXT)
        writes.bind(**{name: [one[name] for one in moved] for name in moved[0]})


async def withdrawn_inputs(connection: AsyncConnection, context_id: UUID) -> frozenset[UUID]:
    """The inputs that a context has records of, and that were taken back."""
    rows = await fetch_all(connection, WITHDRAWN, context_id=context_id)
    return frozenset(row["input_id"] for row in rows)


async def _without(connection: AsyncConnection, writes: WriteSet, row: Any, input_id: UUID) -> dict[str, Any] | None:
    items = await listed(connection, row["view_id"], row["view_length"])
    gone = [at for at, item in enumerate(items) if _is_own(item, input_id)]
    if not gone:
        return None
    kept = tuple(item for at, item in enumerate(items) if at not in gone)
    view_id = derived(row["context_id"], CAUSE, str(input_id))
    write_switch(writes, row["context_id"], Switch(view_id, CAUSE, row["view_id"], len(items), inherited=len(kept)))
    write_items(writes, view_id, kept)
    mark = row["material_mark"] - sum(at < row["material_mark"] for at in gone)
    head = {"n_contexts": row["context_id"], "n_views": view_id, "n_lengths": len(kept)}
    return head | {"n_tokens": total_tokens(kept), "n_marks": mark}


def _is_own(item: ViewItem, input_id: UUID) -> bool:
    return item.kind == "input" and item.run_no is None and item.source_id == input_id

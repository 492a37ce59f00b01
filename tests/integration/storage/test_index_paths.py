"""Nothing that is asked for one session reads the rows of all: each such statement has an index to go by (SPEC P6, M7).

Generic plans need no rows. They are made without methods that read whole tables, so that where one is left there is no
index to go by.
"""

import json
from importlib import import_module
from typing import Any

import asyncpg
from sqlalchemy import TextClause

from storage.database import _compiled

MODULES = [
    "covered_results",
    "covering",
    "episodes",
    "first_view",
    "fitting_keys",
    "past_runs",
    "reusing",
    "session_views",
    "unfolding",
    "weighing",
    "reads.contents",
    "reads.contexts",
    "reads.explaining",
    "reads.manifests",
    "reads.verifying",
    "reads.verifying_calls",
    "reads.verifying_facts",
    "reads.verifying_progress",
    "reads.verifying_summaries",
]
STATEMENTS = {
    f"{module}.{name}": statement
    for module in MODULES
    for name, statement in vars(import_module(f"storage.{module}")).items()
    if isinstance(statement, TextClause)
}
BY_INDEX_ONLY = """
    SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off;
    SET plan_cache_mode = force_generic_plan
"""


async def test_no_statement_about_a_session_reads_a_whole_table(database_url: str) -> None:
    """SPEC P6, M7: what a check or a first request costs does not grow with other sessions."""
    connection = await asyncpg.connect(database_url)
    await connection.execute(BY_INDEX_ONLY)
    whole: dict[str, set[str]] = {}
    for number, (name, statement) in enumerate(STATEMENTS.items()):
        plan = await _planned(connection, f"asked_{number}", statement)  # each keeps its name: the driver prepares too
        if found := {node["Relation Name"] for node in _nodes(plan[0]["Plan"]) if _reads_all(node)}:
            whole[name] = found
    await connection.close()
    assert whole == {}


async def _planned(connection: asyncpg.Connection, name: str, statement: TextClause) -> Any:
    sql, names = _compiled(statement)
    await connection.execute(f"PREPARE {name} AS {sql}")
    given = f"({', '.join(['NULL'] * len(names))})" if names else ""
    return json.loads(await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE {name}{given}"))


def _nodes(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [node, *(below for child in node.get("Plans", ()) for below in _nodes(child))]


def _reads_all(node: dict[str, Any]) -> bool:
    is_table = "Relation Name" in node and node["Node Type"] != "CTE Scan"
    return is_table and not node["Node Type"].startswith("Bitmap Heap") and "Index Cond" not in node

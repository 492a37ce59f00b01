"""What a commit says is a fact is one after the server died in the next moment (SPEC 0, R1)."""

import secrets
import signal
from pathlib import Path
from uuid import UUID

from context.steps import OpenRun
from stack import postgres
from stack.ports import any_free_port
from storage.commits.open_run import open_run
from storage.commits.record_tool_result import record_tool_result
from storage.store import Store
from tests.integration.commits.life import Life
from tests.integration.storage.world import KEYS, build_world, rows, say
from tests.support.servers import TEMPLATE, create_database, create_template, run_now, running_child

NEVER_BY_ITSELF = {"wal_writer_delay": "10s"}  # nothing reaches the disk but what a commit has waited for


async def results_of_two_harmless_calls(url: str) -> list[UUID]:
    """Two calls that need no attempt before them, both finished; their Operations."""
    store = Store.open(url, KEYS, pool_size=2)
    world = await build_world(store)
    life = Life(world, (await say(store, world, "What is the weather?")).run_id)
    life.context_id = (await open_run(store, OpenRun(run_id=life.run_id, execution_no=1))).context_id
    await life.prepare(store)
    await life.accept(store, "one", "two")
    for ordinal in range(2):
        assert await record_tool_result(store, life.result(ordinal, attempt=None, says=f"result {ordinal}"))
    await store.aclose()
    return [life.tool(ordinal) for ordinal in range(2)]


async def states(url: str, operations: list[UUID]) -> list[str]:
    """The states of these Operations."""
    store = Store.open(url, KEYS, pool_size=2)
    query = "SELECT state FROM operations WHERE operation_id = ANY(:operations)"
    found = await rows(store, query, operations=operations)
    await store.aclose()
    return [row["state"] for row in found]


def test_a_harmless_call_is_finished_for_good(tmp_path: Path) -> None:
    """SPEC 0: a result that was stored is there after a crash of the server, and its call is not made again."""
    server = postgres.prepare(tmp_path / "postgres", port=any_free_port(), password=secrets.token_urlsafe(12))
    child = server.child(log_file=tmp_path / "postgres.log", settings=NEVER_BY_ITSELF)
    with running_child(child) as process:
        run_now(create_template(server))
        url = server.url(run_now(create_database(server, template=TEMPLATE)))
        operations = run_now(results_of_two_harmless_calls(url))
        process.send_signal(signal.SIGQUIT)  # the server's own immediate end: nothing is written any more
        process.wait(20)
    with running_child(child):
        assert run_now(states(url, operations)) == ["accepted", "accepted"]

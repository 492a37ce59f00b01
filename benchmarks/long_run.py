"""A long Run: what a step costs at the end beside what it costs at the beginning (DESIGN 5, growth law; SPEC P6, W4).

`python -m benchmarks.long_run [STEPS]`. Statements, commits, stored bytes and history events of the steps after the
tenth and of the last ones, over continue-as-new, on real servers. Statements and commits must be the same, stored
bytes may differ by the digits of numbers, and no step may cost more time than noise explains.
"""

import sys
import time
from dataclasses import dataclass, replace
from typing import Any

import uvloop
from sqlalchemy import event, text
from temporalio.client import WorkflowHandle

from benchmarks.ground import Ground, Servers, build_worker, ground, new_session, real_servers, start_run
from storage.snapshot_tables import metadata
from storage.store import FaultPlan, Store

STEPS = 3_000
WINDOW = 50
BYTES_TOLERANCE = 0.01


@dataclass(frozen=True)
class Reading:
    """Counters at one moment; differences of two are what happened between."""

    at: float
    statements: int
    commits: int
    stored: int
    events: int

    def per_step(self, before: "Reading", steps: int) -> dict[str, float]:
        pairs = {name: getattr(self, name) - getattr(before, name) for name in self.__dataclass_fields__}
        return {name: value / steps for name, value in pairs.items()}


@dataclass
class Seen:
    """What went over all connections so far. A statement that writes by itself is a commit, as COMMIT is."""

    statements: int = 0
    commits: int = 0


@dataclass
class Listener:
    """Counts what one connection sends."""

    seen: Seen
    in_transaction: bool = False

    def hear(self, query: Any) -> None:
        """Called by the driver for each statement."""
        words = query.query.lstrip().upper()
        self.seen.statements += 1
        if words.startswith("BEGIN"):
            self.in_transaction = True
        elif words.startswith(("COMMIT", "ROLLBACK")):
            self.in_transaction = False
            self.seen.commits += words.startswith("COMMIT")
        elif not self.in_transaction:
            self.seen.commits += words.startswith(("WITH", "UPDATE", "INSERT"))


class Meter(FaultPlan):
    """Counts statements, and takes a reading when a request of the steps in question has been frozen."""

    def __init__(self, on: Ground, wanted: set[int]) -> None:
        self.readings: dict[int, Reading] = {}
        self.handle: WorkflowHandle[Any, Any] | None = None
        self._on = on
        self._wanted = wanted
        self._step = 0
        self._seen = Seen()
        event.listen(on.store.database.engine.sync_engine, "connect", self._watch)

    def _watch(self, connection: Any, _record: Any) -> None:
        connection.driver_connection.add_query_logger(Listener(self._seen).hear)

    async def reach(self, point: str) -> None:
        if point == "prepare_request.after_commit":
            self._step += 1
            if self._step in self._wanted:
                self.readings[self._step] = await self._read()

    async def _read(self) -> Reading:
        counted = replace(self._seen)
        stored, events = await stored_bytes(self._on.store), await self._events()
        self._seen.statements, self._seen.commits = counted.statements, counted.commits
        return Reading(time.perf_counter(), counted.statements, counted.commits, stored, events)

    async def _events(self) -> int:
        """Events of all executions of the Run so far."""
        assert self.handle is not None
        total = 0
        async for found in self._on.client.list_workflows(f"WorkflowId = '{self.handle.id}'"):
            handle = self._on.client.get_workflow_handle(found.id, run_id=found.run_id)
            total += (await handle.describe()).history_length
        return total


async def stored_bytes(store: Store) -> int:
    """Bytes of all rows, as PostgreSQL stores them; pages and indexes left aside."""
    parts = " + ".join(
        f'(SELECT coalesce(sum(pg_column_size(t.*)), 0) FROM "{name}" t)' for name in sorted(metadata.tables)
    )
    async with store.reading() as connection:
        return int((await connection.execute(text(f"SELECT {parts}"))).scalar_one())


async def measure(on: Ground, steps: int) -> tuple[dict[str, float], dict[str, float], int]:
    """Cost per step after the tenth and before the last, and the number of executions."""
    early, late = (10, 10 + WINDOW), (steps - WINDOW - 5, steps - 5)
    meter = Meter(on, {*early, *late})
    store = replace(on.store, faults=meter)
    session_id, owner_id = await new_session(on)
    async with build_worker(on.client, store, on.edges, task_queue=on.task_queue):
        accepted = await start_run(on, session_id, owner_id)
        meter.handle = accepted
        await on.client.get_workflow_handle(accepted.id).result()
    executions = [one async for one in on.client.list_workflows(f"WorkflowId = '{accepted.id}'")]
    first, last = (
        meter.readings[after].per_step(meter.readings[before], after - before) for before, after in (early, late)
    )
    return first, last, len(executions)


def verdict(first: dict[str, float], last: dict[str, float]) -> list[str]:
    """What has grown and must not."""
    grown = [name for name in ("statements", "commits") if first[name] != last[name]]
    if abs(last["stored"] / first["stored"] - 1) > BYTES_TOLERANCE:
        grown.append("stored")
    return grown


async def main(at: Servers, steps: int) -> int:
    async with ground(at, steps=steps) as on:
        first, last, executions = await measure(on, steps)
    print(f"{steps} steps in {executions} executions")
    print(f"{'per step':12}{'after the 10th':>16}{'before the last':>17}")
    for name in ("statements", "commits", "stored", "events"):
        print(f"{name:12}{first[name]:16.2f}{last[name]:17.2f}")
    print(f"{'ms':12}{first['at'] * 1000:16.2f}{last['at'] * 1000:17.2f}")
    grown = verdict(first, last)
    print(f"grown: {', '.join(grown)}" if grown else "nothing has grown")
    return 1 if grown else 0


if __name__ == "__main__":
    with real_servers() as at:
        sys.exit(uvloop.run(main(at, int(sys.argv[1]) if len(sys.argv) > 1 else STEPS)))

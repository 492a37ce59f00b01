"""Intents for Temporal that became true with a commit: sent at once by whoever made them, else by the relay (SPEC W7).

A row is leased before it is sent: claiming moves its `due_at` forward, so that a sender that dies leaves a row that is
due again. Sending twice does no harm. Storage knows no Temporal: what carries an intent is a `Sender`.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Literal
from uuid import UUID

from sqlalchemy import text

from context.errors import UnavailableError
from context.ids import derived, run_workflow_id
from context.intents import (
    CancelCompaction,
    CancelRun,
    Carried,
    Intent,
    Sender,
    SignalSupplement,
    StartCompaction,
    StartRun,
)
from storage.database import fetch_all, fetch_one
from storage.store import Store

GRACE_S = 1.0  # how long a new row is left to the one that committed it
SOON_S = 0.2  # until the next try while an older execution is still closing
CLAIMS = 32  # rows one sweep takes

# However long Temporal was away, what waits for it is tried again within these seconds of its return.
LEASE = "clock_timestamp() + make_interval(secs => least(0.5 * 2 ^ least(tries + 1, 10), 5))"

# What the Run has left behind is not sent: a start once it runs, what is of an older execution, anything after its end.
# (A late start of an ended Run would open an execution that has nothing to do.) Only what was stopped before anybody
# began it may have an execution all the same, which is cancelled like any other (decision 0112).
WANTED = """
    CASE WHEN kind IN ('compact', 'cancel_compaction') THEN EXISTS (
        SELECT 1 FROM compaction_episodes e WHERE e.episode_id = (body ->> 'episode_id')::uuid
          AND (e.status = 'queued' OR (kind = 'cancel_compaction' AND e.status IN ('running', 'cancelled'))))
    ELSE EXISTS (SELECT 1 FROM runs r WHERE r.run_id = outbox.run_id AND CASE kind
        WHEN 'start' THEN r.status = 'queued' AND r.execution_no = (body ->> 'execution_no')::integer
        WHEN 'cancel' THEN r.execution_no = (body ->> 'execution_no')::integer
          AND (r.status IN ('queued', 'running') OR (r.status = 'stopped' AND r.started_at IS NULL))
        ELSE r.status IN ('queued', 'running') END) END
"""

CLAIM_ONE = text(f"""
    UPDATE outbox SET tries = tries + 1, due_at = {LEASE}
    WHERE outbox_id = :outbox_id AND sent_at IS NULL
    RETURNING outbox_id, kind, run_id, body, {WANTED} AS wanted
""")

# No lease is as long as a minute: one that ends later was given by a clock that was ahead.
CLAIM_DUE = text(f"""
    UPDATE outbox SET tries = tries + 1, due_at = {LEASE}
    WHERE outbox_id IN (
        SELECT outbox_id FROM outbox
        WHERE sent_at IS NULL
          AND due_at NOT BETWEEN clock_timestamp() - make_interval(secs => CASE tries WHEN 0 THEN :grace ELSE 0 END)
                         AND clock_timestamp() + interval '1 minute'
        ORDER BY due_at LIMIT :claims FOR UPDATE SKIP LOCKED)
    RETURNING outbox_id, kind, run_id, body, {WANTED} AS wanted
""")

# A signal or cancellation that found no execution is done, unless the start it belongs to is itself still to be sent.
SETTLE = text("""
    UPDATE outbox o SET
        sent_at = CASE WHEN again THEN NULL ELSE clock_timestamp() END,
        due_at = CASE WHEN again THEN clock_timestamp() + make_interval(secs => :soon) ELSE due_at END
    FROM (
        SELECT :carried = 'closing' OR (:carried = 'gone' AND EXISTS (
            SELECT 1 FROM outbox s
            WHERE s.run_id = :run_id AND s.kind = :start AND s.sent_at IS NULL)) AS again) verdict
    WHERE o.outbox_id = :outbox_id AND o.sent_at IS NULL
    RETURNING o.sent_at
""")


# Whoever asks for the same stop again has seen that the first one came to nothing.
SEND_AGAIN = """
    UPDATE outbox SET sent_at = NULL, tries = 0, due_at = clock_timestamp()
    WHERE outbox_id = :sent_again AND sent_at IS NOT NULL
"""


def outbox_row(intent: Intent) -> dict[str, Any]:
    """The row of an intent, to be inserted by the commit that makes it. Its id derives from what is meant."""
    match intent:
        case StartRun():
            kind, body = "start", _start_body(intent)
            outbox_id = derived(intent.run_id, "start", intent.execution_no)
        case SignalSupplement():
            kind, body = "signal", {"input_id": str(intent.input_id), "input_seq": intent.input_seq}
            outbox_id = derived(intent.run_id, "signal", str(intent.input_id))
        case CancelRun():
            kind, body = "cancel", {"execution_no": intent.execution_no}
            outbox_id = derived(intent.run_id, "cancel", intent.execution_no)
        case StartCompaction():
            kind, body = "compact", _compact_body(intent)
            outbox_id = derived(intent.episode_id, "start")
        case CancelCompaction():
            kind, body = "cancel_compaction", {"episode_id": str(intent.episode_id)}
            outbox_id = derived(intent.episode_id, "cancel")
    return {"outbox_id": outbox_id, "kind": kind, "run_id": intent.run_id, "body": json.dumps(body)}


def _start_body(intent: StartRun) -> dict[str, Any]:
    return {
        "workflow_id": run_workflow_id(intent.run_id),
        "execution_no": intent.execution_no,
        "session_id": str(intent.session_id),
        "agent": intent.agent,
        "release_id": str(intent.release_id),
    }


def _compact_body(intent: StartCompaction) -> dict[str, Any]:
    ids = {"episode_id": intent.episode_id, "session_id": intent.session_id, "release_id": intent.release_id}
    return {name: str(value) for name, value in ids.items()} | {"agent": intent.agent}


def intent_of(row: Mapping[str, Any]) -> Intent:
    """The inverse of `outbox_row`."""
    run_id, body = row["run_id"], row["body"]
    if row["kind"] == "cancel_compaction":
        return CancelCompaction(run_id, UUID(body["episode_id"]))
    if row["kind"] == "compact":
        place = UUID(body["episode_id"]), UUID(body["session_id"])
        return StartCompaction(run_id, place[0], place[1], body["agent"], UUID(body["release_id"]))
    if row["kind"] == "signal":
        return SignalSupplement(run_id, UUID(body["input_id"]), body["input_seq"])
    if row["kind"] == "cancel":
        return CancelRun(run_id, body["execution_no"])
    session_id, release_id = UUID(body["session_id"]), UUID(body["release_id"])
    return StartRun(run_id, body["execution_no"], session_id, body["agent"], release_id)


async def dispatch(store: Store, sender: Sender, outbox_id: UUID) -> Literal["sent", "later"]:
    """Send one intent right after its commit. `later`: the relay does it; what was committed stays true either way."""
    try:
        async with store.transaction("claim_intent", durable=False) as connection:
            row = await fetch_one(connection, CLAIM_ONE, outbox_id=outbox_id)
        return "sent" if row is None else await _carry(store, sender, row)
    except UnavailableError:
        return "later"


async def _carry(store: Store, sender: Sender, row: Mapping[str, Any]) -> Literal["sent", "later"]:
    carried = await _send(sender, intent_of(row)) if row["wanted"] else "sent"
    async with store.transaction("settle_intent", durable=False) as connection:
        settled = await fetch_one(
            connection,
            SETTLE,
            outbox_id=row["outbox_id"],
            run_id=row["run_id"],
            carried=carried,
            soon=SOON_S,
            start="compact" if row["kind"] == "cancel_compaction" else "start",
        )
    return "later" if settled and settled["sent_at"] is None else "sent"


async def _send(sender: Sender, intent: Intent) -> Carried:
    match intent:
        case StartRun():
            return await sender.start(intent)
        case SignalSupplement():
            return await sender.signal(intent)
        case CancelRun():
            return await sender.cancel(intent)
        case StartCompaction():
            return await sender.start_compaction(intent)
        case CancelCompaction():
            return await sender.cancel_compaction(intent)


class Relay:
    """Sends what its committer could not. Any number may run: a row is leased to one of them at a time."""

    def __init__(self, store: Store, sender: Sender, *, poll_s: float = 0.5) -> None:
        self._store = store
        self._sender = sender
        self._poll_s = poll_s

    async def run(self) -> None:
        """Sweep until cancelled. While database or Temporal are away, rows wait."""
        while True:
            if not await self._sweep_if_reachable():
                await asyncio.sleep(self._poll_s)

    async def sweep(self) -> int:
        """Send what is due now; how many were sent. Raises UnavailableError if the database is away."""
        async with self._store.transaction("claim_intents", durable=False) as connection:
            due = await fetch_all(connection, CLAIM_DUE, grace=GRACE_S, claims=CLAIMS)
        results = await asyncio.gather(*(self._carry_or_leave(row) for row in due))
        return results.count("sent")

    async def _sweep_if_reachable(self) -> int:
        try:
            return await self.sweep()
        except UnavailableError:
            return 0

    async def _carry_or_leave(self, row: Mapping[str, Any]) -> Literal["sent", "later"]:
        try:
            return await _carry(self._store, self._sender, row)
        except UnavailableError:  # the lease runs out and the row is due again
            return "later"

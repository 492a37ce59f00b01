"""Whether a session is what it says: content, chains, coverage and lists re-derived from what is stored (SPEC M7).

Everything is seen at one moment, so a Run that goes on meanwhile breaks nothing. Rebuilding requests is up to the
caller, who knows wire forms. Reads by page; reports every break by name and place, mends none.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, fields
from itertools import groupby
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.chain import EMPTY_CHAIN, RecordFact, follows
from context.errors import UnknownContentError
from context.ids import derived, tool_operation_id
from context.material import piece_of
from context.messages import ChatMessage, message_from_bytes, safe_name
from context.snapshots import doubled
from storage.database import fetch_all
from storage.reads.breaks import Break
from storage.reads.contents import Contents, contents_of
from storage.reads.owned import check_session
from storage.reads.verifying_facts import fact_breaks
from storage.reads.verifying_summaries import Summaries
from storage.store import Store
from storage.view_lists import listed

PAGE = 200

HEADS = text("SELECT input_head, record_head FROM sessions WHERE session_id = :session_id")
CONTEXTS = text("""
    SELECT context_id, chain, record_head, revision FROM role_contexts WHERE session_id = :session_id
    ORDER BY context_id
""")
RECORDS = text("""
    SELECT c.context_id, c.context_seq, c.seq, c.record_id, c.payload_id, p.digest, c.chain, c.kind, c.role, c.call_id,
           c.status, c.operation_id
    FROM context_records c LEFT JOIN payloads p USING (payload_id)
    WHERE c.context_id = :context_id AND c.context_seq > :after ORDER BY c.context_seq LIMIT :page
""")
REVISIONS = text("""
    SELECT revision, record_watermark FROM context_revisions
    WHERE context_id = :context_id AND revision > :after ORDER BY revision LIMIT :page
""")
CALLS = text("""
    SELECT batch_id, array_agg(call_id ORDER BY ordinal) AS ids, array_agg(name ORDER BY ordinal) AS names,
           array_agg(operation_id ORDER BY ordinal) AS operations
    FROM operations WHERE session_id = :session_id AND context_id = :context_id AND purpose = 'tool' GROUP BY batch_id
""")
SEQS = text("SELECT seq FROM context_records WHERE session_id = :session_id AND seq > :after ORDER BY seq LIMIT :page")
INPUT_SEQS = text("""
    SELECT input_seq AS seq FROM user_inputs WHERE session_id = :session_id AND input_seq > :after
    ORDER BY input_seq LIMIT :page
""")
# Records of an input that are not in its words, and messages of a request that are no version of their record.
MISQUOTED_INPUTS = text("""
    SELECT i.input_id, i.input_seq FROM context_records c JOIN user_inputs i USING (input_id)
    WHERE c.session_id = :session_id AND c.payload_id <> i.payload_id ORDER BY i.input_seq
""")
MISQUOTED = text("""
    SELECT DISTINCT c.record_id, c.context_seq FROM role_contexts x JOIN request_views w USING (context_id)
      JOIN view_items v ON v.view_id = w.view_id JOIN context_records c ON c.record_id = v.source_id
    WHERE x.session_id = :session_id AND v.kind IN ('assistant', 'tool_result', 'feedback')
      AND coalesce(v.transform, 'tool_result_offload') = 'tool_result_offload' AND v.payload_id <> c.payload_id
      AND NOT EXISTS (SELECT 1 FROM context_mutations m
                      WHERE m.record_id = c.record_id AND m.payload_id = v.payload_id)
    ORDER BY c.context_seq, c.record_id
""")
# How far a Run saw its Session at its first request follows from its own first record and from those of later Runs. A
# saved view is a part of its Run's own list; it may claim what it saw and what is its own, and nothing of later Runs.
VIEWS = text("""
    WITH firsts AS (
      SELECT r.run_id, r.run_no, min(k.seq) AS own, min(min(k.seq)) OVER (
        ORDER BY r.run_no DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS later
      FROM runs r JOIN context_records k ON k.run_id = r.run_id JOIN role_contexts x USING (context_id)
      WHERE r.session_id = :session_id AND x.instance = 'main' GROUP BY r.run_id, r.run_no
    )
    SELECT f.run_id, v.through_seq FROM firsts f JOIN session_views v ON v.run_id = f.run_id
      JOIN role_contexts c ON c.run_id = f.run_id AND c.instance = 'main'
      LEFT JOIN request_views w ON w.view_id = v.view_id
    WHERE NOT coalesce(
      v.session_id = :session_id AND v.run_no = f.run_no AND v.observed_seq = least(f.own, f.later) - 1
      AND CASE WHEN v.through_seq IS NULL THEN v.view_id IS NULL AND v.view_length IS NULL ELSE
        w.context_id = c.context_id AND v.through_seq < coalesce(f.later, v.through_seq + 1)
        AND v.view_length = (SELECT count(*) FROM view_items i WHERE i.view_id = v.view_id AND i.pos < v.view_length)
        AND 0 = (SELECT count(*) FROM view_items i JOIN context_records k
                   ON k.record_id = i.source_id OR (k.context_id = c.context_id AND k.input_id = i.source_id)
                 WHERE i.view_id = v.view_id AND i.pos >= v.view_length AND k.context_id = c.context_id
                   AND k.seq <= v.through_seq)
        AND (v.through_seq = v.observed_seq OR 0 < (
               SELECT count(*) FROM context_records k WHERE k.context_id = c.context_id AND k.seq = v.through_seq))
        END, false)
    ORDER BY f.run_no
""")
# List by list, each from its shortest request to its longest, which the shorter ones are the beginnings of.
REQUESTS = text("""
    SELECT o.operation_id, o.view_id, o.view_length,
           o.request_hash IS NULL OR o.view_id IS NULL OR o.view_length IS NULL AS unprovable
    FROM operations o
    WHERE o.session_id = :session_id AND o.purpose <> 'tool'
      AND (o.request_hash IS NOT NULL OR 0 < (SELECT count(*) FROM attempts a
           WHERE a.operation_id = o.operation_id AND a.state = 'succeeded'))
    ORDER BY o.view_id, o.view_length, o.operation_id
""")


@dataclass(frozen=True)
class Checked:
    """How much was looked at, and everything that was wrong.

    `requests` are those whose hash is still to be checked, list by list, each from its shortest to its longest.
    """

    records: int
    contents: int
    snapshots: int
    requests: tuple[UUID, ...]
    breaks: tuple[Break, ...]


async def verified(store: Store, session_id: UUID, owner_id: UUID) -> Checked:
    """Check a session's content, chains, snapshots and lists. Raises NotFoundError."""
    async with store.snapshot() as connection:
        await check_session(connection, session_id, owner_id)
        return await _Verification(store, connection, session_id).run()


class _Verification:
    """One check of one session."""

    def __init__(self, store: Store, connection: AsyncConnection, session_id: UUID) -> None:
        self._store = store
        self._connection = connection
        self._session_id = session_id
        self._summaries = Summaries(store, connection, session_id)
        self._breaks: list[Break] = []
        self._records = 0

    async def run(self) -> Checked:
        contents = await contents_of(self._store, self._connection, self._session_id)
        self._breaks += [Break("content", one.subject, one.place) for one in contents.referring]
        for context in await self._rows(CONTEXTS):
            await self._check_chain(context, contents)
            await self._check_revisions(context)
        await self._check_sequences()
        await self._check_words()
        self._breaks += [one async for one in fact_breaks(self._connection, self._session_id)]
        self._breaks += [
            Break("coverage", subject, place) async for subject, place in self._summaries.breaks(contents.broken)
        ]
        self._breaks += [Break("view", f"run/{one['run_id']}", one["through_seq"]) for one in await self._rows(VIEWS)]
        requests = await self._check_requests()
        return Checked(
            self._records, contents.count, self._summaries.count, requests, tuple(dict.fromkeys(self._breaks))
        )

    async def _check_chain(self, context: Mapping[str, Any], contents: Contents) -> None:
        """Each record against the one before; after a break the check goes on from what is stored."""
        subject = f"context/{context['context_id']}"
        chain, place, seq = EMPTY_CHAIN, 0, 0
        whose = {"session_id": self._session_id, "context_id": context["context_id"]}
        batches = await fetch_all(self._connection, CALLS, **whose)
        calls = {row["batch_id"]: row for row in batches}
        async for row in self._paged(RECORDS, "context_seq", context_id=context["context_id"]):
            if row["context_seq"] != place + 1:
                self._breaks.append(Break("chain", subject, place + 1))
            elif row["digest"] is not None and not follows(row["chain"], chain, _fact(row)):
                self._breaks.append(Break("chain", f"record/{row['record_id']}", row["context_seq"]))
            if row["seq"] <= seq:
                self._breaks.append(Break("order", f"record/{row['record_id']}", row["context_seq"]))
            if row["payload_id"] not in contents.broken and not await self._fits(row, calls):
                self._breaks.append(Break("record", f"record/{row['record_id']}", row["context_seq"]))
            chain, place, seq = row["chain"], row["context_seq"], row["seq"]
            self._records += 1
        if (place, chain) != (context["record_head"], context["chain"]):
            self._breaks.append(Break("chain", subject, min(place, context["record_head"]) + 1))

    async def _fits(self, row: Mapping[str, Any], calls: Mapping[UUID, Mapping[str, Any]]) -> bool:
        """Whether a record's own columns say what its message says, and its id where it stands; so for its calls."""
        if row["record_id"] != derived(row["context_id"], "record", row["context_seq"]):
            return False
        try:
            message = message_from_bytes(await self._store.payloads.read_one(self._connection, row["payload_id"]))
        except UnknownContentError:
            return False
        if row["kind"] == "assistant" and not _are_made(message, row["operation_id"], calls.get(row["operation_id"])):
            return False
        return message.role == row["role"] and (message.role != "tool" or message.tool_call_id == row["call_id"])

    async def _check_revisions(self, context: Mapping[str, Any]) -> None:
        subject = f"context/{context['context_id']}"
        number, watermark = 0, 0
        async for row in self._paged(REVISIONS, "revision", context_id=context["context_id"]):
            if row["revision"] != number + 1 or row["record_watermark"] < watermark:
                self._breaks.append(Break("revision", subject, number + 1))
            number, watermark = row["revision"], row["record_watermark"]
        if (number, watermark) != (context["revision"], context["record_head"]):
            self._breaks.append(Break("revision", subject, number))

    async def _check_sequences(self) -> None:
        """Records and inputs of the session are numbered without a gap, up to where its heads stand."""
        subject = f"session/{self._session_id}"
        for heads in await self._rows(HEADS):
            for gap in await self._gaps(SEQS, heads["record_head"]):
                self._breaks.append(Break("order", subject, gap))
            for gap in await self._gaps(INPUT_SEQS, heads["input_head"]):
                self._breaks.append(Break("input", subject, gap))

    async def _gaps(self, statement: Any, head: int) -> list[int]:
        """The first missing number of each gap below the head, and the first number above it."""
        gaps, place = [], 0
        async for row in self._paged(statement, "seq", session_id=self._session_id):
            if row["seq"] != place + 1:
                gaps.append(place + 1)
            place = row["seq"]
        return gaps if place == head else [*gaps, min(place, head) + 1]

    async def _check_words(self) -> None:
        for row in await self._rows(MISQUOTED_INPUTS):
            self._breaks.append(Break("input", f"input/{row['input_id']}", row["input_seq"]))
        for row in await self._rows(MISQUOTED):
            self._breaks.append(Break("record", f"record/{row['record_id']}", row["context_seq"]))

    async def _check_requests(self) -> tuple[UUID, ...]:
        """The requests whose hash can be checked; those that can't be are broken. Each list is read once."""
        provable: list[UUID] = []
        chains = await self._summaries.chains()
        for view_id, of_view in groupby(await self._rows(REQUESTS), key=lambda row: row["view_id"]):
            requests = list(of_view)
            self._breaks += [
                Break("request", f"operation/{one['operation_id']}") for one in requests if one["unprovable"]
            ]
            sound = [one for one in requests if not one["unprovable"]]
            provable += [one["operation_id"] for one in sound]
            longest = max((one["view_length"] for one in sound), default=0)
            items = await listed(self._connection, view_id, longest)
            twice = doubled([piece_of(one) if one.source_id is not None else None for one in items], chains)
            for one in sound if twice else ():
                shown = [piece for at, piece in twice if at < one["view_length"]]
                self._breaks += [Break("doubled", f"operation/{one['operation_id']}/{piece}") for piece in shown]
        return tuple(provable)

    async def _rows(self, statement: Any) -> list[Mapping[str, Any]]:
        return await fetch_all(self._connection, statement, session_id=self._session_id)

    async def _paged(self, statement: Any, key: str, **binds: Any) -> AsyncIterator[Mapping[str, Any]]:
        after = 0
        while rows := await fetch_all(self._connection, statement, after=after, page=PAGE, **binds):
            for row in rows:
                yield row
            after = rows[-1][key]


def _fact(row: Mapping[str, Any]) -> RecordFact:
    return RecordFact(**{one.name: row[one.name] for one in fields(RecordFact)})


def _are_made(message: ChatMessage, operation_id: UUID, made: Mapping[str, Any] | None) -> bool:
    """Whether the calls of a message are the Operations of its batch, in order."""
    asked = [
        (tool_operation_id(operation_id, at), one.call_id, safe_name(one.name))
        for at, one in enumerate(message.tool_calls)
    ]
    return asked == (list(zip(made["operations"], made["ids"], made["names"], strict=True)) if made else [])

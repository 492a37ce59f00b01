"""Run events written by a commit that holds the Run's row lock: numbered without gaps, announced when it commits."""

import json
from typing import Any
from uuid import UUID

from storage.tables import run_events
from storage.writes import WriteSet

RUN_EVENTS = "run_events"  # channel; the message is the Run's id


class EventLog:
    """The events that one commit adds to a Run, after `head`, its highest `run_seq`.

    `write` binds `:event_head`, the new head; the commit's own UPDATE of `runs` stores it in `event_head`.
    """

    def __init__(self, run_id: UUID, head: int) -> None:
        self._run_id = run_id
        self._head = head
        self._rows: list[dict[str, Any]] = []

    @property
    def head(self) -> int:
        """The highest `run_seq` so far."""
        return self._head

    def add(self, event: str, **body: Any) -> None:
        """Add an event. The body holds ids and numbers only."""
        self._head += 1
        row = {"run_id": self._run_id, "run_seq": self._head, "type": event, "body": json.dumps(body, default=str)}
        self._rows.append(row)

    def write(self, writes: WriteSet) -> None:
        """Put the events and their announcement into the commit's writes."""
        writes.insert(run_events, self._rows)
        writes.bind(event_head=self._head)
        if self._rows:
            writes.announce(RUN_EVENTS, str(self._run_id))

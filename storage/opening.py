"""Opening a compaction in the transaction that prepares the request which waits for it (SPEC K1).

The source list is the view as that transaction leaves it: a view only grows, so its first items are frozen with it.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from context.ids import episode_id
from context.summaries import PROMPT_VERSION
from storage.event_log import EventLog
from storage.weighing import Opening
from storage.writes import WriteSet

INSERT = """
    INSERT INTO compaction_episodes (episode_id, session_id, run_id, context_id, operation_id, source, causes, view_id,
      view_length, covered, folds, context_revision, expected_snapshot_id, estimated, material, target, prompt_version,
      estimator_id, status)
    VALUES (:episode_id, :e_session_id, :e_run_id, :e_context_id, :e_operation_id, :source, CAST(:causes AS text[]),
      :e_view_id, :e_view_length, CAST(:covered AS integer[]), :folds, :context_revision, :expected_snapshot_id,
      :estimated, :material, CAST(:target AS jsonb), :prompt_version, :estimator_id, 'running')
"""


@dataclass(frozen=True)
class EpisodePlace:
    """Where an episode belongs, and the list that it freezes."""

    session_id: UUID
    run_id: UUID
    context_id: UUID
    operation_id: UUID
    view_id: UUID
    view_length: int
    context_revision: int
    estimated: int
    estimator_id: str


def write_episode(writes: WriteSet, events: EventLog, place: EpisodePlace, opening: Opening) -> None:
    """Put the episode and its event into the commit's writes."""
    opened = episode_id(place.operation_id)
    writes.sql(INSERT, tag="episode", episode_id=opened, prompt_version=PROMPT_VERSION)
    writes.bind(**_frozen(place), **_decided(opening))
    tell_opened(events, opened, opening, place.estimated)


def tell_opened(events: EventLog, episode_id: UUID, opening: Opening, estimated: int) -> None:
    """The event of an episode: why, of what size, and the figures of SPEC K2, where T is called `target`."""
    what = {"episode_id": episode_id, "source": opening.source, "causes": list(opening.causes)}
    figures = asdict(opening.target)
    numbers = {"estimated": estimated, "material": opening.parts.material, "target": figures.pop("summary")}
    events.add("compaction_started", **what, **numbers, **figures)


def _frozen(place: EpisodePlace) -> dict[str, Any]:
    owner = {"e_session_id": place.session_id, "e_run_id": place.run_id, "e_context_id": place.context_id}
    frozen = {"e_view_id": place.view_id, "e_view_length": place.view_length, "estimated": place.estimated}
    counted = {"context_revision": place.context_revision, "estimator_id": place.estimator_id}
    return owner | frozen | counted | {"e_operation_id": place.operation_id}


def _decided(opening: Opening) -> dict[str, Any]:
    return {
        "source": opening.source,
        "causes": list(opening.causes),
        "covered": list(opening.parts.covered),
        "folds": opening.parts.folds,
        "expected_snapshot_id": opening.expected_snapshot_id,
        "material": opening.parts.material,
        "target": json.dumps(asdict(opening.target)),
    }

"""A piece of the conversation as compaction and explanation see it: what it is called, which version, of which context.

A piece keeps its name over views, Runs and compactions, so that two lists can be compared and no version is shown
twice (SPEC K10). No content passes through here.
"""

from dataclasses import dataclass
from uuid import UUID

from context.views import ViewItem

_NAMED_BY = {"input": "input", "placeholder": "call", "summary": "summary", "state": "state", "reference": "reference"}


@dataclass(frozen=True)
class Material:
    """An item of a view with the version of the fact behind it.

    `run_no` is the Run whose fact it is. `context_id` and `context_seq` are None for what is no record of a context,
    such as an end marker. `mutations` are those that made the effective content, oldest first; `digest` is its SHA-256.
    """

    item: ViewItem
    digest: bytes
    run_no: int
    context_id: UUID | None = None
    context_seq: int | None = None
    mutations: tuple[UUID, ...] = ()

    @property
    def piece(self) -> str:
        return piece_of(self.item)


def piece_of(item: ViewItem) -> str:
    """The lasting name of what an item shows: `input/<id>`, `record/<id>`, `call/<id>`, `end/<run_no>`, …

    A record and the placeholder that stood for it before have different names: one is no version of the other. So have
    the ends of a Run that was resumed: `end/<run_no>/<execution>`.
    """
    if item.source_id is None:
        return _end_of(item) if item.kind == "marker" else item.kind
    return f"{_NAMED_BY.get(item.kind, 'record')}/{item.source_id}"


def _end_of(marker: ViewItem) -> str:
    return f"end/{marker.run_no}" + (f"/{marker.revision}" if marker.revision else "")

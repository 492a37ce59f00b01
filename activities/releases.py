"""What a release brings to every step: its terms, its model, its tools. Built once per release and process."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from context.policy import Release

if TYPE_CHECKING:
    from providers.release_model import ReleaseModel
    from storage.run_commits import RunCommits
    from tools.release_tools import ReleaseTools

CAPACITY = 256


@dataclass(frozen=True)
class Kit:
    """One release, ready to work with."""

    release: Release
    model: "ReleaseModel"
    tools: "ReleaseTools"


class Releases:
    """Kits by release id, the last used ones kept."""

    def __init__(self, commits: "RunCommits", *, build_kit: Callable[[UUID, Release], Kit]) -> None:
        self._commits = commits
        self._build_kit = build_kit
        self._kits: OrderedDict[UUID, Kit] = OrderedDict()

    async def kit(self, release_id: UUID) -> Kit:
        """The kit of a release; a release never changes, so neither does its kit."""
        kit = self._kits.get(release_id)
        if kit is None:
            kit = self._build_kit(release_id, await self._commits.release(release_id))
            self._kits[release_id] = kit
            if len(self._kits) > CAPACITY:
                self._kits.popitem(last=False)
        self._kits.move_to_end(release_id)
        return kit

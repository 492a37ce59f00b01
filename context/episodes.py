"""The values of a compaction's steps: what is asked of each activity and commit, and what it decided.

As in `steps`, what a workflow sees holds ids, numbers and small verdicts, never content (SPEC W1).
"""

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal
from uuid import UUID

from context.blocks import Block
from context.compaction import CompactionTerms, Target
from context.covered_results import CoveredResults
from context.messages import ChatMessage
from context.replies import Usage
from context.steps import Content, Step
from context.transcripts import Source
from context.views import ViewItem

IDLE = 0
"""In place of an execution number: no execution waits for the episode, since its Session is idle (SPEC K12)."""


NOTHING_TO_COMPACT = "nothing_to_compact"
"""The outcome of an idle Session's episode that has no material (SPEC K3)."""


class EpisodeRef(Step):
    """An episode, and the execution of the Run that it works for; IDLE for none."""

    episode_id: UUID
    release_id: UUID
    execution_no: int

    @property
    def is_idle(self) -> bool:
        return self.execution_no == IDLE


class EpisodePlan(Step):
    """Where an episode stands: `blocks` calls in all, `cursor` of them finished. `code` says why there is no plan.

    `nothing`: there is nothing to compact, and that is its end. `stopping`: a stop is recorded. `limit_s` is how long
    that of an idle Session may take.
    """

    blocks: int
    cursor: int
    code: str | None = None
    reason: str | None = None
    nothing: bool = False
    stopping: bool = False
    limit_s: float | None = None


class SummariseBlock(Step):
    """Summarises block `block`, counted from 0. `deadline_at` is in seconds since 1970."""

    episode: EpisodeRef
    block: int
    deadline_at: float | None = None


class BlockVerdict(Step):
    """How a block's call ended; `code` and `reason` as in a ModelVerdict.

    `over_budget`: with it the Run has reached its limit of tokens or cost (SPEC L5).
    """

    kind: Literal["done", "failed", "stopping"]
    code: str | None = None
    reason: str | None = None
    status: int = 0
    over_budget: bool = False


class FailEpisode(Step):
    """Ends an episode without a summary."""

    episode_id: UUID
    status: Literal["failed", "cancelled"]
    code: str
    reason: str
    block: int | None = None


class CompactionVerdict(Step):
    """How an episode ended. `outcome` is that of its summary, if there is one; else `code` and `reason` say why not.

    A `code` beside a summary ends the Run all the same: its last call used up the budget (SPEC L5).
    """

    status: Literal["succeeded", "failed", "cancelled"]
    outcome: str | None = None
    code: str | None = None
    reason: str | None = None
    tokens_before: int = 0
    tokens_after: int = 0


# --- between activity and commit -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SourceItem:
    """An item of the frozen list with its content: the effective one, not how a view had shortened it (SPEC K5)."""

    position: int
    item: ViewItem
    message: ChatMessage = field(repr=False)


@dataclass(frozen=True)
class OpenEpisode:
    """An episode as it stands; `target` is None before it is weighed, `blocks` before it is planned."""

    episode_id: UUID
    context_id: UUID
    status: str
    outcome: str | None
    covered: tuple[int, ...]
    folds: int | None
    target: Target | None
    blocks: int | None
    cursor: int
    failure: dict[str, object] | None

    @property
    def longest_summary(self) -> int:
        """T of SPEC K2. Raises AssertionError before the episode is weighed."""
        assert self.target is not None
        return self.target.summary


@dataclass(frozen=True)
class Plan:
    """The blocks of an episode, where in the frozen list each piece is, and whether the first starts from a summary.

    `carries_on`: the earlier summary is short enough to be what block 0 starts from.
    """

    blocks: tuple[Block, ...]
    positions: dict[str, int]
    carries_on: bool


@dataclass(frozen=True)
class BlockMaterial:
    """What a block's request is made from."""

    block: Block
    sources: dict[str, Source] = field(repr=False)
    summary: str | None = field(repr=False)


@dataclass(frozen=True)
class PrepareBlock:
    """A block's request: its messages as they are stored, and what it was measured to be.

    `estimated_cost` is that of the estimated input. `begins`: whoever prepares it makes its first try at once.
    """

    episode: EpisodeRef
    block: int
    messages: tuple[Content, ...] = field(repr=False)
    estimator_id: str
    exact: bool
    model: str
    estimated: int
    input_limit: int
    max_output_tokens: int
    estimated_cost: Decimal | None = None
    begins: bool = True


@dataclass(frozen=True)
class FinishBlock:
    """Everything that a block's answer brought."""

    episode: EpisodeRef
    block: int
    attempt_no: int
    request_hash: bytes
    raw: Content
    summary: Content
    truncated: bool
    usage: Usage
    cost: Decimal | None
    max_total_tokens: int | None = None
    max_cost: Decimal | None = None


@dataclass(frozen=True)
class ListedResults:
    """The results that a summary's message may list, None for none, and the most tokens of that message."""

    summary_id: UUID
    results: CoveredResults | None
    longest_message: int


@dataclass(frozen=True)
class PublishSnapshot:
    """The finished summary as later requests show it, counted."""

    episode: EpisodeRef
    message: Content
    estimator_id: str
    fixed: int  # tokens of a request beside its view
    terms: CompactionTerms

"""When a request is compacted, how long its summary may be, and whether the summary then stands for what it covers.

Numbers only (SPEC B2, K2-K4, K8, K14): integers, no binary floats, no content. The hard limit itself is judged in
`budget`, outside this replaceable policy (SPEC B8).
"""

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, Protocol

from context.budget import Budget, floor_share
from context.errors import CompactionFailedError
from context.policy import ContextSettings

LONGEST_SUMMARY = 8192
"""A of SPEC K2."""
WORTH_AIMING_AT = 1024
"""Room under the target ratio from which a summary is fitted into it."""
FIRST_BACK_OFF_S = 30
LONGEST_BACK_OFF_S = 3_600

Cause = Literal["budget", "user_turns", "model_steps", "messages", "manual", "overflow"]
Outcome = Literal["activated", "not_activated", "failed"]


@dataclass(frozen=True)
class CompactionTerms:
    """What a release fixes for its compactions. `budget` is the role's; the two output numbers the summarising model's.

    `output_reserve` is that model's O, `output_limit` its provider's limit if known. `user_turns`, `model_steps` and
    `messages` are the further triggers of SPEC B2, None for off; `max_calls` bounds a plan (SPEC K6). `listing` are the
    tokens that a list of the results summarised may take beside a summary (SPEC T5), 0 where nobody could read them.
    """

    budget: Budget
    target_ratio: Decimal
    keep_recent: int
    output_reserve: int
    output_limit: int | None
    summary_target: int | None = None
    user_turns: int | None = None
    model_steps: int | None = None
    messages: int | None = None
    max_calls: int | None = None
    listing: int = 0

    @property
    def goal(self) -> int:
        """The size aimed for: floor(B·q)."""
        return floor_share(self.target_ratio, self.budget.input_limit)


def compaction_terms(
    settings: ContextSettings, budget: Budget, *, output_reserve: int, output_limit: int | None, listing: int = 0
) -> CompactionTerms:
    """The terms of a definition; recent groups kept default to a tenth of B."""
    keep = settings.keep_recent_tokens
    return CompactionTerms(
        budget=budget,
        target_ratio=settings.target_ratio,
        keep_recent=budget.input_limit // 10 if keep is None else keep,
        output_reserve=output_reserve,
        output_limit=output_limit,
        summary_target=settings.summary_target_tokens,
        user_turns=settings.user_turns,
        model_steps=settings.model_steps,
        messages=settings.messages,
        max_calls=settings.max_compaction_calls,
        listing=listing,
    )


# --- whether to compact ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Since:
    """What came since the last successful compaction: questions, accepted root answers, records in the view."""

    user_turns: int = 0
    model_steps: int = 0
    messages: int = 0


@dataclass(frozen=True)
class LastEpisode:
    """The last ended episode of a role: its outcome, its T, and what changed since.

    `new_material` are tokens that could be summarised and were not there then; `failures` counts failed episodes in a
    row in this Run, `seconds_since` the time since the last of them.
    """

    outcome: Outcome
    under_trigger: bool
    summary_tokens: int
    new_material: int
    failures: int = 0
    seconds_since: float = 0


@dataclass(frozen=True)
class Due:
    """Compaction is due; every trigger that fired, in a fixed order."""

    causes: tuple[Cause, ...]


@dataclass(frozen=True)
class NotDue:
    """No trigger has fired."""


@dataclass(frozen=True)
class HeldBack:
    """A trigger fired, but a new episode would be useless now; the manifest says which rule holds it back.

    `had_episode`: this operation has had its one (SPEC K1). `no_progress`: the last one did not shrink the view or
    could not get under the trigger, and little is new (SPEC K14). `failed_before`: the last one failed, and since then
    there was neither new material nor a back-off (SPEC K8).
    """

    reason: Literal["had_episode", "no_progress", "failed_before"]


Consideration = Due | NotDue | HeldBack


def fired(estimated: int, since: Since, terms: CompactionTerms) -> tuple[Cause, ...]:
    """The triggers that have fired for a request of `estimated` tokens (SPEC B1, B2)."""
    reached: dict[Cause, bool] = {
        "budget": estimated >= terms.budget.trigger,
        "user_turns": _reached(since.user_turns, terms.user_turns),
        "model_steps": _reached(since.model_steps, terms.model_steps),
        "messages": _reached(since.messages, terms.messages),
    }
    return tuple(cause for cause, yes in reached.items() if yes)


def consider(
    estimated: int,
    since: Since,
    last: LastEpisode | None,
    terms: CompactionTerms,
    *,
    had_episode: bool = False,
    asked: Literal["manual", "overflow"] | None = None,
) -> Consideration:
    """Whether a request of `estimated` tokens is compacted before it is sent.

    `asked` is a compaction that somebody or something asked for; it waits for no trigger and is not held back by what
    came before, but one operation still has at most one episode.
    """
    causes = (*([asked] if asked else []), *fired(estimated, since, terms))
    if not causes:
        return NotDue()
    if had_episode:
        return HeldBack("had_episode")
    held = None if asked or last is None else _held_back(estimated, last, terms)
    return held or Due(causes)


def back_off_s(failures: int) -> int:
    """Seconds to wait after `failures` failed episodes in a row."""
    return min(FIRST_BACK_OFF_S << min(max(failures, 1) - 1, 20), LONGEST_BACK_OFF_S)


def _held_back(estimated: int, last: LastEpisode, terms: CompactionTerms) -> HeldBack | None:
    if last.outcome == "failed":
        may_try = last.new_material > 0 or last.seconds_since >= back_off_s(last.failures)
        return None if may_try else HeldBack("failed_before")
    limit = terms.budget.input_limit
    enough = max(last.summary_tokens, limit // 20)
    got_under = last.outcome == "activated" and last.under_trigger
    if got_under or last.new_material >= enough or estimated > limit:
        return None
    return HeldBack("no_progress")


def _reached(count: int, threshold: int | None) -> bool:
    return threshold is not None and count >= threshold


# --- how long the summary may be -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """The letters of SPEC K2 for one episode, in tokens: F, H, P, C, D and T. T is the summary's output limit."""

    fixed: int
    space: int
    hard_limit: int
    cap: int
    room: int
    summary: int


@dataclass(frozen=True)
class NothingToCompact:
    """No material, or no room for a summary of it, and the request fits as it is.

    It is sent, with the note `no_compressible_material`.
    """


@dataclass(frozen=True)
class Compact:
    """Material and room for its summary."""

    target: Target


@dataclass(frozen=True)
class Refused:
    """No summary can make the request fit; `code` is the error of SPEC E."""

    code: Literal["CONTEXT_PROTECTED_INPUT_TOO_LARGE", "CONFIGURATION_INVALID"]


def target_for(fixed: int, terms: CompactionTerms) -> Target:
    """The numbers of K2 for F = `fixed`. H, and with it the rest, may be zero or negative: `decide` looks at that."""
    limit = terms.budget.input_limit
    space = limit - fixed
    hard_limit = min(part for part in (terms.output_reserve, terms.output_limit, space) if part is not None)
    cap = min(LONGEST_SUMMARY, limit // 4, hard_limit)
    room = terms.goal - fixed
    fitted = min(cap, room) if room >= min(WORTH_AIMING_AT, cap) else cap
    summary = fitted if terms.summary_target is None else min(terms.summary_target, hard_limit)
    return Target(fixed, space, hard_limit, cap, room, summary)


def longest_target(terms: CompactionTerms) -> int:
    """The largest T that an episode of these terms can come to, whatever its F."""
    widest = target_for(0, terms)
    return widest.cap if terms.summary_target is None else widest.summary


def least_room(terms: CompactionTerms) -> int:
    """Room under the target ratio from which a summary is fitted into it, whatever F (SPEC K2)."""
    return min(WORTH_AIMING_AT, LONGEST_SUMMARY, terms.budget.input_limit // 4)


def decide(
    estimated: int, *, fixed: int, material: int, terms: CompactionTerms
) -> NothingToCompact | Compact | Refused:
    """What becomes of a request of `estimated` tokens, of which `material` could be summarised (SPEC K3).

    `fixed` is F: everything that stays, and the frame around the summary. Where that leaves no room for a summary, the
    request stands or falls by its own size, in which there is no frame.
    """
    fits = estimated <= terms.budget.input_limit
    target = target_for(fixed, terms)
    if material <= 0 or target.space <= 0:
        return NothingToCompact() if fits else Refused("CONTEXT_PROTECTED_INPUT_TOO_LARGE")
    return Compact(target) if target.summary > 0 else Refused("CONFIGURATION_INVALID")


def check_calls(blocks: int, terms: CompactionTerms) -> None:
    """Refuse a plan of more blocks than `max_compaction_calls`, before the first call (SPEC K6, K14).

    Raises CompactionFailedError.
    """
    if terms.max_calls is not None and blocks > terms.max_calls:
        raise CompactionFailedError(
            "The compaction would take more calls than max_compaction_calls allows.",
            calls=blocks,
            max_compaction_calls=terms.max_calls,
        )


# --- whether the summary stands --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shrinks:
    """The view with the summary is smaller; it becomes the view, whether or not it got under target and trigger."""

    reaches_target: bool
    under_trigger: bool


@dataclass(frozen=True)
class NotSmaller:
    """The view would not shrink: the summary is stored, the originals are sent, no baseline moves (SPEC K8)."""


def judge_summary(*, before: int, after: int, terms: CompactionTerms) -> Shrinks | NotSmaller:
    """Compare the whole request before and after, both counted by the same estimator."""
    if after >= before:
        return NotSmaller()
    return Shrinks(reaches_target=after <= terms.goal, under_trigger=after < terms.budget.trigger)


class CompactionPolicy(Protocol):
    """The replaceable part (SPEC B8): when to compact and how long a summary may be; never the hard limit."""

    def consider(
        self,
        estimated: int,
        since: Since,
        last: LastEpisode | None,
        terms: CompactionTerms,
        *,
        had_episode: bool = False,
        asked: Literal["manual", "overflow"] | None = None,
    ) -> Consideration: ...

    def decide(
        self, estimated: int, *, fixed: int, material: int, terms: CompactionTerms
    ) -> NothingToCompact | Compact | Refused: ...


class BudgetPolicy:
    """The policy of SPEC K."""

    consider = staticmethod(consider)
    decide = staticmethod(decide)
